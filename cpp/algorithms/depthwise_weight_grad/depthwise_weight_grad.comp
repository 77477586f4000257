#version 460
// variants: f32 f16 bf16 f64
//
// One invocation sums the gradients of a piece of the kernel, kRows x kTaps neighbouring taps, for kFours times four
// output channels. It goes through strips of kColumns neighbouring outputs and reads a column of the input once for all
// taps of a row and outputs that use it. A workgroup covers channels x parts; its parts take the strips of a chunk in
// turn. Sums run over blocks of kBlockStrips strips, whose sums are added in order, as are those of the parts.
#include "algorithms/weight_grad/weight_grad.glsl"

layout(constant_id = 2) const uint kGroupVectors = 8;  // of an invocation's output channels; the rest are parts
layout(constant_id = 3) const uint kColumns = 4;
layout(constant_id = 4) const uint kRows = 3;
layout(constant_id = 5) const uint kTaps = 3;
// Column i of a strip is at position first + i * stride / kStride; output t and tap j read t * kStride + j * kDilation.
layout(constant_id = 6) const uint kStride = 1;
layout(constant_id = 7) const uint kDilation = 1;
layout(constant_id = 8) const bool kLoadsFours = false;  // multiplier 1, input aligned to four elements
layout(constant_id = 9) const bool kGradFours = false;   // output gradient aligned to four channels
layout(constant_id = 10) const bool kZeros = false;      // some product has zeros for what does not exist
layout(constant_id = 11) const bool kChunks = false;     // chunk sums go to the workspace
layout(constant_id = 12) const bool kInsertedZeros = false;
layout(constant_id = 13) const bool kBlocks = true;  // some invocation takes more than kBlockStrips strips
layout(constant_id = 14) const uint kFours = 1;
layout(constant_id = 15) const bool kLoadsEights = false;  // of 16 bits, aligned as one: both arrays, kFours is 2

const uint kInputColumns = (kColumns - 1) * kStride + (kTaps - 1) * kDilation + 1;
const uint kGroupParts = kGroupSize / kGroupVectors, kVector = 4 * kFours;
const uint kBlockStrips = 32, kMostFours = 2;

shared real4 part_sums[kTaps * kGroupSize];

#include "algorithms/depthwise/channels.glsl"
#include "algorithms/weight_grad/definition.glsl"

real4 sum[kRows][kTaps][kFours], total[kRows][kTaps][kFours];
struct Fours {
  element4 of[kMostFours];  // kFours of them
};
// Of a strip, as they lie in memory: widening them in the branch that reads would wait for them there.
Fours grads[kColumns], inputs[kRows][kInputColumns];

int index_of(int position, int axis) {
  const int extent = params.geometry.input_extent[axis];
  if (kInsertedZeros) return input_index(position, extent, params.geometry.input_dilation[axis]);
  return uint(position) < uint(extent) ? position : -1;
}

int tap_position(int axis, int output_index, int tap) {
  return output_index * params.geometry.stride[axis] + tap * params.geometry.dilation[axis] - params.geometry.pad_lo[axis];
}

real4 load_grad(int64_t pixel, Channels c) {
  real4 v = real4(0);
  [[unroll]] for (uint j = 0; j < 4; ++j)
    if (c.first + j < c.count) v[j] = load(params.grad_array, pixel + c.first + j);
  return v;
}

uint strips_of_row() { return (uint(params.geometry.output_extent[2]) + kColumns - 1) / kColumns; }

// Side by side.
Fours fetch_fours(bool exists, uint64_t array, int64_t offset) {
  Fours e;
  const uint64_t address = array + uint64_t(offset) * ELEMENT_BYTES;
#if ELEMENT_BYTES == 2
  if (kLoadsEights) {
    u64vec2 both = u64vec2(0);
    if (exists) both = Real4At(address).value;
    e.of[0] = both.x, e.of[1] = both.y;
    return e;
  }
#endif
  [[unroll]] for (uint f = 0; f < kFours; ++f) {
    e.of[f] = element4(0);
    if (exists) e.of[f] = Element4At(address + f * ELEMENT4_BYTES).value;
  }
  return e;
}

