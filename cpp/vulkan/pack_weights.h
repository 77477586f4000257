// Weights copied on the device into the order a kernel wants.
#pragma once
#include "core/problem.h"
#include "core/strided_array.h"
#include "core/view.h"
#include "vulkan/device.h"

namespace vkconv::vulkan {

// Copies every weight of `p` from `source` to where `target` has it. weights_support must hold.
void pack_weights(Stream& stream, const ConvProblem& p, const WeightView<Pointer>& source,
                  const WeightView<Pointer>& target);

// The same for arrays of any kind and size: between arrays of equal extents, whose data are addresses of the device.
void copy(Stream& stream, const StridedArray& from, const StridedArray& to);

}  // namespace vkconv::vulkan
