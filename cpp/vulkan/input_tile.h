// Tiles of neighbouring outputs and the input under them: the C++ twin of glsl/tile_params.glsl.
#pragma once
#include <array>
#include <cstdint>

#include "core/problem.h"

namespace vkconv::vulkan {

using Tile4 = std::array<std::uint32_t, 4>;  // images, D, H, W

struct TileParams {
  Tile4 outputs, inputs, output_reciprocal, input_reciprocal, counts;
  std::uint32_t output_count, input_count;
  std::array<std::int32_t, 3> step, stride, dilation;
};

inline constexpr std::int64_t kMaxTilePixels = 1024;  // of outputs or inputs: the reach of the reciprocals

// Inputs under neighbouring outputs of an axis; positions that stride and dilation both skip are left out.
struct InputReach {
  std::int64_t one, step;  // under one output, and more for each further one
  std::int64_t of(std::int64_t outputs) const { return one + (outputs - 1) * step; }
};
InputReach input_reach(const ConvProblem& p, int axis);

// Tiles that cover all outputs.
std::int64_t tile_count(const ConvProblem& p, const Tile4& outputs);
// Both pixel counts are at most kMaxTilePixels, and the positions fit as kernel_support says.
TileParams tile_params(const ConvProblem& p, const Tile4& outputs);

}  // namespace vkconv::vulkan
