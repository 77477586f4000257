// A tile of neighbouring outputs (images, depths, rows, columns) and the input under it with its halo; input_tile.h
// fills it.
struct TileParams {
  uint outputs[4], inputs[4];  // extents of the tile and of its input: images D H W
  uint output_reciprocal[4], input_reciprocal[4];  // ceil(2^20 / extent)
  uint counts[4];                                  // tiles along each axis
  uint output_count, input_count;                  // products of outputs and of inputs, at most 1024
  int step[3];                 // distance of neighbours in the input tile, in positions of the input
  int stride[3], dilation[3];  // in steps
};
