#version 460
// variants: f32 f16 bf16 f64
//
// An invocation stores up to four channels of a pixel.
#include "vulkan/glsl/divisor.glsl"
#include "vulkan/glsl/epilogue.glsl"

layout(constant_id = 5) const uint kGroupSize = 64;
layout(local_size_x_id = 5) in;

struct Params {
  uint64_t output_array;
  int64_t output_stride[4];  // N D H W
  EpilogueParams epilogue;
  Divisor quads, extent[4];  // fours of a pixel's channels, and the output's N D H W
  uint channels, count;      // of a pixel, and fours of all
};
#include "vulkan/glsl/dispatch.glsl"

void main() {
  uint index = linear_group() * kGroupSize + gl_LocalInvocationID.x;
  if (index >= params.count) return;
  const uint channel = take_digit(index, params.quads) * 4;
  int64_t output_offset = 0, addend_offset = 0;
  [[unroll]] for (int axis = 3; axis >= 0; --axis) {
    const uint i = take_digit(index, params.extent[axis]);
    output_offset += i * params.output_stride[axis];
    addend_offset += i * params.epilogue.addend_stride[axis];
  }
  finish4(params.output_array, output_offset, addend_offset, channel, params.channels, real4(0), params.epilogue);
}
