// What the kernels of winograd read, and the one-dimensional transforms F(kOutputs, 3) of winograd_points.h: values at
// +p, -p of each pair of points, then at zero, then at infinity. Tiles are numbered (depth, row of tiles, column of
// tiles), rows of tiles through all images; a call covers some rows. Transforms compute in fp32. Transformed inputs and
// products are fp32, or elements like the input, a tile's points beside each other: (depth, row, column, point, channel).
#include "vulkan/glsl/epilogue.glsl"
#include "vulkan/glsl/geometry.glsl"
#include "vulkan/glsl/weight_strides.glsl"

layout(constant_id = 5) const uint kGroupSize = 64;
layout(constant_id = 6) const uint kOutputs = 4;  // of a tile along each axis: 2 or 4
layout(constant_id = 7) const float kPoint = 0.625;
layout(constant_id = 8) const float kSecondPoint = 1.5;  // for 4 outputs
layout(constant_id = 9) const bool kInputFours = false;     // input aligned to four channels
// Outputs that are not finite are computed again by winograd_repair, on devices that bound the loops of an invocation.
layout(constant_id = 10) const bool kRepairsLater = false;
// Of an invocation, 4 or 1: one leaves a GPU registers to hide its loads behind, four are fewer loads where each lane's
// costs, and 8 bytes of 16-bit points. Components past the first of one channel are zero, which compilers remove.
layout(constant_id = 11) const uint kChannels = 4;
layout(constant_id = 12) const bool kPointFours = false;    // input channels are fours
layout(constant_id = 13) const bool kProductFours = false;  // output channels are
layout(constant_id = 14) const bool kRealPoints = true;     // else points are elements

layout(local_size_x_id = 5) in;

const uint kPoints = kOutputs + 2, kMostPoints = 6;

struct Params {
  uint64_t input_array, weight_array, output_array;
  uint64_t points_array, products_array, weight_points_array;  // of these tiles and of the weights, transformed
  uint64_t masks_array;  // of these tiles, a 32-bit word for kChannels channels: which outputs winograd_repair computes
  int64_t input_stride[4], output_stride[4];  // N D H W
  WeightStrides weight_stride;
  EpilogueParams epilogue;
  Geometry geometry;
  uint tiles_h, tiles_w;     // of an image
  uint first_row, row_count;  // rows of tiles of this call
  uint count;                // invocations
};
#include "vulkan/glsl/dispatch.glsl"
#include "vulkan/glsl/direct_sum.glsl"

layout(buffer_reference, scalar, buffer_reference_align = 4) buffer MaskAt { uint value; };

real load_point(uint64_t array, int64_t offset) { return kRealPoints ? load_real(array, offset) : load(array, offset); }
real4 load_point4(uint64_t array, int64_t offset) {
  return kRealPoints ? load_real4(array, offset) : load4(array, offset);
}
void store_point(uint64_t array, int64_t offset, real v) {
  if (kRealPoints)
    store_real(array, offset, v);
  else
    store(array, offset, v);
}
void store_point4(uint64_t array, int64_t offset, real4 v) {
  if (kRealPoints)
    store_real4(array, offset, v);
  else
    store4(array, offset, v);
}

struct Tile {
  int image, depth, h, w;  // of its first output
  int64_t pixel;           // number of the tile in this call
};

// Takes the tile off an index of (depth, row of this call, column).
Tile take_tile(uint index) {
  Tile t;
  t.pixel = index;
  t.w = int(take_digit(index, params.tiles_w) * kOutputs);
  uint row = params.first_row + take_digit(index, params.row_count);
  t.h = int(take_digit(row, params.tiles_h) * kOutputs);
  t.image = int(row);
  t.depth = int(index);
  return t;
}

// Takes the first of an invocation's channels off an index of them.
uint take_channel(inout uint index, int channels) {
  return take_digit(index, (uint(channels) + kChannels - 1) / kChannels) * kChannels;
}

// Where a tile's word for the channels from c on lies.
MaskAt mask_at(Tile t, uint c) {
  const uint words = (uint(params.geometry.out_channels) + kChannels - 1) / kChannels;
  return MaskAt(params.masks_array + uint64_t(t.pixel * words + c / kChannels) * 4);
}

