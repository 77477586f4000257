// dilation_phases: a dilated kernel as one dense problem a dilation phase, each on every d-th element of the input
// and output (strided views, no copy). The work is the same; it wins where the dense problem has a faster algorithm,
// such as Winograd. Source: a-trous filter banks (Holschneider et al. 1990).
#pragma once
#include "algorithms/phases.h"

namespace vkconv {

inline std::vector<ChildProblem> dilation_phase_children(const ConvProblem& p) {
  std::vector<AxisPhase> axes[3];
  for (int a = 0; a < 3; ++a)
    axes[a] = p.dilation[a] > 1 ? kernel_dilation_phases(p, a) : std::vector{whole_axis(p, a)};
  return phase_children(p, axes);
}

template <class Device>
Algorithm<Device> dilation_phases() {
  return {"dilation_phases",
          [](const ConvProblem& p, const Context<Device>&) {
            if (Support s = forward_support(p); !s) return s;
            if (p.input_dilated()) return Support::no("the input is dilated");
            if (p.dilation == Extent3{1, 1, 1}) return Support::no("the kernel is not dilated");
            return Support::yes();
          },
          [](const ConvProblem& p, const Context<Device>& context) {
            return disjoint_seconds(dilation_phase_children(p), context);
          },
          [](const ConvProblem& p, const Context<Device>& context) -> std::shared_ptr<const Plan<Device>> {
            return std::make_shared<DisjointPlan<Device>>("dilation_phases", p, dilation_phase_children(p), context);
          }};
}

}  // namespace vkconv
