// The depthwise kernel that walks down the rows with the whole kernel in registers (depthwise_rows.comp).
#pragma once
#include "core/algorithm.h"
#include "vulkan/kernel_params.h"

namespace vkconv::vulkan {

// Whether the problem has a form it computes; its operands must also be aligned, see run_depthwise_rows.
bool has_depthwise_rows(const ConvProblem& p);

// Records the problem and answers true, or false when no vector of channels is aligned in input and output.
bool run_depthwise_rows(Stream& stream, const ConvProblem& p, const Operands<Device>& a, double seconds);

}  // namespace vkconv::vulkan
