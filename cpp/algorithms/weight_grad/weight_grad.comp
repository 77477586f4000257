#version 460
// variants: f32 f16 bf16 f64
//
// A workgroup sums one tile of the gradient over one chunk of the output pixels. Of kStep pixels it holds the output
// gradients of kTileO channels and the inputs under kTileK columns in shared memory; an invocation multiplies
// kRegO x kRegK of them in registers. Sums run over blocks of some kStep pixels, whose sums are added in order.
#include "algorithms/weight_grad/weight_grad.glsl"

layout(constant_id = 2) const uint kTileO = 64;
layout(constant_id = 3) const uint kTileK = 64;
layout(constant_id = 4) const uint kRegO = 8;
layout(constant_id = 5) const uint kRegK = 8;
layout(constant_id = 6) const uint kStep = 16;
layout(constant_id = 7) const bool kFlat = false;       // channels a group are no multiple of 4: fours straddle taps
layout(constant_id = 8) const bool kInputFours = false;  // input aligned to four channels
layout(constant_id = 9) const bool kGradFours = false;   // output gradient aligned to four channels
layout(constant_id = 10) const bool kPadded = false;     // some tap of some output reads padding
layout(constant_id = 11) const bool kChunks = false;     // chunk sums go to the workspace
layout(constant_id = 12) const bool kInsertedZeros = false;

const uint kFoursO = kTileO / 4, kFoursK = kTileK / 4;  // divide kGroupSize
const uint kThreadsK = kTileK / kRegK, kThreadsO = kTileO / kRegO;
const uint kLoadRowsO = kGroupSize / kFoursO, kLoadRowsK = kGroupSize / kFoursK;
const uint kLoadsO = (kStep + kLoadRowsO - 1) / kLoadRowsO, kLoadsK = (kStep + kLoadRowsK - 1) / kLoadRowsK;

shared packed_real4 tile_grad[kStep * kFoursO];
shared packed_real4 tile_input[kStep * kFoursK];

#include "algorithms/weight_grad/definition.glsl"

Column column_at(uint column, uint group) {
  Column c;
  c.exists = column < params.columns;
  c.channel = group * params.group_in + take_digit(column, params.group_in);
  [[unroll]] for (int axis = 2; axis >= 0; --axis) {
    const int k = int(take_digit(column, uint(params.geometry.kernel[axis])));
    c.offset[axis] = k * params.geometry.dilation[axis] - params.geometry.pad_lo[axis];
  }
  return c;
}

struct Place {
  uint group, tile_o, tile_k;  // group of the convolution; first row and column of the tile
  uint thread, thread_o, thread_k;
  uint end;  // of the chunk's pixels
};

Column columns[4];  // that this invocation loads; the first stands for all where they lie in one tap
real sum[kRegO][kRegK], total[kRegO][kRegK];

real4 load_input(Pixel p) {
  real4 v = real4(0);
  int64_t offset;
  if (kFlat) {
    [[unroll]] for (uint j = 0; j < 4; ++j)
      if (find_input(p, columns[j], offset)) v[j] = load(params.input_array, offset);
  } else if (find_input(p, columns[0], offset)) {
    if (kInputFours) return load4(params.input_array, offset);
    [[unroll]] for (uint j = 0; j < 4; ++j) v[j] = load(params.input_array, offset + j);
  }
  return v;
}

real4 load_grad(Place at, Pixel p, uint o) {
  real4 v = real4(0);
  if (!p.exists) return v;
  const int64_t offset = grad_offset(p) + at.group * params.group_out + o;
  if (kGradFours) {
    if (o < params.group_out) v = load4(params.grad_array, offset);
    return v;
  }
  [[unroll]] for (uint j = 0; j < 4; ++j)
    if (o + j < params.group_out) v[j] = load(params.grad_array, offset + j);
  return v;
}

void share(Place at, uint first_pixel) {
  [[unroll]] for (uint i = 0; i < kLoadsO; ++i) {
    const uint row = at.thread / kFoursO + i * kLoadRowsO, four = at.thread % kFoursO;
    if (row < kStep) tile_grad[row * kFoursO + four] = pack4(load_grad(at, pixel_at(first_pixel + row, at.end), at.tile_o + four * 4));
  }
  [[unroll]] for (uint i = 0; i < kLoadsK; ++i) {
    const uint row = at.thread / kFoursK + i * kLoadRowsK;
    if (row < kStep) tile_input[row * kFoursK + at.thread % kFoursK] = pack4(load_input(pixel_at(first_pixel + row, at.end)));
  }
}

