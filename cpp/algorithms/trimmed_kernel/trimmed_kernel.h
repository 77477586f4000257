// trimmed_kernel: the problem without the rows, columns and depths of taps that read nothing but padding, at any
// output: of three taps 36 apart with a padding of 36 only the middle one meets an image of 33 pixels. One child with a
// smaller kernel, on a view of the weights. It wins wherever there are such taps, by the algorithms that a smaller
// kernel may have and the products that it leaves out. Source: none, the sum's own zeros.
#pragma once
#include "algorithms/phases.h"

namespace vkconv {

// Tap k reads the positions from k d - pad, at the first output, to (output - 1) s + k d - pad.
inline AxisPhase reading_taps(const ConvProblem& p, int a) {
  AxisPhase phase = whole_axis(p, a);
  const std::int64_t d = p.dilation[a], before = p.pad_lo[a] - (p.output[a] - 1) * p.stride[a];
  const std::int64_t first = before > 0 ? ceil_div(before, d) : 0;
  const std::int64_t end = std::min(floor_div(p.pad_lo[a] + p.input[a] - 1, d) + 1, p.kernel[a]);
  phase.tap_start = std::min(first, p.kernel[a]);
  phase.kernel = std::max<std::int64_t>(end - first, 0);
  phase.pad_lo -= phase.tap_start * d;
  return phase;
}

struct TrimmedKernel {
  static constexpr const char* name = "trimmed_kernel";

  static Support supports(const ConvProblem& p, const auto&) {
    if (Support s = forward_support(p); !s) return s;
    if (p.input_dilated()) return Support::no("the input is dilated");
    for (int a = 0; a < 3; ++a)
      if (reading_taps(p, a).kernel < p.kernel[a]) return Support::yes();
    return Support::no("every tap reads the input for some output");
  }

  static std::vector<ChildProblem> children(const ConvProblem& p) {
    const AxisPhase axes[] = {reading_taps(p, 0), reading_taps(p, 1), reading_taps(p, 2)};
    return {phase_child(p, {&axes[0], &axes[1], &axes[2]})};
  }
};

}  // namespace vkconv
