// split: a problem whose arrays exceed what one execution can address (32-bit offsets inside a kernel, the largest
// allocation) as parts of the batch, or of the longest output axis with the input rows they read. It is chosen only
// when the whole does not fit; each part is half of its parent until it does.
#pragma once
#include "core/checked.h"
#include "core/decomposition.h"

namespace vkconv {

// Outputs [begin, end) of the batch (axis 0) or of spatial axis 1..3, with the input they read.
inline ChildProblem split_part(const ConvProblem& p, int axis, std::int64_t begin, std::int64_t end) {
  ConvProblem c = p;
  Slice slice;
  if (axis == 0) {
    c.batch = end - begin;
    slice.batch_start = begin;
    return {canonical(c), slice};
  }
  const int a = axis - 1;
  const std::int64_t t = p.input_dilation[a], first = begin * p.stride[a] - p.pad_lo[a];
  const std::int64_t last = (end - 1) * p.stride[a] + (p.kernel[a] - 1) * p.dilation[a] - p.pad_lo[a];
  const std::int64_t from = std::clamp<std::int64_t>(ceil_div(first, t), 0, p.input[a]);
  const std::int64_t to = std::clamp<std::int64_t>(floor_div(last, t) + 1, from, p.input[a]);
  c.output[a] = end - begin;
  c.input[a] = to - from;
  c.pad_lo[a] = from * t - first;
  slice.output_start[a] = begin;
  slice.input_start[a] = from;
  if (to == from) c.kernel[a] = 0;  // only padding is read
  return {canonical(c), slice};
}

// The axis with the most outputs, the batch first: 0 batch, 1 D, 2 H, 3 W.
inline int split_axis(const ConvProblem& p) {
  if (p.batch > 1) return 0;
  return 1 + static_cast<int>(std::max_element(p.output.begin(), p.output.end()) - p.output.begin());
}

struct Split {
  static constexpr const char* name = "split";

  static Support supports(const ConvProblem& p, const auto& traits) {
    if (Support s = forward_support(p); !s) return s;
    const std::int64_t limit = traits.max_operand_elements;
    const std::int64_t largest = std::max(p.input_elements(), p.output_elements());
    if (limit == std::numeric_limits<std::int64_t>::max()) return Support::no("every array fits one execution");
    if (largest <= limit)
      return Support::no("no array exceeds the " + std::to_string(limit) + " elements one execution can address");
    if (p.batch == 1 && p.output_pixels() == 1) return Support::no("a single output cannot be split");
    return Support::yes();
  }

  static std::vector<ChildProblem> children(const ConvProblem& p) {
    const int axis = split_axis(p);
    const std::int64_t n = axis == 0 ? p.batch : p.output[axis - 1];
    return {split_part(p, axis, 0, n / 2), split_part(p, axis, n / 2, n)};
  }
};

}  // namespace vkconv