struct Strip {
  int image, depth, row, column;  // of its first output
};

Strip strip_at(uint index) {
  Strip s;
  s.column = int(take_digit(index, strips_of_row()) * kColumns);
  s.row = int(take_digit(index, uint(params.geometry.output_extent[1])));
  s.depth = int(take_digit(index, uint(params.geometry.output_extent[0])));
  s.image = int(index);
  return s;
}

// Padding, and the gradients of outputs past the row, are zeros.
void fetch(Strip s, Channels c[kMostFours], int tap[3]) {
  const int64_t pixel = s.image * params.grad_stride[0] + s.depth * params.grad_stride[1] +
                        s.row * params.grad_stride[2] + s.column * params.grad_stride[3];
  [[unroll]] for (uint t = 0; t < kColumns; ++t) {
    const bool exists = s.column + int(t) < params.geometry.output_extent[2];
    const int64_t at = pixel + t * params.grad_stride[3];
    if (kGradFours) {
      grads[t] = fetch_fours(exists, params.grad_array, at + c[0].first);
    } else {
      [[unroll]] for (uint f = 0; f < kFours; ++f) {
        grads[t].of[f] = element4(0);
        if (exists) grads[t].of[f] = round_element4(load_grad(at, c[f]));
      }
    }
  }
  const int d = index_of(tap_position(0, s.depth, tap[0]), 0);
  const int64_t slice = s.image * params.input_stride[0] + d * params.input_stride[1];
  const int first = tap_position(2, s.column, tap[2]), step = params.geometry.stride[2] / int(kStride);
  [[unroll]] for (uint r = 0; r < kRows; ++r) {
    const int h = index_of(tap_position(1, s.row, tap[1] + int(r)), 1);
    [[unroll]] for (uint i = 0; i < kInputColumns; ++i) {
      const int w = index_of(first + int(i) * step, 2);
      const bool inside = d >= 0 && h >= 0 && w >= 0;
      const int64_t at = slice + h * params.input_stride[2] + w * params.input_stride[3];
      if (kLoadsFours) {
        inputs[r][i] = fetch_fours(inside, params.input_array, at + c[0].first);
      } else {
        [[unroll]] for (uint f = 0; f < kFours; ++f) {
          inputs[r][i].of[f] = element4(0);
          if (inside) inputs[r][i].of[f] = round_element4(load_input(at, c[f]));
        }
      }
    }
  }
}

void multiply() {
  [[unroll]] for (uint f = 0; f < kFours; ++f) {
    real4 wide_grads[kColumns];
    [[unroll]] for (uint t = 0; t < kColumns; ++t) wide_grads[t] = widen4(grads[t].of[f]);
    [[unroll]] for (uint r = 0; r < kRows; ++r) {
      real4 wide[kInputColumns];
      [[unroll]] for (uint i = 0; i < kInputColumns; ++i) wide[i] = widen4(inputs[r][i].of[f]);
      [[unroll]] for (uint t = 0; t < kColumns; ++t)
        [[unroll]] for (uint j = 0; j < kTaps; ++j)
          sum[r][j][f] = fma(wide[t * kStride + j * kDilation], wide_grads[t], sum[r][j][f]);
    }
  }
}

void end_block() {
  [[unroll]] for (uint r = 0; r < kRows; ++r)
    [[unroll]] for (uint j = 0; j < kTaps; ++j)
      [[unroll]] for (uint f = 0; f < kFours; ++f) total[r][j][f] += sum[r][j][f], sum[r][j][f] = real4(0);
}

// The output pixels before a strip.
uint pixels_before(uint strip) {
  const uint strips = strips_of_row(), row = strip / strips;
  return row * uint(params.geometry.output_extent[2]) + (strip - row * strips) * kColumns;
}

