#version 460
// variants: f32 f16 bf16 f64
//
// A workgroup computes a tile of outputs of one input channel, for kLanesO * kChannels of the output channels that read
// it. The input under the tile lies in shared memory, kTapsH rows and kTapsW columns of the kernel at a time, with zeros
// around the image. An invocation holds the inputs under kColumns outputs of a row in registers and slides the weights
// of a kernel row over them, for kRows output rows and kChannels channels.
#include "vulkan/glsl/epilogue.glsl"
#include "vulkan/glsl/geometry.glsl"
#include "vulkan/glsl/weight_strides.glsl"

layout(constant_id = 5) const uint kGroupSize = 128;
layout(constant_id = 6) const uint kLanesO = 1;
layout(constant_id = 7) const uint kLanesX = 16;
layout(constant_id = 8) const uint kRows = 4;
layout(constant_id = 9) const uint kChannels = 1;            // 1 or 4
layout(constant_id = 10) const uint kTapsH = 8;
layout(constant_id = 11) const uint kTapsW = 16;
layout(constant_id = 12) const bool kBlocks = false;         // block sums are added to a total
layout(constant_id = 13) const bool kPadded = false;         // some tap that an output multiplies reads no input
layout(constant_id = 14) const bool kColumnFours = false;    // four outputs of a row lie together, aligned
layout(constant_id = 15) const uint kBlockH = 8;             // divides kTapsH
layout(constant_id = 16) const uint kBlockParts = 1;         // a block is so many times kBlockH x kTapsW taps

layout(local_size_x_id = 5) in;

struct Params {
  uint64_t input_array, weight_array, output_array;
  int64_t input_stride[4], output_stride[4];  // N D H W
  WeightStrides weight_stride;
  EpilogueParams epilogue;
  Geometry geometry;
  uint tiles_o, tiles_x, tiles_y, workgroups;
};
#include "vulkan/glsl/dispatch.glsl"
#include "vulkan/glsl/direct_sum.glsl"

const uint kColumns = 8, kColumnQuads = kColumns / 4;
const uint kTileRows = kGroupSize / (kLanesO * kLanesX) * kRows, kTileChannels = kLanesO * kChannels;
const uint kQuads = (kColumns + kTapsW + 2) / 4;  // fours of inputs under an invocation's outputs of a row
const uint kRowQuads = kLanesX * kColumnQuads + kQuads - kColumnQuads;
const uint kInputRows = kTileRows + kTapsH - 1;
// A gap of four after the fours of each invocation's columns spreads neighbours over the banks.
const uint kRowSize = kRowQuads + kRowQuads / kColumnQuads;

shared real4 input_tile[kInputRows * kRowSize];
shared real weight_tile[kTapsH * kTapsW * kTileChannels];

struct Place {
  int image, depth, row, column;  // of the tile's first output
  uint group, channel;            // of the convolution; of its output channels the tile's first
  uint lane_o, lane_x, lane_y;
};

real sum[kRows][kColumns][kChannels], total[kRows][kColumns][kChannels];

uint row_slot(uint quad) { return quad + quad / kColumnQuads; }

// The inputs that kernel rows and columns from (h, w) on read.
void share_input(Place at, int64_t slice, uint h, uint w) {
  for (uint e = gl_LocalInvocationIndex; e < kInputRows * kRowQuads; e += kGroupSize) {
    const uint y = e / kRowQuads, quad = e % kRowQuads;
    const int row = at.row + int(y + h) - params.geometry.pad_lo[1];
    const int column = at.column + int(quad * 4 + w) - params.geometry.pad_lo[2];
    const int64_t offset = slice + row * params.input_stride[2] + column * params.input_stride[3];
    real4 v = real4(0);
    if (uint(row) < uint(params.geometry.input_extent[1]))
      [[unroll]] for (uint j = 0; j < 4; ++j)
        if (uint(column + int(j)) < uint(params.geometry.input_extent[2]))
          v[j] = load(params.input_array, offset + j * params.input_stride[3]);
    input_tile[y * kRowSize + row_slot(quad)] = v;
  }
}

