#include "algorithms/weight_grad/chunk_sums.h"

#include "core/checked.h"

namespace vkconv::vulkan {
namespace {

constexpr std::uint32_t kGroupSize = 64;

}  // namespace

WeightGradParams weight_grad_params(const ConvProblem& p, const Operands<Device>& a, Pointer workspace) {
  WeightGradParams params{};
  params.input = a.input.data;
  params.grad = a.output.data;
  params.weight = a.weight.data;
  params.workspace = workspace;
  params.input_stride = pixel_strides(a.input);
  params.grad_stride = pixel_strides(a.output);
  params.weight_stride = weight_strides(a.weight);
  params.geometry = geometry_params(p);
  params.group_in = narrow(p.in_channels_per_group());
  params.group_out = narrow(p.out_channels_per_group());
  params.columns = narrow(p.taps() * p.in_channels_per_group());
  return params;
}

void add_chunks(Stream& stream, const ConvProblem& p, const WeightGradParams& params, std::uint32_t o,
                std::uint32_t k) {
  const std::int64_t elements = std::int64_t{params.tile_count} * o * k;
  const std::uint32_t stores_real = p.output_dtype != p.dtype;
  stream.dispatch({shader_name("weight_grad_sum", p.dtype), {kGroupSize, stores_real, o, k}}, params,
                  stream.linear_groups(ceil_div(elements, kGroupSize)));
}

}  // namespace vkconv::vulkan
