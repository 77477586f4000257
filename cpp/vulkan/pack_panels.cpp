#include "vulkan/pack_panels.h"

#include "core/checked.h"
#include "vulkan/kernel_params.h"

namespace vkconv::vulkan {
namespace {

constexpr std::uint32_t kGroupSize = 64;

struct Params {
  Pointer source, target;
  WeightStrides stride;
  std::uint32_t out_channels, in_channels, kernel[3];
  std::uint32_t panel_width, panels, chunk_channels, chunks;
  std::uint32_t count;
};

}  // namespace

Panels::Panels(const ConvProblem& p, std::int64_t panel_width, std::int64_t channels_of_chunk)
    : width(panel_width),
      chunk_channels(channels_of_chunk),
      count(ceil_div(p.out_channels_per_group(), panel_width)),
      chunks(ceil_div(p.in_channels_per_group(), channels_of_chunk)) {}

std::int64_t Panels::elements(const ConvProblem& p) const {
  const std::int64_t panel = checked_mul(checked_mul(chunks * chunk_channels, width), p.taps());
  return checked_mul(checked_mul(panel, count), p.groups);
}

std::size_t Panels::bytes(const ConvProblem& p) const {
  return static_cast<std::size_t>(elements(p)) * size_bytes(accumulator(p.dtype));
}

bool supports_panels(const ConvProblem& p, const Panels& panels) { return panels.elements(p) < std::int64_t{1} << 32; }

void pack_panels(Stream& stream, const ConvProblem& p, const Panels& panels, const WeightView<Pointer>& weight,
                 Pointer target) {
  const std::int64_t fours = panels.elements(p) / 4;
  const Params params{weight.data,
                      target,
                      weight_strides(weight),
                      narrow(p.out_channels_per_group()),
                      narrow(p.in_channels_per_group()),
                      {narrow(p.kernel[0]), narrow(p.kernel[1]), narrow(p.kernel[2])},
                      narrow(panels.width),
                      narrow(panels.count),
                      narrow(panels.chunk_channels),
                      narrow(panels.chunks),
                      narrow(fours)};
  stream.dispatch({shader_name("pack_panels", p.dtype), {kGroupSize}}, params,
                  stream.linear_groups(ceil_div(fours, kGroupSize)));
}

Pointer packed_panels(Stream& stream, const ConvProblem& p, const Panels& panels, const Operands<Device>& operands,
                      Pointer workspace) {
  if (operands.prepared) return operands.prepared->data;
  pack_panels(stream, p, panels, operands.weight, workspace);
  return workspace;
}

}  // namespace vkconv::vulkan
