// How much scratch the copied input rows of a task need (input_rows-inl.h).
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/checked.h"
#include "core/geometry.h"
#include "core/problem.h"

namespace vkconv::cpu {

// Input rows (n, id, ih) that `rows` consecutive output rows (n, od, oh) read, at most.
inline std::int64_t input_rows_bound(const ConvProblem& p, std::int64_t rows) {
  const std::int64_t planes = (rows + p.output[1] - 2) / p.output[1] + 1, high = std::min(rows, p.output[1]);
  const std::int64_t read = std::min({p.input[1], inputs_under(p, 1, high), high * p.kernel[1]});
  const std::int64_t a_plane = read * std::min(p.input[0], p.kernel[0]);
  return std::min({planes * a_plane, rows * p.kernel[0] * p.kernel[1], p.batch * p.input[0] * p.input[1]});
}

// Elements of input, of so many channels, under `rows` rows of `pixels` outputs, at most, padding at the ends of a row
// included.
inline std::int64_t input_elements_bound(const ConvProblem& p, std::int64_t rows, std::int64_t pixels,
                                         std::int64_t channels) {
  return checked_mul(input_rows_bound(p, rows), checked_mul(inputs_under(p, 2, pixels), channels));
}

// Bytes of their copy in the accumulator type.
inline std::size_t copy_bytes(const ConvProblem& p, std::int64_t rows, std::int64_t pixels, std::int64_t channels) {
  const std::int64_t elements = input_elements_bound(p, rows, pixels, channels);
  return aligned_bytes(checked_mul(elements, accumulator_bytes(p.dtype)));
}

}  // namespace vkconv::cpu
