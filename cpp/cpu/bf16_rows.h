// Packing of bf16 for the micro-kernels of pairs, where rows of memory are terms of a sum. Where a row is null, its
// values are zeros. Both need bf16_dot_available(), and return whether all values are finite.
#pragma once
#include <cstdint>

namespace vkconv::cpu {

// A panel: to[(t / 2 * columns + c) * 2 + t % 2] = rows[t][first + c] for t < terms, an even number, and c < channels;
// 0 for the other columns, which fill vectors of 16.
bool pair_rows(const std::uint16_t* const* rows, std::int64_t terms, std::int64_t first, std::int64_t channels,
               std::int64_t columns, std::uint16_t* to);

// Rows of a panel's counterpart: to[c * pitch + t] = rows[t][first + c] for t < terms, a multiple of 32, and
// c < channels; 0 for other c that fill 16.
bool transpose_rows(const std::uint16_t* const* rows, std::int64_t terms, std::int64_t first, std::int64_t channels,
                    std::uint16_t* to, std::int64_t pitch);

}  // namespace vkconv::cpu
