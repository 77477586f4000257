#version 460
// variants: f32 f16 bf16 f64
//
// Copies weights from one strided order into another, element by element.
#include "vulkan/glsl/types.glsl"
#include "vulkan/glsl/geometry.glsl"
#include "vulkan/glsl/weight_strides.glsl"

layout(constant_id = 0) const uint kGroupSize = 64;
layout(local_size_x_id = 0) in;

struct Params {
  uint64_t source, target;
  WeightStrides source_stride, target_stride;
  uint out_channels, kernel[3], in_channels, count;  // channels of a group; count of all elements
};
#include "vulkan/glsl/dispatch.glsl"

int64_t offset(WeightStrides s, uint group, uint o, uint tap[3], uint c) {
  return group * s.group + o * s.out_channel + tap[0] * s.tap[0] + tap[1] * s.tap[1] + tap[2] * s.tap[2] +
         c * s.in_channel;
}

void main() {
  // Neighbouring invocations write neighbouring output channels.
  uint i = linear_group() * kGroupSize + gl_LocalInvocationID.x;
  if (i >= params.count) return;
  const uint o = take_digit(i, params.out_channels), c = take_digit(i, params.in_channels);
  uint tap[3];
  for (int axis = 2; axis >= 0; --axis) tap[axis] = take_digit(i, params.kernel[axis]);
  ElementAt from = ElementAt(params.source + uint64_t(offset(params.source_stride, i, o, tap, c)) * ELEMENT_BYTES);
  ElementAt to = ElementAt(params.target + uint64_t(offset(params.target_stride, i, o, tap, c)) * ELEMENT_BYTES);
  to.value = from.value;
}
