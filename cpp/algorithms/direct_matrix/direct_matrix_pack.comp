#version 460
// variants: f16 bf16 f32 f16_emulated bf16_emulated f32_emulated
//
// Packs weights for direct_matrix. A workgroup is one subgroup and packs one block: column by column, an octet along
// the input channels after the other, or as the invocations of a subgroup hold the matrix. Channels past the last are
// zeros, and those of other groups of the convolution where a group of the packing is several.
#include "algorithms/direct_matrix/direct_matrix.glsl"

layout(constant_id = 10) const uint kFragmentsN = 2;
layout(constant_id = 11) const uint kChunkOctets = 4;
layout(constant_id = 12) const bool kTapsAreChannels = false;  // the taps of a row are channels of the matrices

const uint kMostBlockOctets = 64;
shared uvec4 tile[kParts * kMostBlockOctets];
#include "vulkan/glsl/cooperative_matrix.glsl"

layout(local_size_x_id = 8) in;

struct Block {
  int group, tap[3];
  uint in_channel, out_channel;  // first
};

Block block_of(uint index) {
  Block b;
  const uint fragment = take_digit(index, kFragmentsN), step = take_digit(index, kChunkOctets / kOctetsK);
  b.tap[2] = int(take_digit(index, kTapsAreChannels ? 1 : uint(params.geometry.kernel[2])));
  b.tap[1] = int(take_digit(index, uint(params.geometry.kernel[1])));
  const uint chunk = take_digit(index, params.chunks);
  b.tap[0] = int(take_digit(index, uint(params.geometry.kernel[0])));
  const uint run = take_digit(index, params.runs);
  b.group = int(index);
  b.in_channel = chunk * (kChunkOctets * 8) + step * kMatrixK;
  b.out_channel = (run * kFragmentsN + fragment) * kMatrixN;
  return b;
}

// Eight input channels of one output channel; of fp32 the high parts, then the low ones.
uvec4[kParts] octets_of(Block b, uint i) {
  const uint o = b.out_channel + i / kOctetsK, first = b.in_channel + i % kOctetsK * 8;
  uvec4 octet[kParts];
  [[unroll]] for (uint part = 0; part < kParts; ++part) octet[part] = uvec4(0);
  if (o >= params.group_out) return octet;
  const uint inputs = uint(params.geometry.in_channels / params.geometry.groups);
  const uint outputs = uint(params.geometry.out_channels / params.geometry.groups), part_group = o / outputs;
  int64_t offset = (b.group * (params.group_out / outputs) + part_group) * params.weight_stride.group +
                   o % outputs * params.weight_stride.out_channel;
  for (int axis = 0; axis < 3; ++axis) offset += b.tap[axis] * params.weight_stride.tap[axis];
  for (uint c = first; c < min(first + 8, params.group_in); ++c) {
    const uint owner = c / inputs;  // column tap, or group of the convolution
    if (!kTapsAreChannels && owner != part_group) continue;
    const int64_t channel = c % inputs * params.weight_stride.in_channel +
                            (kTapsAreChannels ? owner * params.weight_stride.tap[2] : 0);
    ElementAt element_at = ElementAt(params.weight_array + uint64_t(offset + channel) * ELEMENT_BYTES);
#ifdef VARIANT_F32
    octet[(c - first) / 4][c % 4] = floatBitsToUint(element_at.value);
#else
    octet[0][(c - first) / 2] |= uint(element_at.value) << ((c & 1) * 16);
#endif
  }
#ifdef VARIANT_F32
  const uint channel = b.group * params.runs * (kFragmentsN * kMatrixN) + o;
  const float scale = inverse_of_power(load_real(params.scales_array, channel));
  uvec4 high, low;
  split_octet(octet, scale, high, low);
  octet[0] = high;
  octet[1] = low;
#endif
  return octet;
}

void main() {
  const uint index = linear_group();
  if (index >= params.groups) return;
  const Block block = block_of(index);
  const uint step = index / kFragmentsN, fragment = index - step * kFragmentsN;
  NewOctets packed[kParts];
  [[unroll]] for (uint part = 0; part < kParts; ++part)
    packed[part] = NewOctets(params.packed_array +
                             (uint64_t(step * kParts + part) * kFragmentsN + fragment) * (kBlockOctets * 16));
  for (uint i = gl_LocalInvocationIndex; i < kBlockOctets; i += kLanes) {
    const uvec4 octets[kParts] = octets_of(block, i);
    [[unroll]] for (uint part = 0; part < kParts; ++part)
      if (kLaneOctets == 0)
        packed[part].at[i] = octets[part];
      else
        tile[part * kBlockOctets + i] = octets[part];
  }
#ifndef VARIANT_EMULATED
  if (kLaneOctets == 0) return;
  subgroup_barrier();
  [[unroll]] for (uint part = 0; part < kParts; ++part) {
    MatrixB b;
    coopMatLoad(b, tile, part * kBlockOctets, kOctetsK, gl_CooperativeMatrixLayoutColumnMajor);
    [[unroll]] for (uint q = 0; q < kLaneOctets; ++q)
      packed[part].at[lane_index() * kLaneOctets + q] = octet_of_b(b, q);
  }
#endif
}
