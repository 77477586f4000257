// Matrix products along a long axis, C = A^T B, out of micro-kernels that are compiled once for every instruction set.
// Both operands are read where they lie, one term after the other: a term of A is broadcast, an element for every row
// of C, one of B is read in vectors. gemm_kernels.h has rows of A and packed panels of B instead.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

#include "core/geometry.h"
#include "cpu/gemm.h"

namespace vkconv::cpu {

// Terms that lie evenly apart: both operands at the first.
template <class T>
struct OuterSlice {
  const T* rows;
  const T* vectors;
};

inline constexpr std::int64_t kMostOuterVectors = 4;

// c[r][v] = or += sum over slices and their `count` terms of rows[row + r] * vectors[offset[v]].
template <class T>
struct OuterTile {
  const OuterSlice<T>* slices;
  std::int64_t slice_count, count;
  std::int64_t row_step, vector_step;  // elements between terms
  std::int64_t ahead;  // terms to fetch before they are used, where they lie apart and not in a core's cache
  std::int64_t row;
  std::int64_t offset[kMostOuterVectors];
  T* c;
  std::int64_t ldc, step[kMostOuterVectors];  // elements from row to row, and from the first vector to each
  bool adds;
};

template <class T>
struct OuterKernels {
  using Rows = std::array<void (*)(const OuterTile<T>&), 14>;  // micro-kernels of 1, 2, ... rows

  RegisterTile shape;                             // as of GemmKernels
  std::array<Rows, kMostOuterVectors> kernels{};  // of 1, 2, ... vectors

  // `rows` rows of the tile by any vectors: vector v lies at offset(v), its sums at sum(v) from those of row 0. Down
  // columns of C, whose vectors stay in L1, or along its rows.
  template <class Offset, class Sum>
  void multiply(const OuterTile<T>& tile, std::int64_t rows, const Range& vectors, bool along_rows, Offset offset,
                Sum sum) const {
    const std::int64_t wide = shape.most_rows(kMostOuterVectors) > 0 ? kMostOuterVectors : shape.vectors();
    std::int64_t tiles = fills_wide_tiles(rows, shape.most_rows(wide)) ? vectors.size() / wide : 0;
    if (wide == 3 && tiles > 0 && vectors.size() % wide == 1) --tiles;  // two pairs are faster than a lone vector
    const std::int64_t rest = vectors.begin + tiles * wide;
    const auto multiply_part = [&](const Range& part, std::int64_t width) {
      const std::int64_t cuts = ceil_div(rows, shape.most_rows(width)), columns = ceil_div(part.size(), width);
      OuterTile<T> t = tile;
      for (std::int64_t i = 0; i < cuts * columns; ++i) {
        const std::int64_t cut = along_rows ? i / columns : i % cuts, column = along_rows ? i % columns : i / cuts;
        const std::int64_t first = part.begin + column * width, count = std::min(width, part.end - first);
        for (std::int64_t v = 0; v < count; ++v) {
          t.offset[v] = offset(first + v);
          t.step[v] = sum(first + v) - sum(first);
        }
        const Range some = nth_part(rows, cut, cuts);
        t.row = tile.row + some.begin;
        t.c = tile.c + some.begin * tile.ldc + sum(first);
        kernels[static_cast<std::size_t>(count - 1)][static_cast<std::size_t>(some.size() - 1)](t);
      }
    };
    multiply_part({vectors.begin, rest}, wide);
    const bool three = vectors.end - rest == 3 && shape.most_rows(3) > 0;  // a pair would leave one alone
    multiply_part({rest, vectors.end}, three ? 3 : 2);
  }
};

// float and double.
template <class T>
const OuterKernels<T>& outer_kernels();
template <>
const OuterKernels<float>& outer_kernels<float>();
template <>
const OuterKernels<double>& outer_kernels<double>();

}  // namespace vkconv::cpu
