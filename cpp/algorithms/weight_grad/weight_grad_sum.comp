#version 460
// variants: f32 f16 bf16 f64
//
// Adds the chunk sums of each element of the gradient in order, by blocks of kBlockChunks, which are read together, as
// each alone would wait for memory: the second half of weight_grad and depthwise_weight_grad.
#include "algorithms/weight_grad/weight_grad.glsl"

layout(constant_id = 2) const uint kTileO = 64;
layout(constant_id = 3) const uint kTileK = 64;

const uint kBlockChunks = 16;

void main() {
  const uint64_t i = uint64_t(linear_group()) * kGroupSize + gl_LocalInvocationID.x;
  const uint64_t tile_elements = kTileO * kTileK, elements = params.tile_count * tile_elements;
  if (i >= elements) return;
  const uint tile = params.first_tile + uint(i / tile_elements), within = uint(i % tile_elements);
  const uint column = tile % params.tiles_k * kTileK + within % kTileK;
  const uint o = tile / params.tiles_k % params.tiles_o * kTileO + within / kTileK;
  if (o >= params.group_out || column >= params.columns) return;
  real sum = real(0);
  for (uint first = 0; first < params.chunks; first += kBlockChunks) {
    real sums[kBlockChunks], block = real(0);
    [[unroll]] for (uint j = 0; j < kBlockChunks; ++j) {
      sums[j] = real(0);
      if (first + j < params.chunks) sums[j] = load_real(params.workspace, int64_t((first + j) * elements + i));
    }
    [[unroll]] for (uint j = 0; j < kBlockChunks; ++j) block += sums[j];
    sum += block;
  }
  store_gradient(gradient_offset(tile / params.tiles_k / params.tiles_o, column) + o * params.weight_stride.out_channel, sum);
}
