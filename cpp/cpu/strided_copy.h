// Copies between arrays of any strides, in parallel and in blocks, so that a change of layout (channels first to
// channels last) runs near the speed of memory.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "core/strided_array.h"

namespace vkconv::cpu {

inline constexpr int kMaxCopyAxes = 6;

// Strides are in bytes, of any sign, and need not be multiples of the element; addresses need no alignment.
struct StridedCopy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t element_bytes = 4;  // 2, 4 or 8
  bool swap_bytes = false;        // turns elements of foreign byte order into native ones
  int axes = 0;
  std::array<std::int64_t, kMaxCopyAxes> extent{}, to_stride{}, from_stride{};
};

void run(const StridedCopy& copy);

// Between arrays of equal extents.
void copy(const StridedArray& from, const StridedArray& to);

}  // namespace vkconv::cpu
