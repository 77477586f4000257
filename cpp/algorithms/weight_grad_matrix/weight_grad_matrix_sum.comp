#version 460
// variants: f16 bf16 f32
//
// Adds the sums of chunks in a fixed order: the second half of weight_grad_matrix. An invocation adds four neighbouring
// columns over a range of the chunks, kSharers invocations all of them.
#include "algorithms/weight_grad_matrix/weight_grad_matrix.glsl"

layout(constant_id = 1) const bool kStoresReal = false;  // output_dtype is the accumulator type
layout(constant_id = 2) const uint kSharers = 4;
layout(constant_id = 3) const bool kStoresFours = false;  // of neighbouring input channels, aligned in the weight
layout(constant_id = 5) const uint kMatrixM = 16;
layout(constant_id = 6) const uint kMatrixN = 16;

const bool kInsertedZeros = false;
#include "algorithms/weight_grad/definition.glsl"

const uint kRowQuads = kMatricesN * kMatrixN / 4, kTileRows = kSubgroupsM * kFragmentsM * kMatrixM;
const uint kTileQuads = kTileTaps * kTileRows * kRowQuads;
const uint kSums = kThreads / kSharers;
const uint kTileGroups = (kTileQuads + kSums - 1) / kSums;  // workgroups

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
void finish(uint tile, uint quad, vec4 sum) {
  const Tile at = tile_at(params.first_tile + tile);
  const uint matrices = kChunkOctets * 8 / kMatrixN;
  const uint group_in = uint(params.geometry.in_channels / params.geometry.groups);
  const uint group_out = uint(params.geometry.out_channels / params.geometry.groups);
  const uint o = at.m * kTileRows + quad / kRowQuads % kTileRows;
  const uint column = at.n * (kMatricesN * kMatrixN) + quad % kRowQuads * 4;
  uint rest = column / kMatrixN;  // then the column tap
  const uint first = (at.channel_chunk * matrices + take_digit(rest, matrices)) * kMatrixN + column % kMatrixN;
  const uint taps[3] = {at.depth_tap, at.row_tap + quad / kRowQuads / kTileRows, rest};
  if (o >= group_out || taps[1] >= uint(params.geometry.kernel[1]) || taps[2] >= uint(params.geometry.kernel[2])) return;
  Column source;
  source.exists = true;
  int64_t offset = at.group * params.weight_stride.group + o * params.weight_stride.out_channel +
                   first * params.weight_stride.in_channel;
  for (int axis = 0; axis < 3; ++axis) {
    source.offset[axis] = int(taps[axis]) * params.geometry.dilation[axis] - params.geometry.pad_lo[axis];
    offset += taps[axis] * params.weight_stride.tap[axis];
  }
  const uint channels = first < group_in ? min(group_in - first, 4) : 0;
  for (uint j = 0; j < channels; ++j) {
    source.channel = at.group * group_in + first + j;
    if (is_suspect(sum[j])) sum[j] = gradient_sum(source, at.group * group_out + o, 0, params.pixels);
    const int64_t element_offset = offset + j * params.weight_stride.in_channel;
    if (kStoresFours) continue;
    if (kStoresReal)
      store_real(params.weight_array, element_offset, sum[j]);
    else
      store(params.weight_array, element_offset, sum[j]);
  }
  if (!kStoresFours || channels == 0) return;
  if (kStoresReal)
    store_real4(params.weight_array, offset, sum);
  else
    store4(params.weight_array, offset, sum);
}

// Chunks `first` to `end` of a quad, loaded several at once.
vec4 add_chunks(uint64_t quad, uint first, uint end) {
  const uint together = 4;
  const uint64_t quads = uint64_t(params.tile_count) * kTileQuads;
  uint64_t address = params.workspace + (first * quads + quad) * 16;
  vec4 sum = vec4(0);
  for (uint chunk = first; chunk < end; chunk += together) {
    vec4 sums[together];
    [[unroll]] for (uint i = 0; i < together; ++i, address += quads * 16)
      sums[i] = chunk + i < end ? load_real4(address, 0) : vec4(0);
    [[unroll]] for (uint i = 0; i < together; ++i) sum += sums[i];
  }
  return sum;
}

void main() {
  const uint group = linear_group(), tile = group / kTileGroups;
  if (tile >= params.tile_count) return;
  const uint quad = group % kTileGroups * kSums + gl_LocalInvocationID.x % kSums;
  const uint share = gl_LocalInvocationID.x / kSums, share_chunks = (params.chunks + kSharers - 1) / kSharers;
  vec4 sum = vec4(0);
  if (quad < kTileQuads) {
    const uint first = share * share_chunks;
    sum = add_chunks(uint64_t(tile) * kTileQuads + quad, first, min(first + share_chunks, params.chunks));
  }
  shares[gl_LocalInvocationID.x] = sum;
  barrier();
  if (share != 0 || quad >= kTileQuads) return;
  for (uint s = 1; s < kSharers; ++s) sum += shares[s * kSums + gl_LocalInvocationID.x];
  finish(tile, quad, sum);
}
