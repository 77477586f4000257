#version 460
// variants: f32 f16 bf16 f64
//
// Depthwise with the kernel in registers: one invocation computes kColumns columns of a vector of channels and walks
// down the rows. Every input row is read once, kAhead rows before it is used, and added to all outputs in flight. Both
// the sums in flight and the rows ahead are rings; kUnroll turns of the loop are written out, so that ring indices are
// constants and the rings stay in registers. An output's taps are summed in their order.
#include "vulkan/glsl/epilogue.glsl"
#include "vulkan/glsl/geometry.glsl"
#include "vulkan/glsl/weight_strides.glsl"

layout(constant_id = 5) const uint kGroupVectors = 32;  // a workgroup: vectors of channels
layout(constant_id = 6) const uint kGroupStrips = 4;    // x strips of columns
layout(constant_id = 7) const uint kWords = 4;          // 32-bit words of a vector: 1, 2 or 4
layout(constant_id = 8) const uint kColumns = 4;        // outputs of a row an invocation
layout(constant_id = 9) const uint kKernelH = 3;
layout(constant_id = 10) const uint kKernelW = 3;
layout(constant_id = 11) const uint kStrideH = 1;
layout(constant_id = 12) const uint kStrideW = 1;
layout(constant_id = 13) const uint kAhead = 3;         // input rows, divides kUnroll * kStrideH
layout(constant_id = 14) const uint kUnroll = 3;        // output rows, a multiple of kSlots
layout(constant_id = 15) const bool kPadded = false;    // some tap of some output reads padding

layout(local_size_x_id = 5, local_size_y_id = 6) in;

const uint kVector = kWords * 4 / ELEMENT_BYTES;           // channels
const uint kInputs = (kColumns - 1) * kStrideW + kKernelW;  // columns
const uint kSlots = (kKernelH + kStrideH - 1) / kStrideH;   // output rows in flight
const uint kTaps = kKernelH * kKernelW, kGroupChannels = kGroupVectors * kVector;
const uint kShare = (kTaps * kVector + kGroupStrips - 1) / kGroupStrips;  // weights an invocation loads

struct Params {
  uint64_t input_array, weight_array, output_array;
  int64_t input_stride[4], output_stride[4];  // N D H W
  WeightStrides weight_stride;
  EpilogueParams epilogue;
  Geometry geometry;
  uint rows;  // of a strip, at most 64
  uint vector_groups, strip_groups, row_strips, groups_count;
};
#include "vulkan/glsl/dispatch.glsl"
#include "vulkan/glsl/direct_sum.glsl"
#include "algorithms/depthwise/vector.glsl"

shared real shared_weights[kTaps * kGroupChannels];

real weights[kTaps][kVector];
real sums[kSlots][kColumns][kVector];
uvec4 ahead[kAhead][kInputs];
uint columns_inside;   // bit j: input column j exists
uvec2 unfinished_rows;  // bit j: a sum of output row j is NaN

// Where an invocation's strip lies.
struct Place {
  int image, depth, row, column;  // of its first output
  int rows, columns;              // outputs that exist
  uint channel;
  int input_row, input_height;     // of tap 0, and how many there are; none when the depth is outside
  uint64_t input_address;          // of tap 0 of the first output
  uint64_t row_step, column_step;  // bytes
  uint64_t output_address, output_row_step, output_column_step;
  int64_t addend_offset;
};

// All loads are on their way before the first is stored.
void share_weights(uint first_channel) {
  real loaded[kShare];
  [[unroll]] for (uint i = 0; i < kShare; ++i) {
    const uint e = i * kGroupVectors * kGroupStrips + gl_LocalInvocationIndex;
    const uint o = first_channel + e / kTaps, tap = e % kTaps;
    loaded[i] = real(0);
    if (e < kTaps * kGroupChannels && o < params.geometry.out_channels)
      loaded[i] = load(params.weight_array, o * params.weight_stride.group + tap / kKernelW * params.weight_stride.tap[1] +
                                                tap % kKernelW * params.weight_stride.tap[2]);
  }
  [[unroll]] for (uint i = 0; i < kShare; ++i) {
    const uint e = i * kGroupVectors * kGroupStrips + gl_LocalInvocationIndex;
    if (e < kTaps * kGroupChannels) shared_weights[e % kTaps * kGroupChannels + e / kTaps] = loaded[i];
  }
}