// The sum of a chunk's strips from `begin` to `end`, or the gradient if it is all of them. Zero times infinity may have
// made it NaN: then it is computed by the definition.
void store_sum(uint chunk, uint begin, uint end, uint o, int tap[3], real gradient) {
  const Geometry g = params.geometry;
  const uint t = uint((tap[0] * g.kernel[1] + tap[1]) * g.kernel[2] + tap[2]), channel = o / params.group_out;
  if (kZeros && isnan(gradient)) {
    Column column;
    column.exists = true;
    column.channel = channel;
    [[unroll]] for (int axis = 0; axis < 3; ++axis) column.offset[axis] = tap_position(axis, 0, tap[axis]);
    gradient = gradient_sum(column, o, pixels_before(begin), pixels_before(end));
  }
  if (kChunks)
    store_real(params.workspace, (int64_t(chunk) * g.out_channels + o) * params.columns + t, gradient);
  else
    store_gradient(gradient_offset(channel, t) + o % params.group_out * params.weight_stride.out_channel, gradient);
}

void main() {
  const uint index = linear_group(), thread = gl_LocalInvocationID.x;
  if (index >= params.tile_count * params.chunks) return;
  const uint tile = index % params.tile_count, chunk = index / params.tile_count;
  const uint first_channel = tile / params.tiles_k * kGroupVectors * kVector;
  const uint channels = uint(params.geometry.out_channels);
  uint piece = tile % params.tiles_k;
  int tap[3];
  tap[2] = int(take_digit(piece, (uint(params.geometry.kernel[2]) + kTaps - 1) / kTaps) * kTaps);
  tap[1] = int(take_digit(piece, (uint(params.geometry.kernel[1]) + kRows - 1) / kRows) * kRows);
  tap[0] = int(piece);
  const uint begin = chunk * params.chunk_pixels, end = min(begin + params.chunk_pixels, params.pixels);

  [[unroll]] for (uint r = 0; r < kRows; ++r)
    [[unroll]] for (uint j = 0; j < kTaps; ++j)
      [[unroll]] for (uint f = 0; f < kFours; ++f) sum[r][j][f] = total[r][j][f] = real4(0);
  Channels c[kMostFours];
  [[unroll]] for (uint f = 0; f < kFours; ++f)
    c[f] = channels_from(first_channel + thread % kGroupVectors * kVector + 4 * f, channels, params.group_out);
  uint strips = 0;
  uint strip = begin + thread / kGroupVectors;
  Strip s = strip_at(strip);
  while (strip < end && c[0].first < channels) {
    fetch(s, c, tap);
    strip += kGroupParts;
    s = strip_at(strip);  // the divisions take place while values are on their way
    multiply();
    if (kBlocks && ++strips % kBlockStrips == 0) end_block();
  }
  if (kBlocks) end_block();

  const int first_tap = tap[2];
  [[unroll]] for (uint r = 0; r < kRows; ++r, ++tap[1]) {
    if (tap[1] >= params.geometry.kernel[1]) return;
    [[unroll]] for (uint f = 0; f < kFours; ++f) {
      barrier();
      [[unroll]] for (uint j = 0; j < kTaps; ++j)
        part_sums[j * kGroupSize + thread] = kBlocks ? total[r][j][f] : sum[r][j][f];
      barrier();
      for (uint i = thread; i < kTaps * kGroupVectors * 4; i += kGroupSize) {
        const uint j = i / (kGroupVectors * 4), vector = i / 4 % kGroupVectors;
        const uint o = first_channel + vector * kVector + f * 4 + i % 4;
        tap[2] = first_tap + int(j);
        if (tap[2] >= params.geometry.kernel[2] || o >= channels) continue;
        real whole = real(0);
        for (uint part = 0; part < kGroupParts; ++part)
          whole += part_sums[j * kGroupSize + part * kGroupVectors + vector][i % 4];
        store_sum(chunk, begin, end, o, tap, whole);
      }
    }
  }
}
