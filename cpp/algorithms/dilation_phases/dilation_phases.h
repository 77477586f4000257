// dilation_phases: a dilated kernel as one dense problem a dilation phase, each on every d-th element of the input
// and output (strided views, no copy). Phases of the same size are the images, or the depths, of one problem, where the
// layer has one image or no depth. The work is the same; it wins where the dense problem has a faster algorithm, such
// as Winograd. Source: a-trous filter banks (Holschneider et al. 1990).
#pragma once
#include "algorithms/phases.h"

namespace vkconv {

struct DilationPhases {
  static constexpr const char* name = "dilation_phases";

  static Support supports(const ConvProblem& p, const auto&) {
    if (Support s = forward_support(p); !s) return s;
    if (p.input_dilated()) return Support::no("the input is dilated");
    if (p.dilation == Extent3{1, 1, 1}) return Support::no("the kernel is not dilated");
    return phases_support(p, p.dilation, kernel_dilation_phases);
  }

  static std::vector<ChildProblem> children(const ConvProblem& p) {
    return phase_children(p, phase_axes(p, p.dilation, kernel_dilation_phases));
  }
};

}  // namespace vkconv
