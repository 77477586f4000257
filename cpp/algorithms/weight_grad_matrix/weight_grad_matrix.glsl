// What both kernels of weight_grad_matrix read. A tile of the gradient is one matrix for each of kTileTaps row taps: its
// rows are output channels, its columns come in kMatrixN input channels of a chunk under one column tap, tap by tap. A
// pixel tile is what shared memory holds at one time.
#include "vulkan/glsl/types.glsl"
#include "vulkan/glsl/geometry.glsl"
#include "vulkan/glsl/divisor.glsl"
#include "vulkan/glsl/weight_strides.glsl"

layout(constant_id = 0) const uint kThreads = 128;
layout(constant_id = 10) const uint kSubgroupsM = 2;
layout(constant_id = 11) const uint kSubgroupsN = 2;
layout(constant_id = 12) const uint kFragmentsM = 4;  // a subgroup sums kFragmentsM x kFragmentsN matrices
layout(constant_id = 13) const uint kFragmentsN = 2;
layout(constant_id = 14) const uint kChunkOctets = 4;  // input channels in shared memory
layout(constant_id = 15) const uint kTileTaps = 1;
layout(local_size_x_id = 0) in;

struct Params {
  uint64_t input_array, grad_array, weight_array;
  uint64_t workspace;  // sums of chunks of pixel tiles: (chunk, tile of this pass, row, column)
  int64_t input_stride[4], grad_stride[4];  // N D H W
  WeightStrides weight_stride;
  Geometry geometry;
  Divisor pitch, input_pitch;          // of output and input columns, see side_by_side.glsl
  Divisor depths;
  Divisor pixel_rows;                     // pixel tiles of the output's rows
  Divisor tiles_m, tiles_n;               // of output channels, of column taps of a chunk of channels
  Divisor tap_blocks, depth_taps;         // of row taps
  Divisor channel_chunks;                 // of input channels of a group
  uint pixels, slices;                    // of the output
  uint pixel_tiles, chunks, chunk_tiles;  // all pixel tiles, and chunks of them
  uint first_tile, tile_count;            // of all groups' tiles, those of this pass
  uint together;                          // groups of the weight that are one here
};
#include "vulkan/glsl/dispatch.glsl"

const uint kMatricesN = kSubgroupsN * kFragmentsN;  // of a tile

// A tile of the gradient: its number along the output channels and along the columns, its first row tap.
struct Tile {
  uint m, n, row_tap, depth_tap, channel_chunk, group;
};

Tile tile_at(uint index) {
  Tile t;
  t.m = take_digit(index, params.tiles_m);
  t.n = take_digit(index, params.tiles_n);
  t.row_tap = take_digit(index, params.tap_blocks) * kTileTaps;
  t.depth_tap = take_digit(index, params.depth_taps);
  t.channel_chunk = take_digit(index, params.channel_chunks);
  t.group = index;
  return t;
}
