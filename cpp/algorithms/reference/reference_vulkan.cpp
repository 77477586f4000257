// reference: the loop nest that defines the operation, one invocation for each element written. It supports every
// problem and wins nothing; the other algorithms are measured against the CPU's reference, and so is this one.
#include <algorithm>

#include "algorithms/registry_vulkan.h"
#include "core/checked.h"
#include "vulkan/kernel_params.h"

namespace vkconv::vulkan {
namespace {

constexpr std::int64_t kInvocations = 64;  // of a workgroup, as in reference.comp

// Operations that a GPU could do while it finds the indices of an element, of a tap's positions (64-bit divisions) and
// of a product; a rasteriser's share of its rate.
constexpr double kElementFlops = 2200, kTapFlops = 1000, kProductFlops = 200, kSoftwareRateShare = 0.01;
// An invocation adds the terms of its sum one after the other: for each tap, or a weight gradient's pixel, it divides,
// and for each channel it waits for a product. Measured on an H200.
constexpr double kTapSeconds = 1e-6, kProductSeconds = 9e-8;

// Mirrors Params of reference.comp.
struct Params {
  OperandParams operands;
  std::int64_t written, batch, groups, in_group, out_group;
  Extent3 input_extent, kernel, output_extent, stride, dilation, input_dilation, pad_lo;
};

// Of an element: places that it reads, and products at each.
struct Sum {
  double places, products;
};
Sum sum_of(const ConvProblem& p) {
  switch (p.pass) {
    case Pass::forward:
      return {double(p.taps()), double(p.in_channels_per_group())};
    case Pass::input_grad:
      return {double(p.taps()), double(p.out_channels_per_group())};
    case Pass::weight_grad:
      return {double(p.batch) * double(p.output_pixels()), 1};
  }
  return {};
}

// One step more for each element that is written.
double software_seconds(const ConvProblem& p, const Traits& traits) {
  const double steps = p.flops() / 2 + double(p.written_elements());
  return 2 * steps / (flops_per_second(traits, p.dtype) * kSoftwareRateShare);
}

double gpu_seconds(const ConvProblem& p, const Traits& traits, int siblings) {
  const Sum sum = sum_of(p);
  const double flops = kElementFlops + sum.places * (kTapFlops + sum.products * kProductFlops);
  const double waiting = sum.places * (kTapSeconds + sum.products * kProductSeconds);
  return std::max(double(p.written_elements()) * flops / flops_per_second(traits, p.dtype), waiting / siblings);
}

double work_seconds(const ConvProblem& p, const Traits& traits, int siblings) {
  const double work =
      traits.type == DeviceType::software ? software_seconds(p, traits) : gpu_seconds(p, traits, siblings);
  return work + p.bytes_moved() / traits.rates.memory_bytes_per_second;
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
  ReferencePlan(const ConvProblem& p, const Context<Device>& c)
      : p_(p), seconds_(work_seconds(p, c.traits, c.siblings)) {}

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
  return launch_seconds(c) + work_seconds(p, c.traits, c.siblings);
}

}  // namespace

const Algorithm<Device> kReference{"reference", supports, seconds, make_plan<ReferencePlan>};

}  // namespace vkconv::vulkan
