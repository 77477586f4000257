#version 460
// variants: f32 f16 bf16
//
// Outputs that winograd_output left out. An invocation takes kChannels of one pixel of a tile.
#include "algorithms/winograd/winograd.glsl"

void main() {
  uint index = linear_group() * kGroupSize + gl_LocalInvocationID.x;
  if (index >= params.count) return;
  const uint c = take_channel(index, params.geometry.out_channels), pixel = take_digit(index, kOutputs * kOutputs);
  const Tile t = take_tile(index);
  repair(t, c, mask_at(t, c).value & 1u << pixel);
}
