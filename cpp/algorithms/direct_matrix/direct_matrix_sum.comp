#version 460
// variants: f16 bf16 f32 f16_emulated bf16_emulated f32_emulated
//
// Adds the shares of sums in order and finishes them: the second half of direct_matrix when workgroups share a sum. An
// invocation computes one output, or four channels where they are aligned.
#include "algorithms/direct_matrix/direct_matrix.glsl"

layout(constant_id = 5) const uint kGroupSize = 64;
layout(constant_id = 6) const bool kPadded = false;
layout(local_size_x_id = 5) in;

const uint kWidth = kStoresFours ? 4 : 1;

struct Output {
  int image, position[3];
  int64_t offset, addend_offset;
};

Output output_at(uint pixel) {
  Output y;
  y.offset = y.addend_offset = 0;
  [[unroll]] for (int axis = 2; axis >= 0; --axis) {
    y.position[axis] = int(take_digit(pixel, uint(params.geometry.output_extent[axis])));
    y.offset += y.position[axis] * params.output_stride[1 + axis];
    y.addend_offset += y.position[axis] * params.epilogue.addend_stride[1 + axis];
  }
  y.image = int(pixel);
  y.offset += y.image * params.output_stride[0];
  y.addend_offset += y.image * params.epilogue.addend_stride[0];
  return y;
}

// See is_suspect in direct_matrix_output.glsl.
bool is_suspect(float v) { return kParts > 1 ? isnan(v) || isinf(v) : kPadded && isnan(v); }

void main() {
  const uint first = (linear_group() * kGroupSize + gl_LocalInvocationID.x) * kWidth;
  if (first >= uint(params.share_elements)) return;
  vec4 sum = vec4(0);
  for (uint share = 0; share < params.shares.value; ++share) {
    const int64_t at = share * params.share_elements + first;
    if (kStoresFours)
      sum += load_real4(params.sums_array, at);
    else
      sum.x += load_real(params.sums_array, at);
  }
  uint pixel = first;
  const uint channels = uint(params.geometry.out_channels), o = take_digit(pixel, channels);
  const Output y = output_at(pixel);
  for (uint j = 0; j < kWidth; ++j)
    if (is_suspect(sum[j])) sum[j] = direct_sum(y.image, y.position[0], y.position[1], y.position[2], int(o + j));
  if (kStoresFours)
    finish4(params.output_array, y.offset, y.addend_offset, o, channels, sum, params.epilogue);
  else
    finish(params.output_array, y.offset, y.addend_offset, o, sum.x, params.epilogue);
}