// Rows and columns of an invocation lie four by four, so that its neighbours read neighbouring fours.
uint row_of(Place at, uint i) { return (i / 4 * kThreadsO + at.thread_o) * 4 + i % 4; }
uint column_of(Place at, uint j) { return (j / 4 * kThreadsK + at.thread_k) * 4 + j % 4; }

void multiply(Place at) {
  for (uint row = 0; row < kStep; ++row) {
    [[unroll]] for (uint i = 0; i < kRegO; i += 4) {
      const real4 a = unpack4(tile_grad[row * kFoursO + i / 4 * kThreadsO + at.thread_o]);
      [[unroll]] for (uint j = 0; j < kRegK; j += 4) {
        const real4 b = unpack4(tile_input[row * kFoursK + j / 4 * kThreadsK + at.thread_k]);
        [[unroll]] for (uint l = 0; l < 16; ++l) sum[i + l / 4][j + l % 4] = fma(a[l / 4], b[l % 4], sum[i + l / 4][j + l % 4]);
      }
    }
  }
}

void end_block() {
  [[unroll]] for (uint i = 0; i < kRegO; ++i)
    [[unroll]] for (uint j = 0; j < kRegK; ++j) total[i][j] += sum[i][j], sum[i][j] = real(0);
}

// Sums that padding may have made NaN.
void repair(Place at, uint begin) {
  bool any = false;
  [[unroll]] for (uint i = 0; i < kRegO; ++i) [[unroll]] for (uint j = 0; j < kRegK; ++j) any = any || isnan(total[i][j]);
  if (!any) return;
  for (uint e = 0; e < kRegO * kRegK; ++e) {
    const uint o = at.tile_o + row_of(at, e / kRegK), column = at.tile_k + column_of(at, e % kRegK);
    if (o >= params.group_out || column >= params.columns) continue;
    const real direct = gradient_sum(column_at(column, at.group), at.group * params.group_out + o, begin, at.end);
    [[unroll]] for (uint i = 0; i < kRegO; ++i)
      [[unroll]] for (uint j = 0; j < kRegK; ++j)
        if (e == i * kRegK + j && isnan(total[i][j])) total[i][j] = direct;
  }
}

void store_chunk(Place at, uint64_t tile_sums) {
  [[unroll]] for (uint i = 0; i < kRegO; ++i)
    [[unroll]] for (uint j = 0; j < kRegK; j += 4) {
      const real4 four = real4(total[i][j], total[i][j + 1], total[i][j + 2], total[i][j + 3]);
      store_real4(tile_sums, int64_t(row_of(at, i) * kTileK + column_of(at, j)), four);
    }
}

void store_tile(Place at) {
  [[unroll]] for (uint j = 0; j < kRegK; ++j) {
    const uint column = at.tile_k + column_of(at, j);
    if (column >= params.columns) continue;
    const int64_t offset = gradient_offset(at.group, column);
    [[unroll]] for (uint i = 0; i < kRegO; ++i) {
      const uint o = at.tile_o + row_of(at, i);
      if (o < params.group_out) store_gradient(offset + o * params.weight_stride.out_channel, total[i][j]);
    }
  }
}

void main() {
  const uint index = linear_group();
  if (index >= params.tile_count * params.chunks) return;
  const uint local_tile = index % params.tile_count, chunk = index / params.tile_count;
  const uint tile = params.first_tile + local_tile;
  Place at;
  at.tile_k = tile % params.tiles_k * kTileK;
  at.tile_o = tile / params.tiles_k % params.tiles_o * kTileO;
  at.group = tile / params.tiles_k / params.tiles_o;
  at.thread = gl_LocalInvocationID.x;
  at.thread_k = at.thread % kThreadsK;
  at.thread_o = at.thread / kThreadsK;
  const uint begin = chunk * params.chunk_pixels;
  at.end = min(begin + params.chunk_pixels, params.pixels);
  [[unroll]] for (uint j = 0; j < 4; ++j)
    if (j == 0 || kFlat) columns[j] = column_at(at.tile_k + at.thread % kFoursK * 4 + j, at.group);
  [[unroll]] for (uint i = 0; i < kRegO; ++i)
    [[unroll]] for (uint j = 0; j < kRegK; ++j) sum[i][j] = total[i][j] = real(0);

  uint steps = 0;
  for (uint first = begin; first < at.end; first += kStep) {
    barrier();
    share(at, first);
    barrier();
    multiply(at);
    if (++steps % params.block_steps == 0) end_block();
  }
  end_block();
  if (kPadded) repair(at, begin);
  if (!kChunks) {
    store_tile(at);
    return;
  }
  const uint64_t tile_bytes = kTileO * kTileK * REAL_BYTES;
  store_chunk(at, params.workspace + (uint64_t(chunk) * params.tile_count + local_tile) * tile_bytes);
}
