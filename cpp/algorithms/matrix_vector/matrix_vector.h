// How matrix_vector cuts its work. The output is a few vectors, one for every pixel of the batch: the inputs under it,
// its window, times a matrix of weights. A kernel on an input of one pixel makes every output pixel a part of the
// vector, with one tap as its matrix: it is spread.
#pragma once
#include <algorithm>
#include <cstddef>

#include "core/algorithm.h"
#include "core/checked.h"
#include "cpu/device.h"

namespace vkconv::cpu::matrix_vector {

inline constexpr std::int64_t kMostVectors = 8;
inline constexpr std::int64_t kRowsTogether = 16;  // rows of the matrix, output channels
inline constexpr std::int64_t kColumns = 256;      // rows whose weights of a term lie side by side
inline constexpr std::size_t kMostVectorBytes = 64;

struct Layout {
  ConvProblem p;
  bool spread = false;
  std::int64_t vectors = 1, parts = 1;  // parts: taps of a spread kernel
  std::int64_t terms = 1;               // of a sum
  std::int64_t task_rows = 1;           // a multiple of kRowsTogether
  int slots = 1;

  std::int64_t tasks_a_part() const { return ceil_div(p.out_channels_per_group(), task_rows); }
  std::int64_t tasks() const { return p.groups * parts * tasks_a_part(); }
  std::size_t window_bytes() const {  // [group][vector][terms]
    return bytes(checked_mul(checked_mul(p.groups, vectors), terms), size_bytes(accumulator(p.dtype)));
  }
  // Rows copied, or the lanes of columns' sums and of the chain that is added to them.
  std::size_t slot_bytes() const {
    const std::size_t sums = 2 * static_cast<std::size_t>(vectors * kColumns) * kMostVectorBytes;
    return std::max(sums, bytes(checked_mul(kRowsTogether, terms), size_bytes(p.dtype)));
  }
  std::size_t workspace_bytes() const { return window_bytes() + slot_bytes() * static_cast<std::size_t>(slots); }

 private:
  static std::size_t bytes(std::int64_t elements, std::size_t element) {
    return aligned_bytes(checked_mul(elements, static_cast<std::int64_t>(element)));
  }
};

// Implemented once per instruction set in matrix_vector_simd.cpp.
void run(const Layout& layout, const Operands<Device>& operands, std::byte* workspace);

}  // namespace vkconv::cpu::matrix_vector
