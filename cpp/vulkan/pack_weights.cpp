#include "vulkan/pack_weights.h"

#include <algorithm>
#include <utility>

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

// The axes at the places of a weight's that make neighbouring invocations copy neighbours of the last axis.
WeightView<Pointer> as_weight(const StridedArray& a) {
  const auto& s = a.stride;
  return {reinterpret_cast<std::uintptr_t>(a.data), s[0], s[5], s[1], {s[2], s[3], s[4]}};
}

}  // namespace

void pack_weights(Stream& stream, const ConvProblem& p, const WeightView<Pointer>& source,
                  const WeightView<Pointer>& target) {
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

void copy(Stream& stream, const StridedArray& from, const StridedArray& to) {
  const auto& e = from.extent;
  ConvProblem p;
  p.dtype = from.element_bytes == 2 ? DType::f16 : from.element_bytes == 4 ? DType::f32 : DType::f64;
  p.groups = e[0];
  p.in_channels = e[0] * e[1];
  p.kernel = {e[2], e[3], e[4]};
  p.out_channels = e[0] * e[5];
  if (weights_support(p)) return pack_weights(stream, p, as_weight(from), as_weight(to));
  const auto longest = std::max_element(e.begin(), e.end()) - e.begin();
  for (const auto& [begin, end] : {std::pair{std::int64_t{0}, e[longest] / 2}, std::pair{e[longest] / 2, e[longest]}}) {
    StridedArray source = from, target = to;
    source.extent[longest] = target.extent[longest] = end - begin;
    const auto bytes = begin * static_cast<std::int64_t>(from.element_bytes);
    source.data += bytes * from.stride[longest];
    target.data += bytes * to.stride[longest];
    copy(stream, source, target);
  }
}

}  // namespace vkconv::vulkan
