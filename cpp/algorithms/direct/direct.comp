#version 460
// variants: f32 f16 bf16 f64
//
// A workgroup computes a tile of output pixels for kTileN output channels of a group. The input under the tile, with
// its halo, lies in shared memory kQuads fours of channels at a time, and every tap reads it in place; the weights of a
// tap and chunk follow each other in memory and pass through a double buffer. An invocation sums kRegM x kRegN outputs
// in registers.
#include "algorithms/direct/direct.glsl"

layout(constant_id = 5) const uint kGroupSize = 128;  // kThreadsM * kThreadsN
layout(constant_id = 6) const uint kTileN = 64;
layout(constant_id = 7) const uint kRegM = 8;
layout(constant_id = 8) const uint kRegN = 8;          // a multiple of four
layout(constant_id = 9) const uint kQuads = 4;         // fours of input channels a chunk
layout(constant_id = 10) const uint kPixels = 180;     // room for the pixels of an input tile
layout(constant_id = 11) const uint kInputSize = 900;  // fours of the input tile, and of the sums staged there
layout(constant_id = 12) const bool kInputFours = false;   // input aligned to four channels
layout(constant_id = 13) const bool kPadded = false;       // some tap of some output reads padding
layout(constant_id = 14) const bool kBlocks = false;       // a part is longer than block_steps
layout(constant_id = 15) const bool kPartialSums = false;  // sums of parts go to the workspace
layout(constant_id = 16) const bool kAhead = false;        // a chunk is loaded while the one before is multiplied

layout(local_size_x_id = 5) in;

const uint kThreadsN = kTileN / kRegN, kThreadsM = kGroupSize / kThreadsN;
const uint kPixelSize = kQuads | 1u;                   // an odd stride spreads pixels over the banks
const uint kStepSize = kQuads * kTileN;                // fours of weights of a step: kQuads * 4 channels x kTileN / 4
const uint kStepLoads = (kStepSize + kGroupSize - 1) / kGroupSize;
const uint kInputLoads = 4;                            // at a time
const uint kRowSize = kTileN / 4;                      // fours of a pixel's sums
const uint kStagedM = kInputSize / (kThreadsM * kRowSize);  // of kRegM, at a time

shared real4 input_tile[kInputSize];
shared real4 weight_tile[2 * kStepSize];
shared uvec2 pixel_offset[kPixels];  // of the input tile's pixels; kOutside for padding

const uvec2 kOutside = uvec2(0, 0x80000000u);

struct Place {
  TilePlace tile;
  uint group, group_in, group_out;  // of the convolution, its channels
  uint tile_n, part;
  uint thread, thread_m, thread_n;
};

uint pixels[kRegM];  // where tap 0 of this invocation's outputs lies in the input tile
real4 sum[kRegM][kRegN / 4], total[kRegM][kRegN / 4];
real4 next_weights[kStepLoads], next_inputs[kInputLoads];  // loaded, not yet in shared memory
uint64_t weights;  // of the step that is fetched next

void find_pixels(Place at) {
  for (uint e = at.thread; e < params.tile.input_count; e += kGroupSize) {
    int64_t offset;
    const bool inside = find_tile_pixel(at.tile, e, offset);
    pixel_offset[e] = inside ? unpackUint2x32(uint64_t(offset)) : kOutside;
  }
}

real4 load_input(uvec2 pixel, uint channel, Place at) {
  if (pixel == kOutside || channel >= at.group_in) return real4(0);
  const int64_t offset = int64_t(packUint2x32(pixel)) + at.group * at.group_in + channel;
  if (kInputFours) return load4(params.input_array, offset);
  real4 v = real4(0);
  [[unroll]] for (uint j = 0; j < 4; ++j)
    if (channel + j < at.group_in) v[j] = load(params.input_array, offset + j);
  return v;
}

// Loads kInputLoads fours of an invocation from the first-th on.
void fetch_input(Place at, uint chunk, uint first) {
  [[unroll]] for (uint i = 0; i < kInputLoads; ++i) {
    const uint e = first + i * kGroupSize + at.thread;
    if (e < params.tile.input_count * kQuads)
      next_inputs[i] = load_input(pixel_offset[e / kQuads], (chunk * kQuads + e % kQuads) * 4, at);
  }
}

void share_input(Place at, uint first) {
  [[unroll]] for (uint i = 0; i < kInputLoads; ++i) {
    const uint e = first + i * kGroupSize + at.thread;
    if (e < params.tile.input_count * kQuads) input_tile[e / kQuads * kPixelSize + e % kQuads] = next_inputs[i];
  }
}