void share_weights(Place at, uint d, uint first_h, uint first_w) {
  const uint group_out = uint(params.geometry.out_channels / params.geometry.groups);
  for (uint e = gl_LocalInvocationIndex; e < kTapsH * kTapsW * kTileChannels; e += kGroupSize) {
    const uint o = at.channel + e % kTileChannels, w = first_w + e / kTileChannels % kTapsW;
    const uint h = first_h + e / (kTileChannels * kTapsW);
    real v = real(0);
    if (o < group_out && h < params.geometry.kernel[1] && w < params.geometry.kernel[2])
      v = load(params.weight_array, at.group * params.weight_stride.group + o * params.weight_stride.out_channel +
                                        d * params.weight_stride.tap[0] + h * params.weight_stride.tap[1] +
                                        w * params.weight_stride.tap[2]);
    weight_tile[e] = v;
  }
}

void multiply_row(uint row, uint h, uint lane_o, real4 inputs[kQuads]) {
  [[unroll]] for (uint w = 0; w < kTapsW; ++w)
    [[unroll]] for (uint o = 0; o < kChannels; ++o) {
      const real weight = weight_tile[(h * kTapsW + w) * kTileChannels + lane_o * kChannels + o];
      [[unroll]] for (uint c = 0; c < kColumns; ++c)
        sum[row][c][o] = fma(inputs[(c + w) / 4][(c + w) % 4], weight, sum[row][c][o]);
    }
}

// The products of kernel rows `first` to `end` - 1. Input row y is multiplied by kernel row y - r for output row r.
void multiply(Place at, uint first, uint end) {
  for (uint y = first; y < kRows + end - 1; ++y) {
    real4 inputs[kQuads];
    [[unroll]] for (uint i = 0; i < kQuads; ++i)
      inputs[i] = input_tile[(at.lane_y * kRows + y) * kRowSize + row_slot(at.lane_x * kColumnQuads + i)];
    [[unroll]] for (uint r = 0; r < kRows; ++r)
      if (y >= first + r && y - r < end) multiply_row(r, y - r, at.lane_o, inputs);
  }
}

void end_block() {
  [[unroll]] for (uint r = 0; r < kRows; ++r)
    [[unroll]] for (uint c = 0; c < kColumns; ++c)
      [[unroll]] for (uint o = 0; o < kChannels; ++o) total[r][c][o] += sum[r][c][o], sum[r][c][o] = real(0);
}

void sum_taps(Place at) {
  uint parts = 0;  // of the block begun
  const uint kernel_h = params.geometry.kernel[1], kernel_w = params.geometry.kernel[2];
  for (int d = 0; d < params.geometry.kernel[0]; ++d) {
    const int depth = at.depth * params.geometry.stride[0] + d * params.geometry.dilation[0] - params.geometry.pad_lo[0];
    if (uint(depth) >= uint(params.geometry.input_extent[0])) continue;
    const int64_t slice = at.image * params.input_stride[0] + depth * params.input_stride[1] + at.group;
    // In this order blocks join the total in theirs, however many rows are in shared memory.
    for (uint w = 0; w < kernel_w; w += kTapsW)
      for (uint h = 0; h < kernel_h; h += kTapsH) {
        barrier();
        share_input(at, slice, h, w);
        share_weights(at, d, h, w);
        barrier();
        const uint rows = min(kTapsH, kernel_h - h);
        for (uint first = 0; first < rows; first += kBlockH) {
          multiply(at, first, min(first + kBlockH, rows));
          if (kBlocks && (kBlockParts == 1 || ++parts == kBlockParts)) end_block(), parts = 0;
        }
      }
  }
  if (kBlocks && kBlockParts > 1 && parts > 0) end_block();
}

// Padding is zero in shared memory, and 0 * infinity is NaN: such a sum is computed by the definition.
real repaired(Place at, int row, int column, uint o, real v) {
  return kPadded && isnan(v) ? direct_sum(at.image, at.depth, row, column, int(o)) : v;
}

