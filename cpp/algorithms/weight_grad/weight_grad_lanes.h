// The tiles of Form::lanes, compiled once per instruction set in weight_grad_lanes_simd.cpp.
#pragma once
#include <cstdint>
#include <type_traits>

#include "algorithms/weight_grad/weight_grad.h"
#include "hwy/base.h"

namespace vkconv::cpu::weight_grad {

// Elements from x and dy to what is fetched into L2 meanwhile; 0: nothing.
struct Behind {
  std::int64_t x = 0, dy = 0;
};

template <class In>
struct LaneLine {
  const In* x;   // position 0
  const In* dy;  // output 0
};

// Neighbouring taps of some lines, lane by lane: c[q] += sum over lines and outputs i of x[i * x_step + q * tap_step] *
// dy[i * dy_step], where position i * stride + q * tap lies in [left, right). In is the type of the operands.
template <class In>
struct LaneTile {
  using T = std::conditional_t<sizeof(In) == 2, float, In>;
  const LaneLine<In>* lines;
  std::int64_t line_count, outputs;
  std::int64_t x_step, dy_step, tap_step;
  std::int64_t stride, tap, left, right;
  std::int64_t offset[kLaneVectors];  // first channel of each vector
  T* c;
  std::int64_t ldc;
  Behind behind;

  bool inside(std::int64_t position) const { return position >= left && position < right; }
};

// Vectors of a tile of `taps` taps where `left` of them are wanted.
template <class In>
std::int64_t lane_tile_vectors(std::int64_t taps, std::int64_t left) {
  const std::int64_t most = lane_vectors(taps, sizeof(In));
  return left >= most ? most : left > 1 ? kVectors : 1;
}

// taps in [1, kMaxLaneTaps], vectors from lane_tile_vectors().
void run_lane_tile(std::int64_t taps, std::int64_t vectors, const LaneTile<float>& tile);
void run_lane_tile(std::int64_t taps, std::int64_t vectors, const LaneTile<double>& tile);
void run_lane_tile(std::int64_t taps, std::int64_t vectors, const LaneTile<hwy::float16_t>& tile);
void run_lane_tile(std::int64_t taps, std::int64_t vectors, const LaneTile<hwy::bfloat16_t>& tile);

}  // namespace vkconv::cpu::weight_grad
