// The tiles of Form::groups, compiled once per instruction set in weight_grad_groups_simd.cpp.
#pragma once
#include <cstdint>

#include "algorithms/weight_grad/weight_grad.h"
#include "cpu/outer_product.h"
#include "hwy/base.h"

namespace vkconv::cpu::weight_grad {

// Groups side by side in a vector: c[q][r] += sum over lines and outputs i in [begin[q], end[q]) of
// x[i * x_step + q * tap_step] * dy[i * dy_step], where lane l of dy is its element index[l] + r.
template <class T>
struct GroupTile {
  using Index = hwy::MakeSigned<T>;
  const OuterSlice<T>* lines;  // vectors: x, rows: dy, both of output 0
  std::int64_t line_count;
  std::int64_t x_channel, dy_channel;  // first of the vectors
  std::int64_t x_step, dy_step, tap_step;
  std::int64_t begin[kMaxGroupTaps], end[kMaxGroupTaps];
  Range inner;                     // outputs that have all taps of the kernel row
  std::int64_t pixels;             // of inner ones in a vector
  std::int64_t x_pixel, dy_pixel;  // elements that one of them has
  std::int64_t whole_end;          // outputs from here on are not read in whole vectors
  const Index* index;
  std::int64_t row;  // first row of the tile
  T* c;
  std::int64_t tap_ldc, row_ldc;
};

// rows in [1, kMaxGroupRows], taps in [1, most_group_taps(rows)].
void run_group_tile(std::int64_t rows, std::int64_t taps, const GroupTile<float>& tile);
void run_group_tile(std::int64_t rows, std::int64_t taps, const GroupTile<double>& tile);

}  // namespace vkconv::cpu::weight_grad
