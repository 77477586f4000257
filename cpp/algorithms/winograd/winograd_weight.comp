#version 460
// variants: f32 f16 bf16
//
// The 3 x 3 taps of one output channel, depth tap and input channel, evaluated at the points. The result lies in the
// order (point, group, output channel, depth tap, input channel).
#include "algorithms/winograd/winograd.glsl"

void main() {
  const uint index = linear_group() * kGroupSize + gl_LocalInvocationID.x;
  if (index >= params.count) return;
  uint rest = index;
  const uint c = take_digit(rest, uint(params.geometry.in_channels / params.geometry.groups));
  const uint depth = take_digit(rest, uint(params.geometry.kernel[0]));
  const uint o = take_digit(rest, uint(params.geometry.out_channels / params.geometry.groups));
  const WeightStrides s = params.weight_stride;
  const int64_t source = rest * s.group + o * s.out_channel + c * s.in_channel + depth * s.tap[0];

  float values[3][kMostPoints];
  [[unroll]] for (uint i = 0; i < 3; ++i) {
    [[unroll]] for (uint j = 0; j < 3; ++j)
      values[i][j] = load(params.weight_array, source + i * s.tap[1] + j * s.tap[2]);
    weight_to_points(values[i]);
  }
  [[unroll]] for (uint j = 0; j < kPoints; ++j) {
    float column[kMostPoints];
    [[unroll]] for (uint i = 0; i < 3; ++i) column[i] = values[i][j];
    weight_to_points(column);
    [[unroll]] for (uint i = 0; i < kPoints; ++i)
      store_point(params.weight_points_array, (i * kPoints + j) * int64_t(params.count) + index, column[i]);
  }
}
