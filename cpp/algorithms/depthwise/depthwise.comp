#version 460
// variants: f32 f16 bf16 f64
//
// One invocation computes kColumns neighbouring outputs of a row for four output channels. It walks the kernel row by
// row; of each row it holds `kTaps` weights and the input columns under them in registers, so a column is read once for
// all taps and outputs that use it. A workgroup covers channels x strips of columns x rows: its rows share their input
// through the first-level cache. Taps are summed in their order, whatever the tile.
#include "vulkan/glsl/epilogue.glsl"
#include "vulkan/glsl/geometry.glsl"
#include "vulkan/glsl/weight_strides.glsl"

layout(constant_id = 5) const uint kGroupQuads = 8;
layout(constant_id = 6) const uint kGroupStrips = 4;
layout(constant_id = 7) const uint kGroupRows = 4;
layout(constant_id = 8) const uint kColumns = 4;  // outputs an invocation
layout(constant_id = 9) const uint kTaps = 3;     // of a kernel row, at a time
// Column i of a strip is at position first + i * column_step; output t and tap j read column t * kStride + j * kDilation.
layout(constant_id = 10) const uint kStride = 1;
layout(constant_id = 11) const uint kDilation = 1;
layout(constant_id = 12) const bool kLoadsFours = false;   // multiplier 1, input aligned to four elements
layout(constant_id = 13) const bool kWeightFours = false;  // weights aligned to four channels, next to each other
layout(constant_id = 14) const bool kInsertedZeros = false;  // some input_dilation is above 1
layout(constant_id = 15) const bool kBlocks = false;         // more than kBlockTaps taps
// Strips inside the input take a branch without masks. A rasteriser runs both sides of a branch and goes without.
layout(constant_id = 16) const bool kBranches = false;

layout(local_size_x_id = 5, local_size_y_id = 6, local_size_z_id = 7) in;

const uint kInputColumns = (kColumns - 1) * kStride + (kTaps - 1) * kDilation + 1;
// The longest run of taps added up before the sum joins the total; a multiple of kTaps where rows are longer.
const int kBlockTaps = 48;

struct Params {
  uint64_t input_array, weight_array, output_array;
  int64_t input_stride[4], output_stride[4];             // N D H W
  WeightStrides weight_stride;
  EpilogueParams epilogue;
  Geometry geometry;
  int multiplier;  // output channels an input channel
  int column_step;
  uint quad_groups, strip_groups, row_groups, groups_count;
};
#include "vulkan/glsl/dispatch.glsl"
#include "algorithms/depthwise/channels.glsl"

int64_t weight_of[4];  // of each component

real4 load_weight(int64_t tap, Channels c) {
  if (kWeightFours) return load4(params.weight_array, tap + c.first);
  real4 v = real4(0);
  [[unroll]] for (uint j = 0; j < 4; ++j)
    if (c.first + j < c.count) v[j] = load(params.weight_array, tap + weight_of[j]);
  return v;
}

void find_weights(Channels c) {
  [[unroll]] for (uint j = 0; j < 4; ++j) {
    const uint group = c.input_of[j], o = c.first + j - group * uint(params.multiplier);
    weight_of[j] = group * params.weight_stride.group + o * params.weight_stride.out_channel;
  }
}

int column_index(int position) {
  const int extent = params.geometry.input_extent[2];
  if (kInsertedZeros) return input_index(position, extent, params.geometry.input_dilation[2]);
  return uint(position) < uint(extent) ? position : -1;
}

