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

// Channels of a group, and of one of the weight's own.
uint group_in() { return uint(params.geometry.in_channels / params.geometry.groups); }
uint group_out() { return uint(params.geometry.out_channels / params.geometry.groups); }
uint own_in() { return group_in() / params.together; }
uint own_out() { return group_out() / params.together; }

// Four neighbouring elements of a tile: of output channel o and the input channels from `first` on, under one tap. Of
// those the channels [begin, end) are of the output's own group, `own` of those that are together.
struct Place {
  Tile at;
  uint o, own, first, begin, end, taps[3];
};

Place place_of(uint tile, uint quad) {
  Place place;
  place.at = tile_at(params.first_tile + tile);
  const uint matrices = kChunkOctets * 8 / kMatrixN;
  place.o = place.at.m * kTileRows + quad / kRowQuads % kTileRows;
  place.own = place.o / own_out();
  const uint column = place.at.n * (kMatricesN * kMatrixN) + quad % kRowQuads * 4;
  uint rest = column / kMatrixN;  // then the column tap
  place.first = (place.at.channel_chunk * matrices + take_digit(rest, matrices)) * kMatrixN + column % kMatrixN;
  place.taps = uint[](place.at.depth_tap, place.at.row_tap + quad / kRowQuads / kTileRows, rest);
  const bool exists = place.o < group_out() && place.taps[1] < uint(params.geometry.kernel[1]) &&
                      place.taps[2] < uint(params.geometry.kernel[2]);
  place.begin = max(place.first, place.own * own_in());
  place.end = exists ? min(place.first + 4, (place.own + 1) * own_in()) : 0;
  return place;
}

void finish(Place place, vec4 sum) {
  Column source;
  source.exists = true;
  int64_t offset = (place.at.group * params.together + place.own) * params.weight_stride.group +
                   place.o % own_out() * params.weight_stride.out_channel;
  for (int axis = 0; axis < 3; ++axis) {
    source.offset[axis] = int(place.taps[axis]) * params.geometry.dilation[axis] - params.geometry.pad_lo[axis];
    offset += place.taps[axis] * params.weight_stride.tap[axis];
  }
  for (uint c = place.begin; c < place.end; ++c) {
    const uint j = c - place.first;
    source.channel = place.at.group * group_in() + c;
    if (is_suspect(sum[j])) sum[j] = gradient_sum(source, place.at.group * group_out() + place.o, 0, params.pixels);
    const int64_t element_offset = offset + (c - place.own * own_in()) * params.weight_stride.in_channel;
    if (kStoresFours) continue;
    if (kStoresReal)
      store_real(params.weight_array, element_offset, sum[j]);
    else
      store(params.weight_array, element_offset, sum[j]);
  }
  if (!kStoresFours) return;
  offset += place.first - place.own * own_in();
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
  const Place place = place_of(tile, quad);
  const bool wanted = quad < kTileQuads && place.begin < place.end;
  vec4 sum = vec4(0);
  if (wanted) {
    const uint first = share * share_chunks;
    sum = add_chunks(uint64_t(tile) * kTileQuads + quad, first, min(first + share_chunks, params.chunks));
  }
  shares[gl_LocalInvocationID.x] = sum;
  barrier();
  if (share != 0 || !wanted) return;
  for (uint s = 1; s < kSharers; ++s) sum += shares[s * kSums + gl_LocalInvocationID.x];
  finish(place, sum);
}
