#version 460
// variants: f32 f16 bf16
//
// The outputs of a tile from the products at its points, kChannels an invocation, with bias, addend and activation.
// Outputs that are not finite are computed again by definition.
#include "algorithms/winograd/winograd.glsl"

vec4 load_products(int64_t offset, uint channels) {
  if (kChannels == 4 && kProductFours) return load_point4(params.products_array, offset);
  vec4 v = vec4(0);
  [[unroll]] for (uint j = 0; j < kChannels; ++j)
    if (j < channels) v[j] = load_point(params.products_array, offset + j);
  return v;
}

void main() {
  uint index = linear_group() * kGroupSize + gl_LocalInvocationID.x;
  if (index >= params.count) return;
  const uint out_channels = uint(params.geometry.out_channels);
  const uint c = take_channel(index, params.geometry.out_channels);
  const Tile t = take_tile(index);

  vec4 values[kMostPoints][kMostPoints];
  const int64_t source = t.pixel * (kPoints * kPoints) * out_channels + c;
  [[unroll]] for (uint i = 0; i < kPoints; ++i) {
    [[unroll]] for (uint j = 0; j < kPoints; ++j)
      values[i][j] = load_products(source + (i * kPoints + j) * int64_t(out_channels), out_channels - c);
    points_to_output(values[i]);
  }

  const int64_t output_offset = t.image * params.output_stride[0] + t.depth * params.output_stride[1];
  const int64_t addend_offset = t.image * params.epilogue.addend_stride[0] + t.depth * params.epilogue.addend_stride[1];
  uint mask = 0;
  [[unroll]] for (uint j = 0; j < kOutputs; ++j) {
    vec4 column[kMostPoints];
    [[unroll]] for (uint i = 0; i < kPoints; ++i) column[i] = values[i][j];
    points_to_output(column);
    const int w = t.w + int(j);
    [[unroll]] for (uint i = 0; i < kOutputs; ++i) {
      const int h = t.h + int(i);
      if (w < params.geometry.output_extent[2] && h < params.geometry.output_extent[1]) {
        if (any(isnan(column[i])) || any(isinf(column[i]))) {  // not stored: the addend may lie there
          mask |= 1u << (i * kOutputs + j);
          continue;
        }
        const int64_t target = output_offset + h * params.output_stride[2] + w * params.output_stride[3];
        const int64_t addend = addend_offset + h * params.epilogue.addend_stride[2] + w * params.epilogue.addend_stride[3];
        if (kChannels == 4)
          finish4(params.output_array, target, addend, c, out_channels, column[i], params.epilogue);
        else
          finish(params.output_array, target, addend, c, column[i].x, params.epilogue);
      }
    }
  }
  if (kRepairsLater)
    mask_at(t, c).value = mask;
  else
    repair(t, c, mask);
}
