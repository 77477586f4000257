#version 460
// variants: f32 f16 bf16 f64
//
// One invocation computes one element of the array the pass writes, with 64-bit indices: any geometry, any strides.
// Long sums run in blocks of 16 terms, 32 block sums to a group, so that rounding errors grow with those lengths.
#include "vulkan/glsl/epilogue.glsl"
#include "vulkan/glsl/weight_strides.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 5) const uint kPass = 0;  // vkconv::Pass

const int kBlockTerms = 16, kGroupTerms = 512;

struct Params {
  uint64_t input_array, weight_array, output_array;
  int64_t input_stride[4], output_stride[4];  // N D H W
  WeightStrides weight_stride;
  EpilogueParams epilogue;
  int64_t written;  // elements of the array this pass writes
  int64_t batch, groups, in_group, out_group;  // channels of a group
  int64_t input_extent[3], kernel[3], output_extent[3];
  int64_t stride[3], dilation[3], input_dilation[3], pad_lo[3];
};
#include "vulkan/glsl/dispatch.glsl"

int64_t pixel_offset(int64_t strides[4], int64_t n, int64_t i[3]) {
  return n * strides[0] + i[0] * strides[1] + i[1] * strides[2] + i[2] * strides[3];
}
int64_t weight_offset(int64_t group, int64_t o, int64_t k[3]) {
  return group * params.weight_stride.group + o * params.weight_stride.out_channel + k[0] * params.weight_stride.tap[0] +
         k[1] * params.weight_stride.tap[1] + k[2] * params.weight_stride.tap[2];
}

// Input element that tap k of output o reads; false on padding and between dilated elements.
bool input_index(int64_t o[3], int64_t k[3], out int64_t i[3]) {
  for (int a = 0; a < 3; ++a) {
    const int64_t position = o[a] * params.stride[a] + k[a] * params.dilation[a] - params.pad_lo[a];
    i[a] = position / params.input_dilation[a];
    if (position < 0 || i[a] * params.input_dilation[a] != position || i[a] >= params.input_extent[a]) return false;
  }
  return true;
}
// Output whose tap k reads input element i; false when there is none.
bool output_index(int64_t i[3], int64_t k[3], out int64_t o[3]) {
  for (int a = 0; a < 3; ++a) {
    const int64_t position = i[a] * params.input_dilation[a] + params.pad_lo[a] - k[a] * params.dilation[a];
    o[a] = position / params.stride[a];
    if (position < 0 || o[a] * params.stride[a] != position || o[a] >= params.output_extent[a]) return false;
  }
  return true;
}

// Row-major index within an extent to its coordinates; returns what is left for the axes before.
int64_t split_index(int64_t index, int64_t extent[3], out int64_t i[3]) {
  for (int a = 2; a >= 0; --a) {
    i[a] = index % extent[a];
    index /= extent[a];
  }
  return index;
}

struct Sum {
  real block, group, total;
  int terms;  // in the group
};
void add_product(inout Sum s, real a, real b) {
  s.block = fma(a, b, s.block);
  if (++s.terms % kBlockTerms != 0) return;
  s.group += s.block;
  s.block = real(0);
  if (s.terms < kGroupTerms) return;
  s.total += s.group;
  s.group = real(0);
  s.terms = 0;
}
real value(Sum s) { return s.total + (s.group + s.block); }

void forward(int64_t index) {
  const int64_t channels = params.groups * params.out_group, o = index % channels;
  int64_t at[3], k[3], i[3];
  const int64_t n = split_index(index / channels, params.output_extent, at);
  const int64_t group = o / params.out_group, within = o % params.out_group;
  Sum s = Sum(real(0), real(0), real(0), 0);
  for (k[0] = 0; k[0] < params.kernel[0]; ++k[0])
    for (k[1] = 0; k[1] < params.kernel[1]; ++k[1])
      for (k[2] = 0; k[2] < params.kernel[2]; ++k[2]) {
        if (!input_index(at, k, i)) continue;
        const int64_t x = pixel_offset(params.input_stride, n, i) + group * params.in_group, w = weight_offset(group, within, k);
        for (int64_t c = 0; c < params.in_group; ++c)
          add_product(s, load(params.input_array, x + c), load(params.weight_array, w + c * params.weight_stride.in_channel));
      }
  finish(params.output_array, pixel_offset(params.output_stride, n, at),
         pixel_offset(params.epilogue.addend_stride, n, at), uint(o), value(s), params.epilogue);
}

void store_gradient(uint64_t array, int64_t offset, real v) {
  if (kStoresReal)
    store_real(array, offset, v);
  else
    store(array, offset, v);
}

void input_grad(int64_t index) {
  const int64_t channels = params.groups * params.in_group, c = index % channels;
  int64_t at[3], k[3], o[3];
  const int64_t n = split_index(index / channels, params.input_extent, at);
  const int64_t group = c / params.in_group, within = c % params.in_group;
  Sum s = Sum(real(0), real(0), real(0), 0);
  for (k[0] = 0; k[0] < params.kernel[0]; ++k[0])
    for (k[1] = 0; k[1] < params.kernel[1]; ++k[1])
      for (k[2] = 0; k[2] < params.kernel[2]; ++k[2]) {
        if (!output_index(at, k, o)) continue;
        const int64_t y = pixel_offset(params.output_stride, n, o) + group * params.out_group;
        const int64_t w = weight_offset(group, 0, k) + within * params.weight_stride.in_channel;
        for (int64_t o = 0; o < params.out_group; ++o)
          add_product(s, load(params.output_array, y + o), load(params.weight_array, w + o * params.weight_stride.out_channel));
      }
  store_gradient(params.input_array, pixel_offset(params.input_stride, n, at) + c, value(s));
}

void weight_grad(int64_t index) {
  const int64_t c = index % params.in_group;
  int64_t k[3], at[3], i[3];
  const int64_t o = split_index(index / params.in_group, params.kernel, k);
  const int64_t group = o / params.out_group, within = o % params.out_group;
  Sum s = Sum(real(0), real(0), real(0), 0);
  for (int64_t n = 0; n < params.batch; ++n)
    for (at[0] = 0; at[0] < params.output_extent[0]; ++at[0])
      for (at[1] = 0; at[1] < params.output_extent[1]; ++at[1])
        for (at[2] = 0; at[2] < params.output_extent[2]; ++at[2])
          if (input_index(at, k, i))
            add_product(s, load(params.input_array, pixel_offset(params.input_stride, n, i) + group * params.in_group + c),
                        load(params.output_array, pixel_offset(params.output_stride, n, at) + o));
  store_gradient(params.weight_array, weight_offset(group, within, k) + c * params.weight_stride.in_channel, value(s));
}

void main() {
  const int64_t index = int64_t(linear_group()) * 64 + int64_t(gl_LocalInvocationID.x);
  if (index >= params.written) return;
  if (kPass == 0)
    forward(index);
  else if (kPass == 1)
    input_grad(index);
  else
    weight_grad(index);
}
