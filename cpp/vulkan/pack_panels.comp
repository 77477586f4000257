#version 460
// variants: f32 f16 bf16 f64
//
// Copies weights into panels of output channels, widened, in the order that pack_panels.h gives. Channels that do not
// exist are zeros. An invocation writes four neighbouring output channels.
#include "vulkan/glsl/types.glsl"
#include "vulkan/glsl/geometry.glsl"
#include "vulkan/glsl/weight_strides.glsl"

layout(constant_id = 0) const uint kGroupSize = 64;
layout(local_size_x_id = 0) in;

struct Params {
  uint64_t source, target;
  WeightStrides stride;
  uint out_channels, in_channels, kernel[3];  // channels of a group
  uint panel_width, panels, chunk_channels, chunks;
  uint count;  // fours to write
};
#include "vulkan/glsl/dispatch.glsl"

void main() {
  const uint i = linear_group() * kGroupSize + gl_LocalInvocationID.x;
  if (i >= params.count) return;
  uint rest = i;
  const uint column = take_digit(rest, params.panel_width / 4) * 4;
  const uint channel_of_chunk = take_digit(rest, params.chunk_channels);
  int64_t offset = 0;
  for (int axis = 2; axis >= 0; --axis) offset += take_digit(rest, params.kernel[axis]) * params.stride.tap[axis];
  const uint c = take_digit(rest, params.chunks) * params.chunk_channels + channel_of_chunk;
  const uint o = take_digit(rest, params.panels) * params.panel_width + column;
  offset += rest * params.stride.group + c * params.stride.in_channel;
  real4 v = real4(0);
  [[unroll]] for (uint j = 0; j < 4; ++j)
    if (c < params.in_channels && o + j < params.out_channels)
      v[j] = load(params.source, offset + (o + j) * params.stride.out_channel);
  store_real4(params.target, int64_t(i) * 4, v);
}
