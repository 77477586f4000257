#version 460
// variants: f32 f16 bf16 f64
//
// Adds the block sums of an output in order and finishes it: the second half of implicit_gemm when k is split.
#include "algorithms/implicit_gemm/implicit_gemm.glsl"

layout(constant_id = 5) const uint kGroupSize = 64;
layout(constant_id = 6) const bool kPadded = false;

layout(local_size_x_id = 5) in;

void main() {
  const uint channels = uint(params.geometry.out_channels);
  const uint64_t i = uint64_t(linear_group()) * kGroupSize + gl_LocalInvocationID.x;
  const uint64_t outputs = uint64_t(params.pixels) * channels;
  if (i >= outputs) return;
  real sum = real(0);
  for (uint block = 0; block < params.blocks; ++block) sum += load_real(params.workspace, int64_t(block * outputs + i));
  const OutputPixel p = output_pixel(uint(i / channels));
  const uint o = uint(i % channels);
  if (kPadded && isnan(sum)) sum = direct_sum(p, int(o));
  finish(params.output_array, p.output_offset, p.addend_offset, o, sum, params.epilogue);
}
