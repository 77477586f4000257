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
#include "vulkan/glsl/output_pixel.glsl"
