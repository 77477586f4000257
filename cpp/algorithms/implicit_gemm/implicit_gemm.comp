#version 460
// variants: f32 f16 bf16 f64
//
// A group of the convolution is a matrix product A * B^T: A has a row a pixel, B a row an output channel, and both run
// along k = (tap, input channel). A workgroup holds kTileK columns of kTileM rows of A, gathered through the index map,
// and of kTileN rows of B in shared memory, four values along k together; an invocation sums kRegM x kRegN outputs in
// registers. Sums run over blocks of kBlockSteps steps, whose sums are added in order: the tile shape never shows in the bits.
#include "algorithms/implicit_gemm/gather.glsl"

layout(constant_id = 5) const uint kGroupSize = 64;  // (kTileM / kRegM) * (kTileN / kRegN)
layout(constant_id = 6) const uint kTileM = 64;
layout(constant_id = 7) const uint kTileN = 64;
layout(constant_id = 8) const uint kTileQuads = 4;  // kTileK / 4, divides kGroupSize
layout(constant_id = 9) const uint kRegM = 8;
layout(constant_id = 10) const uint kRegN = 8;
layout(constant_id = 13) const bool kWeightFours = false;  // weights aligned to four input channels
layout(constant_id = 16) const bool kBlocks = false;        // k is longer than one block
layout(constant_id = 17) const bool kPartialSums = false;   // block sums go to the workspace; sum_blocks adds them
layout(constant_id = 18) const bool kQuadColumns = false;   // an invocation's columns lie four by four
layout(constant_id = 19) const uint kBlockSteps = 16;       // steps of kTileQuads a block
layout(constant_id = 20) const bool kUnfolded = false;      // A was unfolded into memory

layout(local_size_x_id = 5) in;

const uint kThreadsN = kTileN / kRegN, kThreadsM = kTileM / kRegM;
const uint kRowQuads = kTileQuads + 1;  // an odd stride spreads rows over the banks
const uint kLoadRows = kGroupSize / kTileQuads;
const uint kLoadsA = (kTileM + kLoadRows - 1) / kLoadRows, kLoadsB = (kTileN + kLoadRows - 1) / kLoadRows;

shared packed_real4 tile_a[kTileM * kRowQuads];
shared packed_real4 tile_b[kTileN * kRowQuads];
shared real staged[kThreadsM * kTileN];

real4 load_a(Pixel p, uint m, uint k, Tap taps[4], int64_t group_offset) {
  if (!kUnfolded) return gather(p, taps, group_offset);
  if (!p.exists || !taps[0].exists) return real4(0);
  return load4(params.unfolded_array, (m - params.first_row) * params.unfolded_row + group_offset + k);
}

real4 load_b(bool exists, int64_t row_offset, Tap taps[4]) {
  real4 v = real4(0);
  if (kFlat) {
    [[unroll]] for (uint j = 0; j < 4; ++j)
      if (exists && taps[j].exists) v[j] = load(params.weight_array, row_offset + taps[j].weight_offset);
  } else if (exists && taps[0].exists) {
    const int64_t offset = row_offset + taps[0].weight_offset;
    if (kWeightFours) return load4(params.weight_array, offset);
    [[unroll]] for (uint j = 0; j < 4; ++j) v[j] = load(params.weight_array, offset + j * params.weight_stride.in_channel);
  }
  return v;
}

// Where this invocation's part of the product lies.
struct Place {
  int group;             // of the convolution
  uint tile_m, tile_n;   // first row and column of the tile
  uint load_column, load_row;
  uint thread_m, thread_n;
  uint group_in, group_out;  // channels
  uint block;                // of the sum
};

Pixel pixels[kLoadsA];                // of the rows this invocation loads
real4 next_a[kLoadsA], next_b[kLoadsB];  // loaded, not yet in shared memory
real sum[kRegM][kRegN], total[kRegM][kRegN];

uint row_of(Place at, uint i) { return at.thread_m + i * kThreadsM; }
uint column_of(Place at, uint j) {
  return kQuadColumns ? (j / 4 * kThreadsN + at.thread_n) * 4 + j % 4 : at.thread_n + j * kThreadsN;
}

void fetch(Place at, uint step) {
  const uint k = (step * kTileQuads + at.load_column) * (kFlat ? 4 : 1);
  Tap taps[4];
  [[unroll]] for (uint j = 0; j < 4; ++j)
    if (j == 0 || kFlat) taps[j] = tap_at(k + j, kFlat ? at.group_in : at.group_in / 4);
  const int64_t group_offset = kUnfolded ? (at.group - params.first_group) * params.unfolded_group
                                         : at.group * int64_t(at.group_in);
  const uint unfolded_k = (step * kTileQuads + at.load_column) * 4;
  [[unroll]] for (uint i = 0; i < kLoadsA; ++i)
    next_a[i] = load_a(pixels[i], at.tile_m + at.load_row + i * kLoadRows, unfolded_k, taps, group_offset);
  [[unroll]] for (uint i = 0; i < kLoadsB; ++i) {
    const uint o = at.tile_n + at.load_row + i * kLoadRows;
    next_b[i] = load_b(o < at.group_out, at.group * params.weight_stride.group + o * params.weight_stride.out_channel, taps);
  }
}

