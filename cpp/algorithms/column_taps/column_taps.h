// column_taps: the weight gradient of a kernel with taps apart along width, tap by tap: a child for each, of a kernel
// with one tap there, on its view of the weights. It wins where tiles of the input that serve all taps would be mostly
// halo, or not fit shared memory: causal networks with dilations of hundreds. Source: the definition.
#pragma once
#include "algorithms/weight_grad/weight_grad_support.h"
#include "core/decomposition.h"

namespace vkconv {

struct ColumnTaps {
  static constexpr const char* name = "column_taps";
  static constexpr std::int64_t kMostTaps = 32;

  static Support supports(const ConvProblem& p, const auto&) {
    if (Support s = weight_grad_support(p); !s) return s;
    if (p.input_dilated()) return Support::no("the input is dilated");
    if (p.dilation[2] == 1) return Support::no("the taps along width are neighbours");
    if (p.kernel[2] > kMostTaps)
      return Support::no("the kernel's width " + std::to_string(p.kernel[2]) + " is above " +
                         std::to_string(kMostTaps));
    return Support::yes();
  }

  static std::vector<ChildProblem> children(const ConvProblem& p) {
    std::vector<ChildProblem> children;
    for (std::int64_t k = 0; k < p.kernel[2]; ++k) children.push_back(one_tap(p, 2, k));
    return children;
  }
};

}  // namespace vkconv
