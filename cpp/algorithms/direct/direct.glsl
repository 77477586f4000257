// What the kernels of `direct` read.
#include "vulkan/glsl/epilogue.glsl"
#include "vulkan/glsl/geometry.glsl"
#include "vulkan/glsl/tile_params.glsl"

struct Params {
  uint64_t input_array, output_array;
  uint64_t panels;     // weights in the order they are used, see pack_panels.comp
  uint64_t workspace;  // sums of the parts: (part, pixel, output channel)
  int64_t input_stride[4], output_stride[4];  // N D H W
  EpilogueParams epilogue;
  Geometry geometry;
  TileParams tile;
  uint tiles_n;             // of a group's output channels
  uint chunks;              // of a group's input channels
  uint parts, part_chunks;  // a long sum is cut into parts of so many chunks
  uint block_steps;         // (chunk, tap) steps whose sum joins the total
  uint group_count;         // workgroups
};
#include "vulkan/glsl/dispatch.glsl"
#include "vulkan/glsl/input_tile.glsl"

// Of an output pixel among all images.
int64_t pixel_index(int image, int position[3]) {
  int64_t index = image;
  [[unroll]] for (int axis = 0; axis < 3; ++axis) index = index * params.geometry.output_extent[axis] + position[axis];
  return index;
}
