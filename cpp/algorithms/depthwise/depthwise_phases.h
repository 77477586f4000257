// A depthwise problem as dense ones on strided views of its arrays: one for each phase of an input dilation, as
// transpose_phases has them, else itself. All take their turns at a few rows of the output, so that they find the input
// in the caches and a page of the output is written once.
#pragma once
#include <algorithm>
#include <vector>

#include "algorithms/transpose_phases/transpose_phases.h"

namespace vkconv::cpu::depthwise {

struct Phases {
  // NOLINTNEXTLINE(google-explicit-constructor): a dense problem is its own phase.
  Phases(const ConvProblem& p) : whole(p), list(TransposePhases::children(p)), largest(list.front().problem) {
    for (const ChildProblem& phase : list)
      for (int a = 0; a < 3; ++a) largest.kernel[a] = std::max(largest.kernel[a], phase.problem.kernel[a]);
  }

  bool dilated() const { return whole.input_dilated(); }
  // Whether some outputs see no tap.
  bool empty() const {
    return std::ranges::any_of(list, [](const ChildProblem& phase) { return phase.problem.taps() == 0; });
  }
  double flops() const {
    double sum = 0;
    for (const ChildProblem& phase : list) sum += phase.problem.flops();
    return sum;
  }

  ConvProblem whole;
  std::vector<ChildProblem> list;
  ConvProblem largest;  // the outputs of the first phase, which has most of them, and the most taps along each axis
};

}  // namespace vkconv::cpu::depthwise
