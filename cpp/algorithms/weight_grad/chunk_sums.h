// Weight gradients whose output pixels are cut into chunks: what the kernels of weight_grad.glsl read, and the addition
// of the chunks' sums.
#pragma once
#include "vulkan/kernel_params.h"

namespace vkconv::vulkan {

struct WeightGradParams {
  Pointer input, grad, weight, workspace;
  Strides4 input_stride, grad_stride;
  WeightStrides weight_stride;
  GeometryParams geometry;
  std::uint32_t pixels, chunk_pixels, chunks, group_in, group_out, columns, tiles_o, tiles_k, first_tile, tile_count,
      block_steps;
};

// All of it but pixels, chunks and tiles.
WeightGradParams weight_grad_params(const ConvProblem& p, const Operands<Device>& a, Pointer workspace);

// Adds up the chunks of params.tile_count tiles of `o` x `k` elements each.
void add_chunks(Stream& stream, const ConvProblem& p, const WeightGradParams& params, std::uint32_t o, std::uint32_t k);

}  // namespace vkconv::vulkan
