#version 460
// variants: f16 bf16 f32
//
// Adds the sums of chunks in a fixed order: the second half of weight_grad_matrix. An invocation adds four neighbouring
// columns over a range of the chunks, kSharers invocations all of them.
#include "algorithms/weight_grad_matrix/weight_grad_matrix.glsl"

layout(constant_id = 1) const bool kStoresReal = false;  // output_dtype is the accumulator type
layout(constant_id = 2) const uint kSharers = 4;
layout(constant_id = 5) const uint kMatrixM = 16;
layout(constant_id = 6) const uint kMatrixN = 16;

const bool kInsertedZeros = false;
#include "algorithms/weight_grad/definition.glsl"

const uint kRowQuads = kMatricesN * kMatrixN / 4, kTileRows = kSubgroupsM * kFragmentsM * kMatrixM;
const uint kTileQuads = kTileTaps * kTileRows * kRowQuads;
const uint kSums = kThreads / kSharers;

shared vec4 shares[kThreads];

// NaN, which padding and the pixels beside the last may have made of infinities; of fp32 also an infinity, which scales
// may have made.
bool is_suspect(float v) {
#ifdef VARIANT_F32
  if (isinf(v)) return true;
#endif
  return isnan(v);
}

// Four neighbouring elements of a tile: input channels from `first` on under one tap.
void finish(uint64_t quad, vec4 sum) {
  const Tile at = tile_at(params.first_tile + uint(quad / kTileQuads));
  const uint within = uint(quad % kTileQuads), matrices = kChunkOctets * 8 / kMatrixN;
  const uint group_in = uint(params.geometry.in_channels / params.geometry.groups);
  const uint group_out = uint(params.geometry.out_channels / params.geometry.groups);
  const uint o = at.m * kTileRows + within / kRowQuads % kTileRows;
  const uint column = at.n * (kMatricesN * kMatrixN) + within % kRowQuads * 4;
  uint rest = column / kMatrixN;  // then the column tap
  const uint first = (at.channel_chunk * matrices + take_digit(rest, matrices)) * kMatrixN + column % kMatrixN;
  const uint taps[3] = {at.depth_tap, at.row_tap + within / kRowQuads / kTileRows, rest};
  if (o >= group_out || taps[1] >= uint(params.geometry.kernel[1]) || taps[2] >= uint(params.geometry.kernel[2])) return;
  Column source;
  source.exists = true;
  int64_t offset = at.group * params.weight_stride.group + o * params.weight_stride.out_channel;
  for (int axis = 0; axis < 3; ++axis) {
    source.offset[axis] = int(taps[axis]) * params.geometry.dilation[axis] - params.geometry.pad_lo[axis];
    offset += taps[axis] * params.weight_stride.tap[axis];
  }
  for (uint j = 0; j < 4 && first + j < group_in; ++j) {
    source.channel = at.group * group_in + first + j;
    const float v = is_suspect(sum[j]) ? gradient_sum(source, at.group * group_out + o, 0, params.pixels) : sum[j];
    const int64_t element_offset = offset + (first + j) * params.weight_stride.in_channel;
    if (kStoresReal)
      store_real(params.weight_array, element_offset, v);
    else
      store(params.weight_array, element_offset, v);
  }
}

// Chunks `first` to `end` of a quad, loaded several at once.
vec4 add_chunks(uint64_t quad, uint first, uint end, uint64_t quads) {
  const uint together = 4;
  vec4 sum = vec4(0);
  for (uint chunk = first; chunk < end; chunk += together) {
    vec4 sums[together];
    [[unroll]] for (uint i = 0; i < together; ++i)
      sums[i] = chunk + i < end ? load_real4(params.workspace, int64_t(((chunk + i) * quads + quad) * 4)) : vec4(0);
    [[unroll]] for (uint i = 0; i < together; ++i) sum += sums[i];
  }
  return sum;
}

void main() {
  const uint64_t quads = uint64_t(params.tile_count) * kTileQuads;
  const uint64_t quad = uint64_t(linear_group()) * kSums + gl_LocalInvocationID.x % kSums;
  const uint share = gl_LocalInvocationID.x / kSums, share_chunks = (params.chunks + kSharers - 1) / kSharers;
  vec4 sum = vec4(0);
  if (quad < quads) sum = add_chunks(quad, share * share_chunks, min((share + 1) * share_chunks, params.chunks), quads);
  shares[gl_LocalInvocationID.x] = sum;
  barrier();
  if (share != 0 || quad >= quads) return;
  for (uint s = 1; s < kSharers; ++s) sum += shares[s * kSums + gl_LocalInvocationID.x];
  finish(quad, sum);
}
