// One element of the gradient by the definition: the products of every output pixel's gradient by the input its tap
// reads, skipping padding. The tiled kernels read padding as zeros, and 0 * infinity is NaN: they compute a sum that came
// out as NaN again. Includers have defined kInsertedZeros, and Params with input_array, grad_array, input_stride,
// grad_stride and geometry.

struct Pixel {
  bool exists;
  int image, position[3];
};

Pixel pixel_at(uint m, uint end) {
  Pixel p;
  p.exists = m < end;
  [[unroll]] for (int axis = 2; axis >= 0; --axis)
    p.position[axis] = int(take_digit(m, uint(params.geometry.output_extent[axis])));
  p.image = int(m);
  return p;
}

// What a column of the gradient's matrix multiplies: an input channel under a tap.
struct Column {
  bool exists;
  int offset[3];  // of the tap: k * dilation - pad_lo
  uint channel;   // of the input
};

bool find_input(Pixel p, Column c, out int64_t offset) {
  bool inside = p.exists && c.exists;
  offset = p.image * params.input_stride[0] + c.channel;
  [[unroll]] for (int axis = 0; axis < 3; ++axis) {
    int i = p.position[axis] * params.geometry.stride[axis] + c.offset[axis];
    const int extent = params.geometry.input_extent[axis];
    if (kInsertedZeros) i = input_index(i, extent, params.geometry.input_dilation[axis]);
    inside = inside && uint(i) < uint(extent);
    offset += i * params.input_stride[1 + axis];
  }
  return inside;
}

int64_t grad_offset(Pixel p) {
  return p.image * params.grad_stride[0] + p.position[0] * params.grad_stride[1] +
         p.position[1] * params.grad_stride[2] + p.position[2] * params.grad_stride[3];
}

// Over the output pixels from `begin` to `end`.
real gradient_sum(Column c, uint out_channel, uint begin, uint end) {
  const uint block_terms = 256;
  real sum = real(0), block = real(0);
  for (uint m = begin; m < end && !isnan(sum); ++m) {
    const Pixel p = pixel_at(m, end);
    int64_t offset;
    if (find_input(p, c, offset))
      block = fma(load(params.grad_array, grad_offset(p) + out_channel), load(params.input_array, offset), block);
    if ((m - begin) % block_terms == block_terms - 1) sum += block, block = real(0);
  }
  return sum + block;
}
