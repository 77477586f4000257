#version 460
// variants: f32 f16 bf16 f64
//
// Adds the sums of an output's parts in order and finishes it: the second half of `direct` when sums are cut.
#include "algorithms/direct/direct.glsl"

layout(constant_id = 5) const uint kGroupSize = 64;

layout(local_size_x_id = 5) in;

void main() {
  const uint64_t i = uint64_t(linear_group()) * kGroupSize + gl_LocalInvocationID.x;
  const uint64_t channels = params.geometry.out_channels;
  uint64_t outputs = params.geometry.batch * channels, pixel = i / channels;
  for (int axis = 0; axis < 3; ++axis) outputs *= params.geometry.output_extent[axis];
  if (i >= outputs) return;
  real sum = real(0);
  for (uint part = 0; part < params.parts; ++part) sum += load_real(params.workspace, int64_t(part * outputs + i));
  int64_t output_offset = 0, addend_offset = 0;
  for (int axis = 2; axis >= 0; --axis) {
    const uint64_t extent = params.geometry.output_extent[axis];
    const int64_t position = int64_t(pixel % extent);
    pixel /= extent;
    output_offset += position * params.output_stride[1 + axis];
    addend_offset += position * params.epilogue.addend_stride[1 + axis];
  }
  output_offset += int64_t(pixel) * params.output_stride[0];
  addend_offset += int64_t(pixel) * params.epilogue.addend_stride[0];
  finish(params.output_array, output_offset, addend_offset, uint(i % channels), sum, params.epilogue);
}
