// How an implementation spreads a cooperative matrix over the registers of a subgroup, found out once a device.
#pragma once
#include <cstdint>

#include "vulkan/device.h"

namespace vkconv::vulkan {

// Octets of a B matrix (k x n, 16-bit) that every invocation holds when the matrix can be taken apart into its
// invocations' elements and put together again from them, as weights packed for direct_matrix are; 0 when the device
// does otherwise, and matrices must be loaded as a whole. Runs two small kernels at the first call for a shape.
std::uint32_t lane_octets(Stream& stream, const CooperativeMatrix& shape);

}  // namespace vkconv::vulkan