void load_chunk(Place at, uint chunk) {
  for (uint first = 0; first < params.tile.input_count * kQuads; first += kInputLoads * kGroupSize) {
    fetch_input(at, chunk, first);
    share_input(at, first);
  }
}

void fetch_weights(Place at) {
  [[unroll]] for (uint i = 0; i < kStepLoads; ++i) {
    const uint e = at.thread + i * kGroupSize;
    if (kStepSize % kGroupSize == 0 || e < kStepSize)
      next_weights[i] = unpack4(Real4At(weights + e * REAL4_BYTES).value);
  }
  weights += kStepSize * REAL4_BYTES;
}

void share_weights(Place at, uint stage) {
  [[unroll]] for (uint i = 0; i < kStepLoads; ++i) {
    const uint e = at.thread + i * kGroupSize;
    if (kStepSize % kGroupSize == 0 || e < kStepSize) weight_tile[stage * kStepSize + e] = next_weights[i];
  }
}

// A pixel is read just before its products, which follow each other: operands that a product shares with the one before
// need no port of the register file (an H200 has two for the three of a multiply-add).
void multiply(Place at, uint tap_pixel, uint stage) {
  [[unroll]] for (uint q = 0; q < kQuads; ++q) {
    real4 b[4][kRegN / 4];
    [[unroll]] for (uint l = 0; l < 4; ++l)
      [[unroll]] for (uint j = 0; j < kRegN / 4; ++j)
        b[l][j] = weight_tile[stage * kStepSize + (q * 4 + l) * kRowSize + j * kThreadsN + at.thread_n];
    [[unroll]] for (uint i = 0; i < kRegM; ++i) {
      const real4 a = input_tile[pixels[i] + tap_pixel + q];
      [[unroll]] for (uint l = 0; l < 4; ++l)
        [[unroll]] for (uint j = 0; j < kRegN / 4; ++j) sum[i][j] = fma(real4(a[l]), b[l][j], sum[i][j]);
    }
  }
}

void end_block() {
  [[unroll]] for (uint i = 0; i < kRegM; ++i)
    [[unroll]] for (uint j = 0; j < kRegN / 4; ++j) total[i][j] += sum[i][j], sum[i][j] = real4(0);
}

// Sums the chunks of the part: steps in the order chunk, tap.
void sum_part(Place at, uint first_chunk, uint last_chunk) {
  const uint taps = params.geometry.kernel[0] * params.geometry.kernel[1] * params.geometry.kernel[2];
  const uint extent_h = params.tile.inputs[2], extent_w = params.tile.inputs[3];
  uint steps = (last_chunk - first_chunk) * taps, stage = 0, in_block = 0;
  weights = params.panels + (((at.group * params.tiles_n + at.tile_n) * uint64_t(params.chunks) + first_chunk) * taps) *
                                (kStepSize * REAL4_BYTES);
  fetch_weights(at);
  share_weights(at, 0);
  if (kAhead) fetch_input(at, first_chunk, 0);
  for (uint chunk = first_chunk; chunk < last_chunk; ++chunk) {
    if (kAhead)
      share_input(at, 0);
    else
      load_chunk(at, chunk);
    barrier();
    if (kAhead && chunk + 1 < last_chunk) fetch_input(at, chunk + 1, 0);
    for (int d = 0; d < params.geometry.kernel[0]; ++d)
      for (int h = 0; h < params.geometry.kernel[1]; ++h)
        for (int w = 0; w < params.geometry.kernel[2]; ++w) {
          const uint row = d * params.tile.dilation[0] * extent_h + h * params.tile.dilation[1];
          const uint tap_pixel = (row * extent_w + w * params.tile.dilation[2]) * kPixelSize;
          if (--steps > 0) fetch_weights(at);  // arrive while this step is multiplied
          multiply(at, tap_pixel, stage);
          stage ^= 1;
          share_weights(at, stage);
          if (kBlocks && ++in_block == params.block_steps) {
            end_block();
            in_block = 0;
          }
          barrier();
        }
  }
}

