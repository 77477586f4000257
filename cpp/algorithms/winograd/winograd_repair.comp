#version 460
// variants: f32 f16 bf16
//
// Outputs that came out as infinity or NaN, once more by definition: the transforms carry a number that is not finite,
// or one so large that they overflow, to every output of its tile. An invocation takes kChannels of a tile, or of
// one pixel on devices that bound the loops of an invocation.
#include "algorithms/winograd/winograd.glsl"

void main() {
  uint index = linear_group() * kGroupSize + gl_LocalInvocationID.x;
  if (index >= params.count) return;
  const uint out_channels = uint(params.geometry.out_channels);
  const uint c = take_channel(index, params.geometry.out_channels);
  const uint pixel = kSpreadRepairs ? take_digit(index, kOutputs * kOutputs) : 0;
  const Tile t = take_tile(index);
  uint mask = mask_at(t, c).value;
  if (kSpreadRepairs) mask &= 1u << pixel;
  while (mask != 0) {
    const int bit = findLSB(mask);
    mask &= mask - 1;
    const int h = t.h + bit / int(kOutputs), w = t.w + bit % int(kOutputs);
    const int64_t output_offset = t.image * params.output_stride[0] + t.depth * params.output_stride[1] +
                                  h * params.output_stride[2] + w * params.output_stride[3];
    const int64_t addend_offset = t.image * params.epilogue.addend_stride[0] + t.depth * params.epilogue.addend_stride[1] +
                                  h * params.epilogue.addend_stride[2] + w * params.epilogue.addend_stride[3];
    for (uint o = c; o < min(c + kChannels, out_channels); ++o)
      finish(params.output_array, output_offset, addend_offset, o, direct_sum(t.image, t.depth, h, w, int(o)),
             params.epilogue);
  }
}
