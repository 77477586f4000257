#version 460
// variants: f32 f16 bf16 f64
//
// Depthwise with the kernel in registers: one invocation computes kColumns columns of a vector of channels and walks
// down the rows. Every input row - of all depths under the kernel - is read once, kAhead rows before it is used, and
// added to all outputs in flight. The sums in flight are a ring; a turn of the loop for each of its slots is written
// out, so that indices are constants and sums and rows stay in registers. Nothing but stores is conditional in it:
// branches would keep loads and products of neighbouring rows apart.
#include "vulkan/glsl/epilogue.glsl"
#include "vulkan/glsl/geometry.glsl"
#include "vulkan/glsl/weight_strides.glsl"

layout(constant_id = 5) const uint kGroupVectors = 32;  // a workgroup: vectors of channels
layout(constant_id = 6) const uint kGroupStrips = 4;    // x strips of columns
layout(constant_id = 7) const uint kVector = 4;         // output channels: 1, 2 or 4, at most 16 bytes
layout(constant_id = 8) const uint kColumns = 4;        // outputs of a row an invocation
layout(constant_id = 9) const uint kKernelD = 1;
layout(constant_id = 10) const uint kKernelH = 3;
layout(constant_id = 11) const uint kKernelW = 3;
layout(constant_id = 12) const uint kStrideH = 1;
layout(constant_id = 13) const uint kStrideW = 1;
layout(constant_id = 14) const uint kAhead = 3;         // input rows
layout(constant_id = 15) const bool kPadded = false;    // some tap of some output reads padding
layout(constant_id = 16) const uint kInputColumnBytes = 0;   // from column to column; 0: the stride tells
layout(constant_id = 17) const uint kOutputColumnBytes = 0;
// From tap to tap, where the weights of one lie side by side and are aligned as the outputs are; else 0.
layout(constant_id = 18) const uint kTapBytes = 0;
// Output channels an input channel: a multiple of kVector or a divisor of it.
layout(constant_id = 19) const uint kMultiplier = 1;

layout(local_size_x_id = 5, local_size_y_id = 6) in;

const uint kInputColumns = (kColumns - 1) * kStrideW + kKernelW, kInputs = kKernelD * kInputColumns;
const uint kSlots = (kKernelH + kStrideH - 1) / kStrideH;  // output rows in flight
const uint kTaps = kKernelD * kKernelH * kKernelW, kGroupChannels = kGroupVectors * kVector;
const uint kShare = (kTaps * kVector + kGroupStrips - 1) / kGroupStrips;  // weights an invocation loads
const uint kTapRow = kGroupChannels + 1;  // in shared memory, so that taps of a channel lie in different banks
const uint kShared = kTapBytes > 0 ? 1 : kTaps * kTapRow;

struct Params {
  uint64_t input_array, weight_array, output_array;
  int64_t input_stride[4], output_stride[4];  // N D H W
  WeightStrides weight_stride;
  EpilogueParams epilogue;
  Geometry geometry;
  uint rows;                                                    // of a strip
  uint vector_groups, row_groups, slice_groups, image_groups;  // workgroups side by side: of a row of strips, ...
  uint groups_count;
};
#include "vulkan/glsl/dispatch.glsl"
#include "vulkan/glsl/direct_sum.glsl"
#include "algorithms/depthwise/vector.glsl"

shared real shared_weights[kShared];

real weights[kTaps][kVector];
real sums[kSlots][kColumns][kVector];
uvec4 ahead[kAhead][kInputs];
uint inside;  // bit i: input i of a row, counted through the depths, exists

// Where an invocation's strip lies.
struct Place {
  int image, depth, row, column;  // of its first output
  int rows, columns;              // outputs that exist
  uint channel;
  int input_row, input_end;  // the next to load, below 0 in padding; where those end that exist and are wanted
  bool padded;               // some tap reads padding
  uint64_t input_address, depth_step, row_step, column_step;        // of tap 0 of the next row; bytes
  uint64_t output_address, output_row_step, output_column_step;
  int64_t addend_offset;
};

int64_t tap_offset(uint tap) {
  return tap / (kKernelH * kKernelW) * params.weight_stride.tap[0] +
         tap / kKernelW % kKernelH * params.weight_stride.tap[1] + tap % kKernelW * params.weight_stride.tap[2];
}

void load_weights(uint channel) {
  const uint64_t address = params.weight_array + channel * ELEMENT_BYTES;
  [[unroll]] for (uint t = 0; t < kTaps; ++t) widen_words(load_words(address + t * kTapBytes, kVector), 1, weights[t]);
}

