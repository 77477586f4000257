#version 460
// variants: f32 f16 bf16
//
// The inputs under a tile, evaluated at the points: an invocation takes kChannels of one tile, padding is zeros.
#include "algorithms/winograd/winograd.glsl"

vec4 load_pixel(int64_t offset, uint channels) {
  if (kInputFours && kChannels == 4) return load4(params.input_array, offset);
  vec4 v = vec4(0);
  [[unroll]] for (uint j = 0; j < kChannels; ++j)
    if (j < channels) v[j] = load(params.input_array, offset + j);
  return v;
}

void main() {
  uint index = linear_group() * kGroupSize + gl_LocalInvocationID.x;
  if (index >= params.count) return;
  const uint in_channels = uint(params.geometry.in_channels);
  const uint c = take_channel(index, params.geometry.in_channels);
  const Tile t = take_tile(index);

  vec4 values[kMostPoints][kMostPoints];
  const int64_t slice = t.image * params.input_stride[0] + t.depth * params.input_stride[1] + c;
  [[unroll]] for (uint i = 0; i < kPoints; ++i) {
    const int h = t.h + int(i) - params.geometry.pad_lo[1];
    const bool in_rows = uint(h) < uint(params.geometry.input_extent[1]);
    [[unroll]] for (uint j = 0; j < kPoints; ++j) {
      const int w = t.w + int(j) - params.geometry.pad_lo[2];
      values[i][j] = vec4(0);
      if (in_rows && uint(w) < uint(params.geometry.input_extent[2]))
        values[i][j] =
            load_pixel(slice + h * params.input_stride[2] + w * params.input_stride[3], in_channels - c);
    }
    input_to_points(values[i]);
  }

  const int64_t target = t.pixel * (kPoints * kPoints) * in_channels + c;
  [[unroll]] for (uint j = 0; j < kPoints; ++j) {
    vec4 column[kMostPoints];
    [[unroll]] for (uint i = 0; i < kPoints; ++i) column[i] = values[i][j];
    input_to_points(column);
    [[unroll]] for (uint i = 0; i < kPoints; ++i) {
      const int64_t offset = target + (i * kPoints + j) * int64_t(in_channels);
      if (kChannels == 4 && in_channels % 4 == 0) {
        store_real4(params.points_array, offset, column[i]);
      } else {
        [[unroll]] for (uint k = 0; k < kChannels; ++k)
          if (c + k < in_channels) store_real(params.points_array, offset + k, column[i][k]);
      }
    }
  }
}
