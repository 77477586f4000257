#version 460
// variants: f32 f16 bf16 f64
//
// Writes rows of the unfolded input: for every output pixel and group of the convolution the values under its window,
// (tap, channel), zeros where the window reads padding, rounded up to a multiple of four. One invocation writes four.
#include "algorithms/implicit_gemm/gather.glsl"

layout(constant_id = 5) const uint kGroupSize = 64;

layout(local_size_x_id = 5) in;

void main() {
  const uint64_t i = uint64_t(linear_group()) * kGroupSize + gl_LocalInvocationID.x;
  const uint fours = uint(params.unfolded_group / 4), groups = uint(params.unfolded_row / params.unfolded_group);
  const uint four = uint(i % fours), group = uint(i / fours % groups);
  const uint m = uint(params.first_row + i / fours / groups);
  if (m >= params.end_row) return;
  const uint group_in = uint(params.geometry.in_channels / params.geometry.groups);
  Tap taps[4];
  [[unroll]] for (uint j = 0; j < 4; ++j)
    if (j == 0 || kFlat) taps[j] = tap_at(kFlat ? four * 4 + j : four, kFlat ? group_in : group_in / 4);
  const real4 values = gather(pixel_at(m), taps, (params.first_group + group) * int64_t(group_in));
  store4(params.unfolded_array, (m - params.first_row) * params.unfolded_row + group * params.unfolded_group + four * 4,
         values);
}
