// The parameters of direct_matrix, and the order of the packed weights: per group, per run of kFragmentsN * kMatrixN
// output channels, per step of the sum (depth tap, chunk of input channels, row tap, column tap, kMatrixK channels of
// the chunk), one block of kMatrixK x kMatrixN weights for every kMatrixN output channels; of fp32 the high parts of all
// of them, then the low ones.
#ifndef VARIANT_EMULATED
#define HARDWARE_ROUNDS_HALVES  // devices with matrices of halves convert to the nearest, ties to even
#endif
#include "vulkan/glsl/epilogue.glsl"
#include "vulkan/glsl/geometry.glsl"
#include "vulkan/glsl/side_by_side.glsl"
#include "vulkan/glsl/weight_strides.glsl"

struct Params {
  uint64_t input_array, weight_array, output_array, packed_array;
  uint64_t input_lowest;  // lowest address of the input; its first element lies `input_origin` elements above
  int64_t input_origin;
  uint64_t scales_array;  // of fp32: what the sums of each output channel are multiplied by
  int64_t input_stride[4], output_stride[4];
  WeightStrides weight_stride;
  EpilogueParams epilogue;
  Geometry geometry;
  Divisor pitch, input_pitch;              // of output and input columns, see side_by_side.glsl
  Divisor depths;                          // of the output
  Divisor tiles_x, tiles_y, tiles_o;       // workgroups: of the output's columns, rows and channels of a group
  Divisor shares;                          // of a sum that workgroups share
  uint groups, slices;                     // all workgroups
  uint group_in, group_out;                // channels of a group
  uint chunks, runs, share_stages;         // of input and of output channels of a group; stages of a share
  uint64_t sums_array;                     // of shares: each the sums of a contiguous output
  int64_t share_elements;
};
#include "vulkan/glsl/dispatch.glsl"
#include "vulkan/glsl/direct_sum.glsl"

#ifdef VARIANT_F32
#include "algorithms/direct_matrix/split.glsl"
const uint kParts = 2;
#else
const uint kParts = 1;
#endif