// Loads input row `row` of the strip, counted from the one of tap 0.
void load_row(Place at, int row, uint ring) {
  const bool wanted = row < (at.rows - 1) * int(kStrideH) + int(kKernelH);
  const uint mask = wanted && uint(at.input_row + row) < uint(at.input_height) ? columns_inside : 0;
  uint64_t address = at.input_address + row * at.row_step;
  [[unroll]] for (uint i = 0; i < kInputs; ++i) {
    ahead[ring][i] = uvec4(0);
    if ((mask >> i & 1) != 0) ahead[ring][i] = load_words(address);
    address += at.column_step;
  }
}

// Adds an input row to the outputs in flight; in turn `turn` of the loop output a rows below the one finished now has
// its sums in slot (turn + a) % kSlots.
void add_row(uint turn, uint phase, uint ring) {
  [[unroll]] for (uint i = 0; i < kInputs; ++i) {
    real x[kVector];
    widen_words(ahead[ring][i], x);
    [[unroll]] for (uint a = 0; a < kSlots; ++a) {
      const uint kh = phase + kStrideH * (kSlots - 1 - a), slot = (turn + a) % kSlots;
      [[unroll]] for (uint c = 0; c < kColumns; ++c) {
        const uint kw = i - c * kStrideW;  // wraps where the column is left of the output's taps
        if (kh < kKernelH && kw < kKernelW)
          [[unroll]] for (uint v = 0; v < kVector; ++v)
            sums[slot][c][v] = fma(x[v], weights[kh * kKernelW + kw][v], sums[slot][c][v]);
      }
    }
  }
}

// In registers padding is zero, and 0 * infinity is NaN: rows with such a sum are left to finish_by_definition.
bool has_nan(uint slot) {
  bool any = false;
  [[unroll]] for (uint c = 0; c < kColumns; ++c)
    [[unroll]] for (uint v = 0; v < kVector; ++v) any = any || isnan(sums[slot][c][v]);
  return any;
}

void finish_row(Place at, int row, uint slot) {
  if (kPadded && has_nan(slot)) {
    unfinished_rows[row / 32] |= 1u << row % 32;
    return;
  }
  uint64_t address = at.output_address + row * at.output_row_step;
  int64_t addend_offset = 0;
  if (kHasAddend) addend_offset = at.addend_offset + row * params.epilogue.addend_stride[2];
  [[unroll]] for (uint c = 0; c < kColumns; ++c) {
    if (int(c) < at.columns) finish_words(address, addend_offset, at.channel, sums[slot][c], params.epilogue);
    address += at.output_column_step;
    if (kHasAddend) addend_offset += params.epilogue.addend_stride[3];
  }
}

void finish_by_definition(Place at) {
  const int64_t first = at.image * params.output_stride[0] + at.depth * params.output_stride[1];
  for (int row = 0; row < at.rows; ++row) {
    if ((unfinished_rows[row / 32] >> row % 32 & 1) == 0) continue;
    for (int c = 0; c < at.columns; ++c)
      for (uint v = 0; v < kVector; ++v) {
        const real sum = direct_sum(at.image, at.depth, at.row + row, at.column + c, int(at.channel + v));
        finish(params.output_array,
               first + (at.row + row) * params.output_stride[2] + (at.column + c) * params.output_stride[3],
               at.addend_offset + row * params.epilogue.addend_stride[2] + c * params.epilogue.addend_stride[3],
               at.channel + v, sum, params.epilogue);
      }
  }
}

