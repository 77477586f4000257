// The index map of the unfolded matrix A: what its rows (output pixels) and columns (taps and input channels) read.
#include "algorithms/implicit_gemm/implicit_gemm.glsl"

layout(constant_id = 11) const bool kFlat = false;        // channels a group are no multiple of 4: k counts single values
layout(constant_id = 12) const bool kInputFours = false;  // input aligned to four channels
layout(constant_id = 14) const bool kInsertedZeros = false;
layout(constant_id = 15) const bool kPadded = false;      // some tap of some output reads padding

struct Tap {
  bool exists;
  int position[3];  // of the tap relative to that of tap 0
  int64_t input_offset, weight_offset;
};

// What column k of the matrices stands for.
Tap tap_at(uint k, uint width) {
  Tap t;
  t.exists = k < params.k_size;
  uint tap = k;
  const uint channel = take_digit(tap, width) * (kFlat ? 1 : 4);
  t.input_offset = channel;
  t.weight_offset = channel * params.weight_stride.in_channel;
  [[unroll]] for (int axis = 2; axis >= 0; --axis) {
    const int index = int(take_digit(tap, uint(params.geometry.kernel[axis])));
    t.position[axis] = index * params.geometry.dilation[axis];
    t.input_offset += t.position[axis] * params.input_stride[1 + axis];
    t.weight_offset += index * params.weight_stride.tap[axis];
  }
  return t;
}

struct Pixel {
  bool exists;
  int position[3];  // of tap 0
  int64_t image;    // offset of the image
  int64_t origin;   // offset of tap 0
};

Pixel pixel_at(uint m) {
  Pixel p;
  p.exists = m < params.end_row;
  p.origin = 0;
  [[unroll]] for (int axis = 2; axis >= 0; --axis) {
    const int index = int(take_digit(m, uint(params.geometry.output_extent[axis])));
    p.position[axis] = index * params.geometry.stride[axis] - params.geometry.pad_lo[axis];
    p.origin += p.position[axis] * params.input_stride[1 + axis];
  }
  p.image = m * params.input_stride[0];
  p.origin += p.image;
  return p;
}

// Whether a tap reads an element of the input, and its offset.
bool find_input(Pixel p, Tap t, out int64_t offset) {
  bool inside = p.exists && t.exists;
  offset = p.origin + t.input_offset;
  if (kInsertedZeros) {
    offset = p.image + t.input_offset;
    [[unroll]] for (int axis = 0; axis < 3; ++axis) {
      const int i = input_index(p.position[axis] + t.position[axis], params.geometry.input_extent[axis],
                                params.geometry.input_dilation[axis]);
      inside = inside && i >= 0;
      offset += (i - t.position[axis]) * params.input_stride[1 + axis];
    }
  } else if (kPadded) {
    [[unroll]] for (int axis = 0; axis < 3; ++axis)
      inside = inside && uint(p.position[axis] + t.position[axis]) < uint(params.geometry.input_extent[axis]);
  }
  return inside;
}

// Four values of a row along k, zeros where there is nothing to read; taps[0] stands for all when they lie in one tap.
real4 gather(Pixel p, Tap taps[4], int64_t group_offset) {
  real4 v = real4(0);
  int64_t offset;
  if (kFlat) {
    [[unroll]] for (uint j = 0; j < 4; ++j)
      if (find_input(p, taps[j], offset)) v[j] = load(params.input_array, group_offset + offset);
  } else if (find_input(p, taps[0], offset)) {
    if (kInputFours) return load4(params.input_array, group_offset + offset);
    [[unroll]] for (uint j = 0; j < 4; ++j) v[j] = load(params.input_array, group_offset + offset + j);
  }
  return v;
}