void share(Place at) {
  [[unroll]] for (uint i = 0; i < kLoadsA; ++i) {
    const uint row = at.load_row + i * kLoadRows;
    if (kTileM % kLoadRows == 0 || row < kTileM) tile_a[row * kRowQuads + at.load_column] = pack4(next_a[i]);
  }
  [[unroll]] for (uint i = 0; i < kLoadsB; ++i) {
    const uint row = at.load_row + i * kLoadRows;
    if (kTileN % kLoadRows == 0 || row < kTileN) tile_b[row * kRowQuads + at.load_column] = pack4(next_b[i]);
  }
}

void multiply(Place at) {
  for (uint q = 0; q < kTileQuads; ++q) {
    real4 a[kRegM];
    [[unroll]] for (uint i = 0; i < kRegM; ++i) a[i] = unpack4(tile_a[row_of(at, i) * kRowQuads + q]);
    [[unroll]] for (uint j = 0; j < kRegN; ++j) {
      const real4 b = unpack4(tile_b[column_of(at, j) * kRowQuads + q]);
      [[unroll]] for (uint l = 0; l < 4; ++l)
        [[unroll]] for (uint i = 0; i < kRegM; ++i) sum[i][j] = fma(a[i][l], b[l], sum[i][j]);
    }
  }
}

void end_block() {
  [[unroll]] for (uint i = 0; i < kRegM; ++i)
    [[unroll]] for (uint j = 0; j < kRegN; ++j) total[i][j] += sum[i][j], sum[i][j] = real(0);
}

// Outputs that are finished at a time: 4 or 1.
uint finish_width() {
  if (kPartialSums || kTileN % 4 != 0) return 1;
  return kStoresFours ? 4 : 1;
}

// Outputs of row m from column o of the group.
void finish_outputs(Place at, uint m, uint o, uint e) {
  const uint first = at.group * at.group_out;
  if (kPartialSums) {
    const uint channels = uint(params.geometry.out_channels);
    const int64_t row = (at.block * int64_t(params.pixels) + m) * channels;
    store_real(params.workspace, row + first + o, staged[e]);
    return;
  }
  const OutputPixel p = output_pixel(m);
  real4 v;
  for (uint j = 0; j < finish_width(); ++j) {
    real y = staged[e + j];
    if (kPadded && isnan(y)) y = direct_sum(p, int(first + o + j));  // padding may have made it NaN
    v[j] = y;
  }
  if (finish_width() == 4)
    finish4(params.output_array, p.output_offset, p.addend_offset, first + o, first + at.group_out, v, params.epilogue);
  else
    finish(params.output_array, p.output_offset, p.addend_offset, first + o, v.x, params.epilogue);
}

// The sums pass through shared memory, one of an invocation's rows at a time: neighbours store neighbours, and the
// epilogue is compiled once.
void store_outputs(Place at) {
  for (uint row = 0; row < kRegM; ++row) {
    barrier();
    [[unroll]] for (uint i = 0; i < kRegM; ++i)
      if (i == row)
        [[unroll]] for (uint j = 0; j < kRegN; ++j) staged[at.thread_m * kTileN + column_of(at, j)] = sum[i][j];
    barrier();
    for (uint e = gl_LocalInvocationID.x * finish_width(); e < kThreadsM * kTileN; e += kGroupSize * finish_width()) {
      const uint m = at.tile_m + row * kThreadsM + e / kTileN, o = at.tile_n + e % kTileN;
      if (m < params.end_row && o < at.group_out) finish_outputs(at, m, o, e);
    }
  }
}

void main() {
  uint group = linear_group();
  if (group >= params.group_count) return;
  Place at;
  at.tile_n = group % params.tiles_n * kTileN;
  group /= params.tiles_n;
  at.tile_m = params.first_row + group % params.tiles_m * kTileM;
  group /= params.tiles_m;
  const uint thread = gl_LocalInvocationID.x;
  at.block = group % params.blocks;
  at.group = int(params.first_group + group / params.blocks);
  at.load_column = thread % kTileQuads;
  at.load_row = thread / kTileQuads;
  at.thread_n = thread % kThreadsN;
  at.thread_m = thread / kThreadsN;
  at.group_in = uint(params.geometry.in_channels / params.geometry.groups);
  at.group_out = uint(params.geometry.out_channels / params.geometry.groups);
  [[unroll]] for (uint i = 0; i < kLoadsA; ++i) pixels[i] = pixel_at(at.tile_m + at.load_row + i * kLoadRows);
  [[unroll]] for (uint i = 0; i < kRegM; ++i)
    [[unroll]] for (uint j = 0; j < kRegN; ++j) sum[i][j] = total[i][j] = real(0);

  const uint all_steps = ((kFlat ? (params.k_size + 3) / 4 : params.k_size) + kTileQuads - 1) / kTileQuads;
  const uint first_step = kPartialSums ? at.block * kBlockSteps : 0;
  const uint last_step = kPartialSums ? min(first_step + kBlockSteps, all_steps) : all_steps;
  fetch(at, first_step);
  for (uint step = first_step; step < last_step; ++step) {
    barrier();
    share(at);
    barrier();
    fetch(at, step + 1);  // arrives while this step is multiplied
    multiply(at);
    if (kBlocks && (step + 1) % kBlockSteps == 0) end_block();
  }
  if (kBlocks)
    [[unroll]] for (uint i = 0; i < kRegM; ++i) [[unroll]] for (uint j = 0; j < kRegN; ++j) sum[i][j] += total[i][j];
  store_outputs(at);
}
