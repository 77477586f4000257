// reference: the loop nest that defines the operation, one invocation for each element written. It supports every
// problem and wins nothing; the other algorithms are measured against the CPU's reference, and so is this one.
#include <algorithm>

#include "algorithms/registry_vulkan.h"
#include "core/checked.h"
#include "vulkan/kernel_params.h"

namespace vkconv::vulkan {
namespace {

constexpr std::int64_t kInvocations = 64;  // of a workgroup, as in reference.comp

// Multiply-adds with 64-bit index arithmetic run at about this share of the device's rate.
constexpr double kRateShare = 0.01;
// A GPU's invocation adds the terms of its sum one after the other, measured on an H200; for each of a weight
// gradient's it divides a pixel's index.
constexpr double kTermSeconds = 9e-8, kPixelTermSeconds = 9e-7;

// Mirrors Params of reference.comp.
struct Params {
  OperandParams operands;
  std::int64_t written, batch, groups, in_group, out_group;
  Extent3 input_extent, kernel, output_extent, stride, dilation, input_dilation, pad_lo;
};

double sum_seconds(const ConvProblem& p, const Traits& traits) {
  if (traits.type == DeviceType::software) return 0;
  if (p.pass == Pass::weight_grad) return double(p.batch) * double(p.output_pixels()) * kPixelTermSeconds;
  const std::int64_t channels = (p.pass == Pass::forward ? p.in_channels : p.out_channels) / p.groups;
  return double(p.taps()) * double(channels) * kTermSeconds;
}

double work_seconds(const ConvProblem& p, const Traits& traits) {
  // One step more for each element that is written.
  const double steps = p.flops() / 2 + double(p.written_elements());
  const double work = 2 * steps / (flops_per_second(traits, p.dtype) * kRateShare) +
                      p.bytes_moved() / traits.rates.memory_bytes_per_second;
  return std::max(work, sum_seconds(p, traits));
}

Params make_params(const ConvProblem& p, const Operands<Device>& a) {
  return {operand_params(p, a, a.weight),
          p.written_elements(),
          p.batch,
          p.groups,
          p.in_channels_per_group(),
          p.out_channels_per_group(),
          p.input,
          p.kernel,
          p.output,
          p.stride,
          p.dilation,
          p.input_dilation,
          p.pad_lo};
}

// Upper bound of the loop iterations behind one element, the index map's own loops and the exits included.
std::int64_t loop_iterations(const ConvProblem& p) {
  constexpr std::int64_t kIndexMap = 12;
  if (p.written_elements() == 0) return 0;
  switch (p.pass) {
    case Pass::forward:
      return checked_mul(p.taps(), p.in_channels_per_group() + kIndexMap);
    case Pass::input_grad:
      return checked_mul(p.taps(), p.out_channels_per_group() + kIndexMap);
    case Pass::weight_grad:
      return checked_mul(checked_mul(p.batch, p.output_pixels()), kIndexMap);
  }
  return 0;
}

Support supports(const ConvProblem& p, const Context<Device>& c) {
  if (!supports_dtype(c.traits, p.dtype)) return Support::no("the device has no 64-bit floats");
  return c.traits.type == DeviceType::software ? loop_support(loop_iterations(p)) : Support::yes();
}

class ReferencePlan final : public Plan<Device> {
 public:
  ReferencePlan(const ConvProblem& p, const Context<Device>& c) : p_(p), seconds_(work_seconds(p, c.traits)) {}

  std::string describe() const override { return "reference"; }

  void execute(Stream& stream, const Operands<Device>& a, Pointer) const override {
    Kernel kernel{shader_name("reference", p_.dtype), epilogue_constants(p_, a)};
    kernel.constants.push_back(static_cast<std::uint32_t>(p_.pass));
    const Groups groups = stream.linear_groups(ceil_div(p_.written_elements(), kInvocations));
    stream.dispatch(kernel, make_params(p_, a), groups, seconds_);
  }

 private:
  const ConvProblem p_;
  const double seconds_;
};

double seconds(const ConvProblem& p, const Context<Device>& c) {
  return c.traits.rates.launch_seconds + work_seconds(p, c.traits);
}

}  // namespace

const Algorithm<Device> kReference{"reference", supports, seconds, make_plan<ReferencePlan>};

}  // namespace vkconv::vulkan
