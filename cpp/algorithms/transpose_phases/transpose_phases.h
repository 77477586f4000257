// transpose_phases: a convolution whose input is dilated (a strided transposed convolution, an input gradient) as one
// dense problem a stride phase. Outputs of one phase meet the same taps of the kernel, so no inserted zero is ever
// multiplied: t^rank times fewer multiply-adds than the definition. Input, kernel taps and output are strided views.
// It wins whenever the input is dilated. Source: sub-pixel convolution (Shi et al. 2016), polyphase filters.
#pragma once
#include "algorithms/phases.h"

namespace vkconv {

inline std::vector<ChildProblem> transpose_phase_children(const ConvProblem& p) {
  std::vector<AxisPhase> axes[3];
  for (int a = 0; a < 3; ++a)
    axes[a] = p.input_dilation[a] > 1 ? input_dilation_phases(p, a) : std::vector{whole_axis(p, a)};
  return phase_children(p, axes);
}

template <class Device>
Algorithm<Device> transpose_phases() {
  return {"transpose_phases",
          [](const ConvProblem& p, const Context<Device>&) {
            if (Support s = forward_support(p); !s) return s;
            if (!p.input_dilated()) return Support::no("the input is not dilated");
            return Support::yes();
          },
          [](const ConvProblem& p, const Context<Device>& context) {
            return disjoint_seconds(transpose_phase_children(p), context);
          },
          [](const ConvProblem& p, const Context<Device>& context) -> std::shared_ptr<const Plan<Device>> {
            return std::make_shared<DisjointPlan<Device>>("transpose_phases", p, transpose_phase_children(p), context);
          }};
}

}  // namespace vkconv
