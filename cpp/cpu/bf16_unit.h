// What multiplies bf16 on this processor.
#pragma once
#include <algorithm>

#include "core/problem.h"
#include "cpu/bf16_dot.h"
#include "cpu/bf16_tiles.h"
#include "cpu/device.h"

namespace vkconv::cpu {

// Nothing, so that it is widened, the dot product of pairs, or matrix tiles.
enum class Bf16Unit { none, dot, tiles };

// Terms that a unit takes together.
constexpr std::int64_t terms_together(Bf16Unit unit) {
  return unit == Bf16Unit::tiles ? kTileTerms : unit == Bf16Unit::dot ? 2 : 1;
}

// Of a unit other than none.
inline RegisterTile register_tile(Bf16Unit unit) { return unit == Bf16Unit::tiles ? kMatrixTile : kDotTile; }
inline const GemmKernels<hwy::bfloat16_t, float>& bf16_kernels(Bf16Unit unit, int parts = 1) {
  return unit == Bf16Unit::tiles ? bf16_tile_kernels(parts) : bf16_dot_kernels();
}
inline double flops_per_second(const Traits& t, Bf16Unit unit) {
  return unit == Bf16Unit::tiles ? t.bf16_tile_flops_per_second : t.bf16_flops_per_second;
}

// Whether a problem's bf16 may be multiplied as it is: by vectors of the units' width, and without subnormal numbers.
inline bool multiplies_bf16(const ConvProblem& p, const Traits& t) {
  return p.dtype == DType::bf16 && p.precision != Precision::highest && lanes_of(t, p.dtype) == kDotTile.lanes;
}

// The fastest for a problem, where so large a share of the units' products are of its values; 0 where it cannot run on
// one. Some processors have the dot product at half the rate of multiply-adds.
inline Bf16Unit fastest_unit(const ConvProblem& p, const Traits& t, double dot_share, double tile_share) {
  if (!multiplies_bf16(p, t)) return Bf16Unit::none;
  const double dot = t.bf16_dot ? dot_share * t.bf16_flops_per_second : 0;
  const double tiles = t.bf16_tiles ? tile_share * t.bf16_tile_flops_per_second : 0;
  if (tiles > std::max(dot, t.f32_flops_per_second)) return Bf16Unit::tiles;
  return dot > 0 && t.bf16_flops_per_second >= t.f32_flops_per_second ? Bf16Unit::dot : Bf16Unit::none;
}

}  // namespace vkconv::cpu
