// What the kernels of implicit_gemm and unfold_gemm read.
#include "vulkan/glsl/epilogue.glsl"
#include "vulkan/glsl/geometry.glsl"
#include "vulkan/glsl/weight_strides.glsl"

struct Params {
  uint64_t input_array, weight_array, output_array;
  uint64_t workspace;  // block sums, (block, pixel, output channel)
  int64_t input_stride[4], output_stride[4];  // N D H W
  WeightStrides weight_stride;
  EpilogueParams epilogue;
  Geometry geometry;
  uint64_t unfolded_array;  // rows of A of some pixels and groups, when they were unfolded into memory
  int64_t unfolded_row, unfolded_group;
  uint pixels;    // of all images: rows of A
  uint k_size;    // columns of A: fours, or single values when no four lies in one tap
  uint tiles_n, tiles_m, blocks;
  uint group_count;  // workgroups
  uint first_row, end_row, first_group;  // rows of A and group of the convolution that this dispatch computes
};
#include "vulkan/glsl/dispatch.glsl"
#include "vulkan/glsl/direct_sum.glsl"

// Where output pixel m lies.
struct OutputPixel {
  int image, position[3];
  int64_t output_offset, addend_offset;
};

OutputPixel output_pixel(uint m) {
  OutputPixel p;
  p.output_offset = p.addend_offset = 0;
  [[unroll]] for (int axis = 2; axis >= 0; --axis) {
    p.position[axis] = int(take_digit(m, uint(params.geometry.output_extent[axis])));
    p.output_offset += p.position[axis] * params.output_stride[1 + axis];
    p.addend_offset += p.position[axis] * params.epilogue.addend_stride[1 + axis];
  }
  p.image = int(m);
  p.output_offset += p.image * params.output_stride[0];
  p.addend_offset += p.image * params.epilogue.addend_stride[0];
  return p;
}

real direct_sum(OutputPixel p, int o) { return direct_sum(p.image, p.position[0], p.position[1], p.position[2], o); }
