#include "vulkan/input_tile.h"

#include <numeric>

#include "core/checked.h"

namespace vkconv::vulkan {
namespace {

// Along one axis, in positions of the dilated input. A single tap has any dilation: the stride is the best one.
struct AxisSteps {
  std::int64_t step, stride, dilation;
};

AxisSteps axis_steps(const ConvProblem& p, int axis) {
  const std::int64_t dilation = p.kernel[axis] > 1 ? p.dilation[axis] : p.stride[axis];
  const std::int64_t step = std::gcd(p.stride[axis], dilation);
  return {step, p.stride[axis] / step, dilation / step};
}

std::uint32_t reciprocal(std::uint32_t extent) { return ((1u << 20) + extent - 1) / extent; }

}  // namespace

InputReach input_reach(const ConvProblem& p, int axis) {
  const AxisSteps s = axis_steps(p, axis);
  return {(p.kernel[axis] - 1) * s.dilation + 1, s.stride};
}

std::int64_t tile_count(const ConvProblem& p, const Tile4& outputs) {
  std::int64_t count = ceil_div(p.batch, outputs[0]);
  for (int a = 0; a < 3; ++a) count = checked_mul(count, ceil_div(p.output[a], outputs[1 + a]));
  return count;
}

TileParams tile_params(const ConvProblem& p, const Tile4& outputs) {
  const auto narrow = [](std::int64_t v) { return static_cast<std::int32_t>(v); };
  TileParams t{};
  t.outputs = t.inputs = outputs;
  t.counts[0] = static_cast<std::uint32_t>(ceil_div(p.batch, outputs[0]));
  for (int a = 0; a < 3; ++a) {
    const AxisSteps s = axis_steps(p, a);
    t.inputs[1 + a] = static_cast<std::uint32_t>(input_reach(p, a).of(outputs[1 + a]));
    t.counts[1 + a] = static_cast<std::uint32_t>(ceil_div(p.output[a], outputs[1 + a]));
    t.step[a] = narrow(s.step), t.stride[a] = narrow(s.stride), t.dilation[a] = narrow(s.dilation);
  }
  t.output_count = t.input_count = 1;
  for (int a = 0; a < 4; ++a) {
    t.output_reciprocal[a] = reciprocal(t.outputs[a]), t.input_reciprocal[a] = reciprocal(t.inputs[a]);
    t.output_count *= t.outputs[a], t.input_count *= t.inputs[a];
  }
  return t;
}

}  // namespace vkconv::vulkan
