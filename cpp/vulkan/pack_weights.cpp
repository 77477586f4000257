#include "vulkan/pack_weights.h"

#include "core/checked.h"
#include "vulkan/kernel_params.h"

namespace vkconv::vulkan {
namespace {

constexpr std::uint32_t kGroupSize = 64;

struct Params {
  Pointer source, target;
  WeightStrides source_stride, target_stride;
  std::uint32_t out_channels, kernel[3], in_channels, count;
};

}  // namespace

void pack_weights(Stream& stream, const ConvProblem& p, const WeightView<Pointer>& source,
                  const WeightView<Pointer>& target) {
  const auto narrow = [](std::int64_t v) { return static_cast<std::uint32_t>(v); };
  const Params params{source.data,
                      target.data,
                      weight_strides(source),
                      weight_strides(target),
                      narrow(p.out_channels_per_group()),
                      {narrow(p.kernel[0]), narrow(p.kernel[1]), narrow(p.kernel[2])},
                      narrow(p.in_channels_per_group()),
                      narrow(p.weight_elements())};
  stream.dispatch({shader_name("pack_weights", p.dtype), {kGroupSize}}, params,
                  stream.linear_groups(ceil_div(p.weight_elements(), kGroupSize)));
}

}  // namespace vkconv::vulkan