// Finishes and stores four outputs of a row, of one channel.
void finish_columns(int64_t out_offset, int64_t addend_offset, uint o, real4 v) {
  if (kHasAddend)
    [[unroll]] for (uint j = 0; j < 4; ++j)
      v[j] += load_given(params.epilogue.addend, addend_offset + j * params.epilogue.addend_stride[3] + o);
  if (kHasBias) v += load_given(params.epilogue.bias, o);
  [[unroll]] for (uint j = 0; j < 4; ++j) v[j] = activate(v[j], params.epilogue);
  if (kStoresReal)
    store_real4(params.output_array, out_offset + o, v);
  else
    store4(params.output_array, out_offset + o, v);
}

// kChannels channels from o on, of those below `channels`, of four outputs from `column` on.
void finish_four(Place at, int row, int column, uint o, uint channels, real values[4][kChannels]) {
  const int64_t out_offset = at.image * params.output_stride[0] + at.depth * params.output_stride[1] +
                             row * params.output_stride[2] + column * params.output_stride[3];
  int64_t addend_offset = 0;
  if (kHasAddend)
    addend_offset = at.image * params.epilogue.addend_stride[0] + at.depth * params.epilogue.addend_stride[1] +
                    row * params.epilogue.addend_stride[2] + column * params.epilogue.addend_stride[3];
  const uint columns = min(4, uint(params.geometry.output_extent[2] - column));
  if (kColumnFours && columns == 4) {
    finish_columns(out_offset, addend_offset, o, real4(values[0][0], values[1][0], values[2][0], values[3][0]));
    return;
  }
  [[unroll]] for (uint j = 0; j < 4; ++j) {
    if (j >= columns) return;
    const int64_t to = out_offset + j * params.output_stride[3];
    const int64_t addend = kHasAddend ? addend_offset + j * params.epilogue.addend_stride[3] : 0;
    if (kChannels == 4)
      finish4(params.output_array, to, addend, o, channels,
              real4(values[j][0], values[j][1 % kChannels], values[j][2 % kChannels], values[j][3 % kChannels]),
              params.epilogue);
    else
      finish(params.output_array, to, addend, o, values[j][0], params.epilogue);
  }
}

void finish_tile(Place at) {
  const uint group_out = uint(params.geometry.out_channels / params.geometry.groups);
  const uint o = at.group * group_out + at.channel + at.lane_o * kChannels, channels = (at.group + 1) * group_out;
  if (o >= channels) return;
  [[unroll]] for (uint r = 0; r < kRows; ++r)
    [[unroll]] for (uint quad = 0; quad < kColumnQuads; ++quad) {
      const int row = at.row + int(at.lane_y * kRows + r), column = at.column + int(at.lane_x * kColumns + quad * 4);
      if (row >= params.geometry.output_extent[1] || column >= params.geometry.output_extent[2]) continue;
      real values[4][kChannels];
      [[unroll]] for (uint j = 0; j < 4; ++j)
        [[unroll]] for (uint i = 0; i < kChannels; ++i) {
          const real v = kBlocks ? total[r][quad * 4 + j][i] : sum[r][quad * 4 + j][i];
          const bool exists = o + i < channels && column + int(j) < params.geometry.output_extent[2];
          values[j][i] = exists ? repaired(at, row, column + int(j), o + i, v) : v;
        }
      finish_four(at, row, column, o, channels, values);
    }
}

Place place_of(uint index) {
  Place at;
  at.channel = take_digit(index, params.tiles_o) * kTileChannels;
  at.group = take_digit(index, uint(params.geometry.groups));
  at.column = int(take_digit(index, params.tiles_x) * (kLanesX * kColumns));
  at.row = int(take_digit(index, params.tiles_y) * kTileRows);
  at.depth = int(take_digit(index, uint(params.geometry.output_extent[0])));
  at.image = int(index);
  uint lane = gl_LocalInvocationIndex;
  at.lane_o = take_digit(lane, kLanesO);
  at.lane_x = take_digit(lane, kLanesX);
  at.lane_y = lane;
  return at;
}

void main() {
  const uint index = linear_group();
  if (index >= params.workgroups) return;
  const Place at = place_of(index);
  start_rounding();
  [[unroll]] for (uint r = 0; r < kRows; ++r)
    [[unroll]] for (uint c = 0; c < kColumns; ++c)
      [[unroll]] for (uint o = 0; o < kChannels; ++o) sum[r][c][o] = total[r][c][o] = real(0);
  sum_taps(at);
  finish_tile(at);
}
