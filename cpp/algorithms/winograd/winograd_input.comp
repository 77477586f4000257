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

  // Addresses on padding are moved to the nearest pixel: loads without branches are on their way together.
  vec4 values[kMostPoints][kMostPoints];
  const int64_t slice = t.image * params.input_stride[0] + t.depth * params.input_stride[1] + c;
  const int rows = params.geometry.input_extent[1], columns = params.geometry.input_extent[2];
  [[unroll]] for (uint i = 0; i < kPoints; ++i) {
    const int h = clamp(t.h + int(i) - params.geometry.pad_lo[1], 0, rows - 1);
    [[unroll]] for (uint j = 0; j < kPoints; ++j) {
      const int w = clamp(t.w + int(j) - params.geometry.pad_lo[2], 0, columns - 1);
      values[i][j] = load_pixel(slice + h * params.input_stride[2] + w * params.input_stride[3], in_channels - c);
    }
  }
  [[unroll]] for (uint i = 0; i < kPoints; ++i) {
    const bool in_rows = uint(t.h + int(i) - params.geometry.pad_lo[1]) < uint(rows);
    [[unroll]] for (uint j = 0; j < kPoints; ++j) {
      const bool inside = in_rows && uint(t.w + int(j) - params.geometry.pad_lo[2]) < uint(columns);
      values[i][j] = mix(vec4(0), values[i][j], bvec4(inside));
    }
    input_to_points(values[i]);
  }

  start_rounding();
  const int64_t target = t.pixel * (kPoints * kPoints) * in_channels + c;
  [[unroll]] for (uint j = 0; j < kPoints; ++j) {
    vec4 column[kMostPoints];
    [[unroll]] for (uint i = 0; i < kPoints; ++i) column[i] = values[i][j];
    input_to_points(column);
    [[unroll]] for (uint i = 0; i < kPoints; ++i) {
      const int64_t offset = target + (i * kPoints + j) * int64_t(in_channels);
      if (kChannels == 4 && kPointFours) {
        store_point4(params.points_array, offset, column[i]);
      } else {
        [[unroll]] for (uint k = 0; k < kChannels; ++k)
          if (c + k < in_channels) store_point(params.points_array, offset + k, column[i][k]);
      }
    }
  }
}