// All loads are on their way before the first is stored.
void share_weights(uint first_channel) {
  real loaded[kShare];
  [[unroll]] for (uint i = 0; i < kShare; ++i) {
    const uint e = i * kGroupVectors * kGroupStrips + gl_LocalInvocationIndex;
    const uint o = first_channel + e / kTaps, tap = e % kTaps;
    loaded[i] = real(0);
    if (e < kTaps * kGroupChannels && o < params.geometry.out_channels)
      loaded[i] = load(params.weight_array, o / kMultiplier * params.weight_stride.group +
                                                o % kMultiplier * params.weight_stride.out_channel + tap_offset(tap));
  }
  [[unroll]] for (uint i = 0; i < kShare; ++i) {
    const uint e = i * kGroupVectors * kGroupStrips + gl_LocalInvocationIndex;
    if (e < kTaps * kGroupChannels) shared_weights[e % kTaps * kTapRow + e / kTaps] = loaded[i];
  }
}

void take_weights() {
  [[unroll]] for (uint t = 0; t < kTaps; ++t)
    [[unroll]] for (uint v = 0; v < kVector; ++v)
      weights[t][v] = shared_weights[t * kTapRow + gl_LocalInvocationID.x * kVector + v];
}

void load_row(inout Place at, uint row) {
  const uint mask = uint(at.input_row) < uint(at.input_end) ? inside : 0;
  [[unroll]] for (uint d = 0; d < kKernelD; ++d) {
    uint64_t address = at.input_address + d * at.depth_step;
    [[unroll]] for (uint i = d * kInputColumns; i < (d + 1) * kInputColumns; ++i) {
      ahead[row][i] = load_input_if((mask >> i & 1) != 0, address, params.input_array);
      address += at.column_step;
    }
  }
  at.input_address += at.row_step;
  ++at.input_row;
}

// Takes the next input row, sets a load going and adds the row to the outputs in flight. In turn `turn` of the loop the
// output s rows above the last begun has its sums in slot (turn + kSlots - 1 - s) % kSlots.
void add_row(inout Place at, uint turn, uint phase) {
  uvec4 row[kInputs];
  [[unroll]] for (uint i = 0; i < kInputs; ++i) {
    row[i] = ahead[0][i];
    [[unroll]] for (uint r = 1; r < kAhead; ++r) ahead[r - 1][i] = ahead[r][i];
  }
  load_row(at, kAhead - 1);
  [[unroll]] for (uint i = 0; i < kInputs; ++i) {
    real x[kVector];
    widen_words(row[i], kRepeats, x);
    const uint kd = i / kInputColumns;
    [[unroll]] for (uint s = 0; s < kSlots; ++s) {
      const uint kh = phase + kStrideH * s, slot = (turn + kSlots - 1 - s) % kSlots;
      [[unroll]] for (uint c = 0; c < kColumns; ++c) {
        const uint kw = i % kInputColumns - c * kStrideW;  // wraps where the column is left of the output's taps
        if (kh < kKernelH && kw < kKernelW)
          [[unroll]] for (uint v = 0; v < kVector; ++v) {
            real before = sums[slot][c][v];
            if (kd + kh + kw == 0) before = real(0);
            sums[slot][c][v] = fma(x[v], weights[(kd * kKernelH + kh) * kKernelW + kw][v], before);
          }
      }
    }
  }
}

void finish_row(inout Place at, uint slot) {
  uint64_t address = at.output_address;
  int64_t addend_offset = at.addend_offset;
  [[unroll]] for (uint c = 0; c < kColumns; ++c) {
    if (int(c) < at.columns) finish_words(address, addend_offset, at.channel, sums[slot][c], params.epilogue);
    address += at.output_column_step;
    if (kHasAddend) addend_offset += params.epilogue.addend_stride[3];
  }
  at.output_address += at.output_row_step;
  if (kHasAddend) at.addend_offset += params.epilogue.addend_stride[2];
}

void walk(Place at) {
  for (int first = 1 - int(kSlots); first < at.rows; first += int(kSlots))
    [[unroll]] for (uint turn = 0; turn < kSlots; ++turn) {
      [[unroll]] for (uint phase = 0; phase < kStrideH; ++phase) add_row(at, turn, phase);
      const int row = first + int(turn);
      if (row >= 0 && row < at.rows) finish_row(at, turn % kSlots);
    }
}

bool weights_are_finite() {
  uint largest[kVector];
  [[unroll]] for (uint v = 0; v < kVector; ++v) {
    largest[v] = 0;
    [[unroll]] for (uint t = 0; t < kTaps; ++t) largest[v] = max(largest[v], magnitude_bits(weights[t][v]));
  }
  bool finite = true;
  [[unroll]] for (uint v = 0; v < kVector; ++v) finite = finite && largest[v] < kInfinityBits;
  return finite;
}

