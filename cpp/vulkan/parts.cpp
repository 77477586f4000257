#include "vulkan/parts.h"

#include "algorithms/input_grad/input_grad.h"
#include "algorithms/split/split.h"

namespace vkconv::vulkan {
namespace {

std::vector<Part> forward_halves(const ConvProblem& p, const HostOperands& operands) {
  std::vector<Part> parts;
  if (p.batch == 1 && p.output_pixels() == 1) return parts;
  for (const auto& [problem, slice] : Split::children(p)) parts.push_back({problem, sliced(operands, slice, p)});
  return parts;
}

// How many come before a channel of the output and one of the input.
struct Channels {
  std::int64_t groups, outputs, inputs;
};

// The gradients of the channels [begin, end) of the output, the input or, with groups, of both.
Part weight_grad_part(const ConvProblem& p, const HostOperands& a, const Channels& begin, const Channels& end) {
  Part part{p, a};
  part.problem.groups = end.groups - begin.groups;
  part.problem.out_channels = end.outputs - begin.outputs;
  part.problem.in_channels = end.inputs - begin.inputs;
  const auto element = static_cast<std::int64_t>(size_bytes(p.dtype));
  const auto written = static_cast<std::int64_t>(size_bytes(p.output_dtype));
  const WeightView<std::byte*>& w = a.weight;
  part.operands.input.data += begin.inputs * element;
  part.operands.output.data += begin.outputs * element;
  part.operands.weight.data +=
      (p.groups > 1 ? begin.groups * w.group : begin.outputs * w.out + begin.inputs * w.in) * written;
  part.problem = canonical(part.problem);
  return part;
}

std::vector<Part> weight_grad_halves(const ConvProblem& p, const HostOperands& a) {
  const Channels first{0, 0, 0}, last{p.groups, p.out_channels, p.in_channels};
  Channels begin = first, end = last;  // of the second and of the first half
  if (p.groups > 1) {
    const std::int64_t half = p.groups / 2;
    begin = end = {half, half * p.out_channels_per_group(), half * p.in_channels_per_group()};
  } else if (p.out_channels > 1 && (p.output_elements() >= p.input_elements() || p.in_channels == 1)) {
    begin.outputs = end.outputs = p.out_channels / 2;
  } else if (p.in_channels > 1) {
    begin.inputs = end.inputs = p.in_channels / 2;
  } else {
    return {};
  }
  return {weight_grad_part(p, a, first, end), weight_grad_part(p, a, begin, last)};
}

}  // namespace

std::vector<Part> halves(const ConvProblem& p, const HostOperands& operands) {
  if (p.empty_sum()) return {};
  if (p.pass == Pass::forward) return forward_halves(p, operands);
  if (p.pass == Pass::weight_grad) return weight_grad_halves(p, operands);
  HostOperands forward = operands;
  forward.input = operands.output;
  forward.output = operands.input;
  forward.weight = operands.weight.mirrored(p.kernel, p.dtype).transposed();
  return forward_halves(input_grad_child(p), forward);
}

}  // namespace vkconv::vulkan
