// What the kernels of weight gradients that add up chunks read; chunk_sums.h fills it. The gradient of a group is a
// matrix: a row an output channel, a column a (tap, input channel), each element a sum over all output pixels.
#include "vulkan/glsl/types.glsl"
#include "vulkan/glsl/geometry.glsl"
#include "vulkan/glsl/weight_strides.glsl"

layout(constant_id = 0) const uint kGroupSize = 64;
layout(constant_id = 1) const bool kStoresReal = false;  // output_dtype is the accumulator type

layout(local_size_x_id = 0) in;

struct Params {
  uint64_t input_array, grad_array, weight_array;
  uint64_t workspace;  // chunk sums, (chunk, row of tiles in this pass, row, column of the matrix)
  int64_t input_stride[4], grad_stride[4];  // N D H W
  WeightStrides weight_stride;
  Geometry geometry;
  uint pixels, chunk_pixels, chunks;  // of output pixels, or of strips of them
  uint group_in, group_out;    // channels of a group
  uint columns;                // taps * input channels of a group
  uint tiles_o, tiles_k;       // of a group's matrix
  uint first_tile, tile_count;  // of all groups' tiles, those of this pass
  uint block_steps;             // of weight_grad: steps of pixels in one block of a sum
};
#include "vulkan/glsl/dispatch.glsl"

// Where a column's element of output channel 0 of the group lies.
int64_t gradient_offset(uint group, uint column) {
  int64_t offset = group * params.weight_stride.group + take_digit(column, params.group_in) * params.weight_stride.in_channel;
  [[unroll]] for (int axis = 2; axis >= 0; --axis)
    offset += take_digit(column, uint(params.geometry.kernel[axis])) * params.weight_stride.tap[axis];
  return offset;
}

void store_gradient(int64_t offset, real v) {
  if (kStoresReal)
    store_real(params.weight_array, offset, v);
  else
    store(params.weight_array, offset, v);
}