// The outputs in the mask of kChannels of a tile by definition: the transforms carry a number that is not finite, or one
// so large that they overflow, to every output of its tile.
void repair(Tile t, uint c, uint mask) {
  const uint channels = min(kChannels, uint(params.geometry.out_channels) - c);
  while (mask != 0) {
    const int bit = findLSB(mask);
    mask &= mask - 1;
    const int h = t.h + bit / int(kOutputs), w = t.w + bit % int(kOutputs);
    const int64_t output_offset = t.image * params.output_stride[0] + t.depth * params.output_stride[1] +
                                  h * params.output_stride[2] + w * params.output_stride[3];
    const int64_t addend_offset = t.image * params.epilogue.addend_stride[0] + t.depth * params.epilogue.addend_stride[1] +
                                  h * params.epilogue.addend_stride[2] + w * params.epilogue.addend_stride[3];
    for (uint o = c; o < c + channels; ++o)
      finish(params.output_array, output_offset, addend_offset, o, direct_sum(t.image, t.depth, h, w, int(o)),
             params.epilogue);
  }
}

void input_to_points(inout vec4 x[kMostPoints]) {
  const float square = kPoint * kPoint, second_square = kSecondPoint * kSecondPoint;
  if (kOutputs == 2) {
    const vec4 odd = kPoint * x[1], zero = x[2] - square * x[0], infinity = x[3] - square * x[1];
    x[0] = x[2] + odd;
    x[1] = x[2] - odd;
    x[2] = zero;
    x[3] = infinity;
    return;
  }
  const vec4 even = x[4] - second_square * x[2], odd = kPoint * (x[3] - second_square * x[1]);
  const vec4 second_even = x[4] - square * x[2], second_odd = kSecondPoint * (x[3] - square * x[1]);
  const float sum = square + second_square, product = square * second_square;
  const vec4 zero = x[4] - sum * x[2] + product * x[0], infinity = x[5] - sum * x[3] + product * x[1];
  x[0] = even + odd;
  x[1] = even - odd;
  x[2] = second_even + second_odd;
  x[3] = second_even - second_odd;
  x[4] = zero;
  x[5] = infinity;
}

void points_to_output(inout vec4 x[kMostPoints]) {
  const float square = kPoint * kPoint, second_square = kSecondPoint * kSecondPoint;
  const vec4 even = x[0] + x[1], odd = kPoint * (x[0] - x[1]);
  if (kOutputs == 2) {
    const vec4 infinity = x[3];
    x[0] = even + x[2];
    x[1] = odd + infinity;
    return;
  }
  const vec4 second_even = x[2] + x[3], second_odd = kSecondPoint * (x[2] - x[3]), infinity = x[5];
  x[0] = even + second_even + x[4];
  x[1] = odd + second_odd;
  x[2] = square * even + second_square * second_even;
  x[3] = square * odd + second_square * second_odd + infinity;
}

// Three taps in w[0] to w[2]. Each point's value is divided by the product of its distances from the other points.
void weight_to_points(inout float w[kMostPoints]) {
  const float square = kPoint * kPoint, second_square = kSecondPoint * kSecondPoint;
  const float odd = kPoint * w[1], first = w[0], last = w[2];
  if (kOutputs == 2) {
    const float even = first + square * last, scale = 1 / (2 * square);
    w[0] = scale * (even + odd);
    w[1] = scale * (even - odd);
    w[2] = -first / square;
    w[3] = last;
    return;
  }
  const float second_odd = kSecondPoint * w[1];
  const float even = first + square * last, second_even = first + second_square * last;
  const float scale = 1 / (2 * square * (square - second_square));
  const float second_scale = 1 / (2 * second_square * (second_square - square));
  w[0] = scale * (even + odd);
  w[1] = scale * (even - odd);
  w[2] = second_scale * (second_even + second_odd);
  w[3] = second_scale * (second_even - second_odd);
  w[4] = first / (square * second_square);
  w[5] = last;
}