// The sum of one output over a part by the definition, skipping padding. In the tile padding is zero, and
// 0 * infinity is NaN: sums that came out as NaN are computed again.
real sum_without_padding(Place at, TileOutput t, uint o, uint first_chunk, uint last_chunk) {
  const int taps = params.geometry.kernel[0] * params.geometry.kernel[1] * params.geometry.kernel[2];
  const uint64_t panel = (at.group * params.tiles_n + at.tile_n) * uint64_t(params.chunks);
  const uint first_channel = first_chunk * kQuads * 4, last_channel = min(last_chunk * kQuads * 4, at.group_in);
  real s = real(0);
  for (int tap = 0; tap < taps; ++tap) {
    uint rest = tap;
    bool inside = true;
    int64_t pixel = t.image * params.input_stride[0] + at.group * at.group_in;
    [[unroll]] for (int axis = 2; axis >= 0; --axis) {
      const int k = int(take_digit(rest, uint(params.geometry.kernel[axis])));
      const int i = t.position[axis] * params.geometry.stride[axis] + k * params.geometry.dilation[axis] -
                    params.geometry.pad_lo[axis];
      inside = inside && uint(i) < uint(params.geometry.input_extent[axis]);
      pixel += i * params.input_stride[1 + axis];
    }
    for (uint c = first_channel; inside && c < last_channel; ++c) {
      const uint64_t row = ((panel + c / (kQuads * 4)) * taps + tap) * (kQuads * 4) + c % (kQuads * 4);
      s = fma(load(params.input_array, pixel + c), load_real(params.panels, int64_t(row * kTileN + o)), s);
    }
  }
  return s;
}

void store_part(Place at, TileOutput t, uint o, real4 v) {
  const int64_t outputs = int64_t(params.geometry.batch) * params.geometry.output_extent[0] *
                          params.geometry.output_extent[1] * params.geometry.output_extent[2];
  const int64_t row = (at.part * outputs + pixel_index(t.image, t.position)) * params.geometry.out_channels +
                      at.group * at.group_out;
  [[unroll]] for (uint j = 0; j < 4; ++j)
    if (o + j < at.group_out) store_real(params.workspace, row + o + j, v[j]);
}

// Four sums of one pixel, from shared memory.
void finish_four(Place at, uint m, uint column, real4 v, uint first_chunk, uint last_chunk) {
  const TileOutput t = tile_output(at.tile, m);
  const uint o = at.tile_n * kTileN + column * 4, first = at.group * at.group_out;
  if (!t.exists || o >= at.group_out) return;
  if (kPadded && any(isnan(v)))
    for (uint j = 0; j < 4; ++j)
      if (isnan(v[j])) v[j] = sum_without_padding(at, t, column * 4 + j, first_chunk, last_chunk);
  if (kPartialSums)
    store_part(at, t, o, v);
  else
    finish4(params.output_array, t.output_offset, t.addend_offset, first + o, first + at.group_out, v, params.epilogue);
}

// The sums pass through shared memory, so that neighbours store neighbours and the epilogue is compiled once.
void store_outputs(Place at, uint first_chunk, uint last_chunk) {
  for (uint first = 0; first < kRegM; first += kStagedM) {
    barrier();
    [[unroll]] for (uint i = 0; i < kRegM; ++i)
      if (i >= first && i < first + kStagedM)
        [[unroll]] for (uint j = 0; j < kRegN / 4; ++j)
          input_tile[((i - first) * kThreadsM + at.thread_m) * kRowSize + at.thread_n + j * kThreadsN] = sum[i][j];
    barrier();
    const uint count = min(kStagedM, kRegM - first) * kThreadsM * kRowSize;
    for (uint e = at.thread; e < count; e += kGroupSize)
      finish_four(at, first * kThreadsM + e / kRowSize, e % kRowSize, input_tile[e], first_chunk, last_chunk);
  }
}

void main() {
  uint index = linear_group();
  if (index >= params.group_count) return;
  Place at;
  at.tile_n = take_digit(index, params.tiles_n);
  at.part = take_digit(index, params.parts);
  at.tile = take_tile(index);
  at.group = index;
  at.group_in = uint(params.geometry.in_channels / params.geometry.groups);
  at.group_out = uint(params.geometry.out_channels / params.geometry.groups);
  at.thread = gl_LocalInvocationID.x;
  at.thread_n = at.thread / 2 % kThreadsN;  // pairs of neighbours read the same weights
  at.thread_m = at.thread / (2 * kThreadsN) * 2 + at.thread % 2;
  find_pixels(at);
  [[unroll]] for (uint i = 0; i < kRegM; ++i) {
    pixels[i] = tile_pixel_of(at.thread_m + i * kThreadsM) * kPixelSize;
    [[unroll]] for (uint j = 0; j < kRegN / 4; ++j) sum[i][j] = total[i][j] = real4(0);
  }
  barrier();

  const uint first_chunk = at.part * params.part_chunks;
  const uint last_chunk = min(first_chunk + params.part_chunks, params.chunks);
  sum_part(at, first_chunk, last_chunk);
  if (kBlocks) {
    end_block();
    [[unroll]] for (uint i = 0; i < kRegM; ++i)
      [[unroll]] for (uint j = 0; j < kRegN / 4; ++j) sum[i][j] = total[i][j];
  }
  store_outputs(at, first_chunk, last_chunk);
}