void walk(Place at) {
  [[unroll]] for (uint s = 0; s < kSlots; ++s)
    [[unroll]] for (uint c = 0; c < kColumns; ++c)
      [[unroll]] for (uint v = 0; v < kVector; ++v) sums[s][c][v] = real(0);
  int next = int(kAhead);
  for (int first = 1 - int(kSlots); first < at.rows; first += int(kUnroll))
    [[unroll]] for (uint turn = 0; turn < kUnroll; ++turn) {
      const int row = first + int(turn);
      if (row < at.rows) {
        [[unroll]] for (uint phase = 0; phase < kStrideH; ++phase) {
          const uint ring = (turn * kStrideH + phase) % kAhead;
          add_row(turn, phase, ring);
          load_row(at, next++, ring);
        }
        const uint slot = turn % kSlots;
        if (row >= 0) finish_row(at, row, slot);
        [[unroll]] for (uint c = 0; c < kColumns; ++c)
          [[unroll]] for (uint v = 0; v < kVector; ++v) sums[slot][c][v] = real(0);
      }
    }
}

Place place_of(uint index) {
  Place at;
  at.channel = take_digit(index, params.vector_groups) * kGroupChannels + gl_LocalInvocationID.x * kVector;
  at.column = int((take_digit(index, params.strip_groups) * kGroupStrips + gl_LocalInvocationID.y) * kColumns);
  at.row = int(take_digit(index, params.row_strips) * params.rows);
  at.depth = int(take_digit(index, uint(params.geometry.output_extent[0])));
  at.image = int(index);
  at.rows = min(int(params.rows), params.geometry.output_extent[1] - at.row);
  at.columns = min(int(kColumns), params.geometry.output_extent[2] - at.column);
  const int d = at.depth * params.geometry.stride[0] - params.geometry.pad_lo[0];
  const int w = at.column * int(kStrideW) - params.geometry.pad_lo[2];
  at.input_row = at.row * int(kStrideH) - params.geometry.pad_lo[1];
  at.input_height = uint(d) < uint(params.geometry.input_extent[0]) ? params.geometry.input_extent[1] : 0;
  const int64_t tap = at.image * params.input_stride[0] + d * params.input_stride[1] +
                      at.input_row * params.input_stride[2] + w * params.input_stride[3] + at.channel;
  at.input_address = params.input_array + uint64_t(tap) * ELEMENT_BYTES;
  at.row_step = uint64_t(params.input_stride[2]) * ELEMENT_BYTES;
  at.column_step = uint64_t(params.input_stride[3]) * ELEMENT_BYTES;
  columns_inside = 0;
  [[unroll]] for (uint i = 0; i < kInputs; ++i)
    if (uint(w + int(i)) < uint(params.geometry.input_extent[2])) columns_inside |= 1u << i;
  return at;
}

void place_output(inout Place at) {
  const uint bytes = kStoresReal ? REAL_BYTES : ELEMENT_BYTES;
  const int64_t first = at.image * params.output_stride[0] + at.depth * params.output_stride[1] +
                         at.row * params.output_stride[2] + at.column * params.output_stride[3] + at.channel;
  at.output_address = params.output_array + uint64_t(first) * bytes;
  at.output_row_step = uint64_t(params.output_stride[2]) * bytes;
  at.output_column_step = uint64_t(params.output_stride[3]) * bytes;
  at.addend_offset = at.image * params.epilogue.addend_stride[0] + at.depth * params.epilogue.addend_stride[1] +
                     at.row * params.epilogue.addend_stride[2] + at.column * params.epilogue.addend_stride[3];
}

void main() {
  const uint index = linear_group();
  if (index >= params.groups_count) return;
  Place at = place_of(index);
  const bool exists = at.channel < params.geometry.out_channels && at.columns > 0;
  if (!exists) columns_inside = 0;
  [[unroll]] for (uint r = 0; r < kAhead; ++r) load_row(at, int(r), r);
  share_weights(at.channel - gl_LocalInvocationID.x * kVector);
  barrier();
  if (!exists) return;
  start_rounding();
  place_output(at);
  unfinished_rows = uvec2(0);
  [[unroll]] for (uint t = 0; t < kTaps; ++t)
    [[unroll]] for (uint v = 0; v < kVector; ++v)
      weights[t][v] = shared_weights[t * kGroupChannels + gl_LocalInvocationID.x * kVector + v];
  walk(at);
  if (unfinished_rows != uvec2(0)) finish_by_definition(at);
}
