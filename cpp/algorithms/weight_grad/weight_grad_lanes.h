// The tiles of Form::lanes, compiled once per instruction set in weight_grad_lanes_simd.cpp.
#pragma once
#include <cstdint>
#include <type_traits>

#include "algorithms/weight_grad/weight_grad.h"
#include "hwy/base.h"

namespace vkconv::cpu::weight_grad {

// Elements from x and dy to what is fetched into L2 meanwhile, that of x in the last kernel row; 0: nothing.
struct Behind {
  std::int64_t x = 0, dy = 0;
};

template <class In>
struct LaneLine {
  const In* x;   // position 0 of the first kernel row
  const In* dy;  // output 0
};

// Neighbouring taps of some lines and kernel rows, lane by lane: c[r][q] += sum over lines and outputs i of
// x[r * x_row + i * x_step + q * tap_step] * dy[i * dy_step], where position i * stride + q * tap lies in
// [left, right). In is the type of the operands.
template <class In>
struct LaneTile {
  using T = std::conditional_t<sizeof(In) == 2, float, In>;
  const LaneLine<In>* lines;
  std::int64_t line_count, outputs, rows;
  std::int64_t x_row, x_step, dy_step, tap_step;
  std::int64_t stride, tap, left, right;
  std::int64_t offset[kLaneVectors];  // first channel of each vector
  T* c;
  std::int64_t c_row, ldc;  // from kernel row to kernel row, and from tap to tap
  Behind behind;

  bool inside(std::int64_t position) const { return position >= left && position < right; }
};

// Vectors of a tile where `left` of them are wanted.
inline std::int64_t lane_tile_vectors(const LaneTiles& tiles, std::int64_t rows, std::int64_t taps, std::int64_t left) {
  const std::int64_t most = tiles.vectors(rows, taps);
  return left >= most ? most : left > 1 && most > 1 ? 2 : 1;
}

// taps in [1, kMaxLaneTaps], vectors from lane_tile_vectors(); several rows of LaneTiles where taps are neighbouring
// positions, and outputs or every other one.
void run_lane_tile(std::int64_t taps, std::int64_t vectors, const LaneTile<float>& tile);
void run_lane_tile(std::int64_t taps, std::int64_t vectors, const LaneTile<double>& tile);
void run_lane_tile(std::int64_t taps, std::int64_t vectors, const LaneTile<hwy::float16_t>& tile);
void run_lane_tile(std::int64_t taps, std::int64_t vectors, const LaneTile<hwy::bfloat16_t>& tile);

}  // namespace vkconv::cpu::weight_grad
