// The index map of a tile: one for every rank, stride and dilation. Includers have defined `Params` with input_stride,
// output_stride, epilogue, geometry and tile.

// take_digit for an index and an extent up to 1024, by a multiplication.
uint take_tile_digit(inout uint index, uint extent, uint reciprocal) {
  const uint quotient = index * reciprocal >> 20, digit = index - quotient * extent;
  index = quotient;
  return digit;
}

struct TilePlace {
  int first[4];  // output of the tile's corner: image D H W
};

// Takes a tile's place off an index of tiles and leaves the rest.
TilePlace take_tile(inout uint index) {
  TilePlace place;
  [[unroll]] for (int axis = 3; axis >= 0; --axis)
    place.first[axis] = int(take_digit(index, params.tile.counts[axis]) * params.tile.outputs[axis]);
  return place;
}

// Whether pixel e of the input tile lies in the input, and its offset.
bool find_tile_pixel(TilePlace place, uint e, out int64_t offset) {
  bool inside = true;
  offset = 0;
  [[unroll]] for (int axis = 2; axis >= 0; --axis) {
    const uint digit = take_tile_digit(e, params.tile.inputs[1 + axis], params.tile.input_reciprocal[1 + axis]);
    const int i = place.first[1 + axis] * params.geometry.stride[axis] - params.geometry.pad_lo[axis] +
                  int(digit) * params.tile.step[axis];
    inside = inside && uint(i) < uint(params.geometry.input_extent[axis]);
    offset += i * params.input_stride[1 + axis];
  }
  const int image = place.first[0] + int(e);
  offset += image * params.input_stride[0];
  return inside && image < params.geometry.batch;
}

// The pixel of the input tile that tap 0 of the tile's output m reads.
uint tile_pixel_of(uint m) {
  uint digits[4];
  if (m >= params.tile.output_count) m = 0;
  [[unroll]] for (int axis = 3; axis > 0; --axis)
    digits[axis] = take_tile_digit(m, params.tile.outputs[axis], params.tile.output_reciprocal[axis]);
  uint pixel = m;
  [[unroll]] for (int axis = 1; axis < 4; ++axis)
    pixel = pixel * params.tile.inputs[axis] + digits[axis] * uint(params.tile.stride[axis - 1]);
  return pixel;
}

// Where the tile's output m lies.
struct TileOutput {
  bool exists;
  int image, position[3];
  int64_t output_offset, addend_offset;
};

TileOutput tile_output(TilePlace place, uint m) {
  TileOutput t;
  t.exists = m < params.tile.output_count;
  t.output_offset = t.addend_offset = 0;
  [[unroll]] for (int axis = 2; axis >= 0; --axis) {
    t.position[axis] = place.first[1 + axis] + int(take_tile_digit(m, params.tile.outputs[1 + axis],
                                                                   params.tile.output_reciprocal[1 + axis]));
    t.exists = t.exists && t.position[axis] < params.geometry.output_extent[axis];
    t.output_offset += t.position[axis] * params.output_stride[1 + axis];
    t.addend_offset += t.position[axis] * params.epilogue.addend_stride[1 + axis];
  }
  t.image = place.first[0] + int(m);
  t.exists = t.exists && t.image < params.geometry.batch;
  t.output_offset += t.image * params.output_stride[0];
  t.addend_offset += t.image * params.epilogue.addend_stride[0];
  return t;
}
