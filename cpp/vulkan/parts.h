// A problem whose arrays do not fit the device together, or one of which exceeds its largest allocation, as two smaller
// ones on slices of the same host arrays.
#pragma once
#include <vector>

#include "core/backend.h"

namespace vkconv::vulkan {

struct Part {
  ConvProblem problem;
  HostOperands operands;
};

// Halves that write disjoint parts of the result: of the batch or the longest output axis, of the channels for the
// weight gradient, so that no sum is cut. Empty when there is nothing left to cut.
std::vector<Part> halves(const ConvProblem& p, const HostOperands& operands);

}  // namespace vkconv::vulkan