void main() {
  uint group = linear_group();
  if (group >= params.groups_count) return;
  const uint quad = group % params.quad_groups * kGroupQuads + gl_LocalInvocationID.x;
  group /= params.quad_groups;
  const int strip = int(group % params.strip_groups * kGroupStrips + gl_LocalInvocationID.y);
  group /= params.strip_groups;
  const int row = int(group % params.row_groups * kGroupRows + gl_LocalInvocationID.z);
  group /= params.row_groups;
  const int depth = int(group) % params.geometry.output_extent[0], image = int(group) / params.geometry.output_extent[0];
  const int column = strip * int(kColumns);
  if (quad * 4 >= params.geometry.out_channels || column >= params.geometry.output_extent[2] ||
      row >= params.geometry.output_extent[1])
    return;

  const Channels channels = channels_from(quad * 4, uint(params.geometry.out_channels), uint(params.multiplier));
  find_weights(channels);
  real4 sum[kColumns], total[kColumns];
  [[unroll]] for (uint t = 0; t < kColumns; ++t) sum[t] = total[t] = real4(0);
  int block = 0;

  for (int kd = 0; kd < params.geometry.kernel[0]; ++kd) {
    const int d = input_index(depth * params.geometry.stride[0] + kd * params.geometry.dilation[0] -
                              params.geometry.pad_lo[0], params.geometry.input_extent[0], params.geometry.input_dilation[0]);
    for (int kh = 0; kh < params.geometry.kernel[1]; ++kh) {
      const int h = input_index(row * params.geometry.stride[1] + kh * params.geometry.dilation[1] -
                                params.geometry.pad_lo[1], params.geometry.input_extent[1], params.geometry.input_dilation[1]);
      const int64_t input_row = image * params.input_stride[0] + d * params.input_stride[1] + h * params.input_stride[2];
      const int64_t weight_row = kd * params.weight_stride.tap[0] + kh * params.weight_stride.tap[1];
      if (d >= 0 && h >= 0) {
        for (int kw = 0; kw < params.geometry.kernel[2]; kw += int(kTaps)) {
          const int first = column * params.geometry.stride[2] + kw * params.geometry.dilation[2] -
                            params.geometry.pad_lo[2];
          real4 x[kInputColumns];
          bool inside[kInputColumns], all_inside = true;
          [[unroll]] for (uint i = 0; i < kInputColumns; ++i) {
            const int w = column_index(first + int(i) * params.column_step);
            inside[i] = w >= 0;
            all_inside = all_inside && inside[i];
            x[i] = real4(0);
            if (inside[i]) x[i] = load_input(input_row + w * params.input_stride[3], channels);
          }
          [[unroll]] for (uint j = 0; j < kTaps; ++j) {
            if (kw + int(j) >= params.geometry.kernel[2]) break;
            const real4 weight = load_weight(weight_row + (kw + int(j)) * params.weight_stride.tap[2], channels);
            if (kBranches && all_inside) {
              [[unroll]] for (uint t = 0; t < kColumns; ++t) sum[t] = fma(x[t * kStride + j * kDilation], weight, sum[t]);
            } else {
              // A tap on padding adds 0 * 0, never 0 * infinity.
              [[unroll]] for (uint t = 0; t < kColumns; ++t) {
                const uint i = t * kStride + j * kDilation;
                sum[t] = fma(x[i], inside[i] ? weight : real4(0), sum[t]);
              }
            }
          }
          if (kBlocks && (kw + int(kTaps)) % kBlockTaps == 0)
            [[unroll]] for (uint t = 0; t < kColumns; ++t) total[t] += sum[t], sum[t] = real4(0);
        }
      }
      block += params.geometry.kernel[2];
      if (kBlocks && block >= kBlockTaps) {
        block = 0;
        [[unroll]] for (uint t = 0; t < kColumns; ++t) total[t] += sum[t], sum[t] = real4(0);
      }
    }
  }

  const int64_t output_row = image * params.output_stride[0] + depth * params.output_stride[1] +
                             row * params.output_stride[2];
  const int64_t addend_row = image * params.epilogue.addend_stride[0] + depth * params.epilogue.addend_stride[1] +
                             row * params.epilogue.addend_stride[2];
  [[unroll]] for (uint t = 0; t < kColumns; ++t) {
    const int w = column + int(t);
    if (w < params.geometry.output_extent[2])
      finish4(params.output_array, output_row + w * params.output_stride[3],
              addend_row + w * params.epilogue.addend_stride[3], channels.first, channels.count, total[t] + sum[t],
              params.epilogue);
  }
}
