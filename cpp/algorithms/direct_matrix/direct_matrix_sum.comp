#version 460
// variants: f16 bf16 f32 f16_emulated bf16_emulated f32_emulated
//
// Adds the shares of sums in order and finishes them: the second half of direct_matrix when workgroups share a sum. An
// invocation computes one output, or four channels where they are aligned.
#include "algorithms/direct_matrix/direct_matrix.glsl"
#include "vulkan/glsl/output_pixel.glsl"

layout(constant_id = 5) const uint kGroupSize = 64;
layout(constant_id = 6) const bool kPadded = false;
layout(local_size_x_id = 5) in;

const uint kWidth = kStoresFours ? 4 : 1;

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
  const OutputPixel y = output_pixel(pixel);
  for (uint j = 0; j < kWidth; ++j)
    if (is_suspect(sum[j])) sum[j] = direct_sum(y, int(o + j));
  if (kStoresFours)
    finish4(params.output_array, y.output_offset, y.addend_offset, o, channels, sum, params.epilogue);
  else
    finish(params.output_array, y.output_offset, y.addend_offset, o, sum.x, params.epilogue);
}
