// transpose_phases: a convolution whose input is dilated (a strided transposed convolution, an input gradient) as one
// dense problem a stride phase. Outputs of one phase meet the same taps of the kernel, so no inserted zero is ever
// multiplied: t^rank times fewer multiply-adds than the definition. Input, kernel taps and output are strided views.
// It wins whenever the input is dilated. Source: sub-pixel convolution (Shi et al. 2016), polyphase filters.
#pragma once
#include "algorithms/phases.h"

namespace vkconv {

struct TransposePhases {
  static constexpr const char* name = "transpose_phases";

  static Support supports(const ConvProblem& p, const auto&) {
    if (Support s = forward_support(p); !s) return s;
    if (!p.input_dilated()) return Support::no("the input is not dilated");
    return phases_support(p, p.input_dilation, input_dilation_phases);
  }

  static std::vector<ChildProblem> children(const ConvProblem& p) {
    return phase_children(p, phase_axes(p, p.input_dilation, input_dilation_phases));
  }
};

}  // namespace vkconv
