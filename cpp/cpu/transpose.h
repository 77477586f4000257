// Transposition of small blocks, compiled once an instruction set and chosen at run time.
#pragma once
#include <cstddef>
#include <cstdint>

namespace vkconv::cpu {

// to[c * to_stride + r] = from[r * from_stride + c] for all r < rows and c < columns.
using Transpose = void (*)(const std::byte* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns,
                           std::byte* to, std::int64_t to_stride);

// Of elements of 4 or 8 bytes at aligned addresses; strides count elements.
Transpose transpose_of(std::size_t element_bytes);

}  // namespace vkconv::cpu
