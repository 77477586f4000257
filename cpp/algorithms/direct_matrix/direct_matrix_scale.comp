#version 460
// variants: f32
//
// The scale that brings the weights of an output channel to the range of halves, one workgroup a channel. Stored is its
// inverse, which direct_matrix multiplies the channel's sums by. It is 1 for channels past a group's last.
#include "algorithms/direct_matrix/direct_matrix.glsl"

layout(constant_id = 5) const uint kGroupSize = 64;
layout(constant_id = 6) const uint kRunChannels = 32;  // output channels of a run of the packed weights
layout(local_size_x_id = 5) in;

shared uint top;

void main() {
  const uint index = linear_group();
  if (index >= params.groups) return;
  const uint channels = params.runs * kRunChannels, group = index / channels, o = index - group * channels;
  if (o >= params.group_out) {
    if (gl_LocalInvocationIndex == 0) store_real(params.scales_array, index, 1.0);
    return;
  }
  if (gl_LocalInvocationIndex == 0) top = 0;
  barrier();
  const int kernel[3] = params.geometry.kernel;
  const uint inputs = uint(params.geometry.in_channels / params.geometry.groups);
  const uint outputs = uint(params.geometry.out_channels / params.geometry.groups);
  const uint count = uint(kernel[0] * kernel[1] * kernel[2]) * inputs;
  const int64_t first = (group * (params.group_out / outputs) + o / outputs) * params.weight_stride.group +
                        o % outputs * params.weight_stride.out_channel;
  uint largest = 0;
  for (uint i = gl_LocalInvocationIndex; i < count; i += kGroupSize) {
    uint rest = i;
    int64_t offset = first + take_digit(rest, inputs) * params.weight_stride.in_channel;
    for (int axis = 2; axis >= 0; --axis) offset += take_digit(rest, uint(kernel[axis])) * params.weight_stride.tap[axis];
    largest = max(largest, finite_order(floatBitsToUint(load(params.weight_array, offset))));
  }
  atomicMax(top, largest);
  barrier();
  if (gl_LocalInvocationIndex == 0) store_real(params.scales_array, index, inverse_scale(scale_exponent(top)));
}
