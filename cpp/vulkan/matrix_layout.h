// How an implementation spreads a cooperative matrix over the registers of a subgroup, found out once a device.
#pragma once
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "vulkan/traits.h"

namespace vkconv::vulkan {

class Stream;

struct MatrixLayout {
  // Octets of a B matrix (k x n, 16-bit) that every invocation holds when the matrix can be taken apart into its
  // invocations' elements and put together again from them, as weights packed for direct_matrix are; 0 when the device
  // does otherwise, and matrices must be loaded as a whole.
  std::uint32_t lane_octets = 0;
  // Invocations hold the same elements of a matrix A as of C: what they round of their sums is a matrix A.
  bool sums_as_operands = false;
};

// Runs small kernels at the first call for a shape.
MatrixLayout matrix_layout(Stream& stream, const CooperativeMatrix& shape);

// What it has found out.
struct MatrixLayouts {
  std::mutex mutex;
  std::vector<std::pair<CooperativeMatrix, MatrixLayout>> known;
};

}  // namespace vkconv::vulkan