// In registers padding is zero, and 0 * infinity is NaN: strips at the edge under such weights are summed apart.
void finish_by_definition(Place at) {
  const int64_t first = at.image * params.output_stride[0] + at.depth * params.output_stride[1];
  for (int row = 0; row < at.rows; ++row)
    for (int c = 0; c < at.columns; ++c)
      for (uint v = 0; v < kVector; ++v) {
        const real sum = direct_sum(at.image, at.depth, at.row + row, at.column + c, int(at.channel + v));
        finish(params.output_array,
               first + (at.row + row) * params.output_stride[2] + (at.column + c) * params.output_stride[3],
               at.addend_offset + row * params.epilogue.addend_stride[2] + c * params.epilogue.addend_stride[3],
               at.channel + v, sum, params.epilogue);
      }
}

// The divisions do not wait for each other.
Place place_of(uint index) {
  const uint strip = index / params.vector_groups, row = index / params.row_groups, slice = index / params.slice_groups,
             image = index / params.image_groups;
  Place at;
  at.channel = (index - strip * params.vector_groups) * kGroupChannels + gl_LocalInvocationID.x * kVector;
  at.column = int(((strip - row * (params.row_groups / params.vector_groups)) * kGroupStrips +
                   gl_LocalInvocationID.y) * kColumns);
  at.row = int((row - slice * (params.slice_groups / params.row_groups)) * params.rows);
  at.depth = int(slice - image * uint(params.geometry.output_extent[0]));
  at.image = int(image);
  at.rows = min(int(params.rows), params.geometry.output_extent[1] - at.row);
  at.columns = min(int(kColumns), params.geometry.output_extent[2] - at.column);
  return at;
}

uint64_t column_bytes(uint constant, int64_t stride, uint bytes) {
  return constant > 0 ? uint64_t(constant) : uint64_t(stride) * bytes;
}

void place_input(inout Place at) {
  const int d = at.depth * params.geometry.stride[0] - params.geometry.pad_lo[0];
  const int w = at.column * int(kStrideW) - params.geometry.pad_lo[2], dilation = params.geometry.dilation[0];
  at.input_row = at.row * int(kStrideH) - params.geometry.pad_lo[1];
  const int end = at.input_row + (at.rows - 1) * int(kStrideH) + int(kKernelH);
  at.input_end = clamp(end, 0, params.geometry.input_extent[1]);
  const int64_t tap = at.image * params.input_stride[0] + d * params.input_stride[1] +
                      at.input_row * params.input_stride[2] + w * params.input_stride[3] + at.channel / kMultiplier;
  at.input_address = params.input_array + uint64_t(tap) * ELEMENT_BYTES;
  at.depth_step = uint64_t(params.input_stride[1] * dilation) * ELEMENT_BYTES;
  at.row_step = uint64_t(params.input_stride[2]) * ELEMENT_BYTES;
  at.column_step = column_bytes(kInputColumnBytes, params.input_stride[3], ELEMENT_BYTES);
  inside = 0;
  at.padded = at.input_row < 0 || at.input_end < end;
  [[unroll]] for (uint i = 0; i < kInputs; ++i) {
    if (uint(w + int(i % kInputColumns)) < uint(params.geometry.input_extent[2]) &&
        uint(d + int(i / kInputColumns) * dilation) < uint(params.geometry.input_extent[0]))
      inside |= 1u << i;
    else
      at.padded = true;
  }
}

void place_output(inout Place at) {
  const uint bytes = kStoresReal ? REAL_BYTES : ELEMENT_BYTES;
  const int64_t first = at.image * params.output_stride[0] + at.depth * params.output_stride[1] +
                         at.row * params.output_stride[2] + at.column * params.output_stride[3] + at.channel;
  at.output_address = params.output_array + uint64_t(first) * bytes;
  at.output_row_step = uint64_t(params.output_stride[2]) * bytes;
  at.output_column_step = column_bytes(kOutputColumnBytes, params.output_stride[3], bytes);
  at.addend_offset = at.image * params.epilogue.addend_stride[0] + at.depth * params.epilogue.addend_stride[1] +
                     at.row * params.epilogue.addend_stride[2] + at.column * params.epilogue.addend_stride[3];
}

void main() {
  const uint index = linear_group();
  if (index >= params.groups_count) return;
  Place at = place_of(index);
  place_input(at);
  const bool exists = at.channel < params.geometry.out_channels && at.columns > 0;
  if (!exists) inside = 0;
  [[unroll]] for (uint r = 0; r < kAhead; ++r) load_row(at, r);
  if (kTapBytes == 0) {
    share_weights(at.channel - gl_LocalInvocationID.x * kVector);
    barrier();
  }
  if (!exists) return;
  if (kTapBytes > 0)
    load_weights(at.channel);
  else
    take_weights();
  start_rounding();
  place_output(at);
  if (kPadded && at.padded && !weights_are_finite())
    finish_by_definition(at);
  else
    walk(at);
}
