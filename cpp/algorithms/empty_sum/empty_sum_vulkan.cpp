// empty_sum on Vulkan: see empty_sum_cpu.cpp.
#include "algorithms/registry_vulkan.h"
#include "core/checked.h"
#include "vulkan/divisor.h"
#include "vulkan/kernel_params.h"

namespace vkconv::vulkan {
namespace {

constexpr std::uint32_t kGroupSize = 256;

// Mirrors Params of empty_sum.comp.
struct Params {
  Pointer output;
  Strides4 output_stride;
  EpilogueParams epilogue;
  Divisor quads, extent[4];
  std::uint32_t channels, count;
};

// Fours of channels, each an invocation's.
std::int64_t quads_of(const ConvProblem& p) {
  return checked_mul(checked_mul(p.batch, p.output_pixels()), ceil_div(p.out_channels, 4));
}

class EmptySumPlan final : public Plan<Device> {
 public:
  EmptySumPlan(const ConvProblem& p, const Context<Device>&) : p_(p) {}
  std::string describe() const override { return "empty_sum"; }

  void execute(Stream& stream, const Operands<Device>& a, Pointer) const override {
    Kernel kernel{shader_name("empty_sum", p_.dtype), epilogue_constants(p_, a)};
    kernel.constants.push_back(kGroupSize);
    const auto divisor_of = [](std::int64_t extent) { return divisor(narrow(extent)); };
    const Params params{
        a.output.data,
        pixel_strides(a.output),
        epilogue_params(p_, a),
        divisor_of(ceil_div(p_.out_channels, 4)),
        {divisor_of(p_.batch), divisor_of(p_.output[0]), divisor_of(p_.output[1]), divisor_of(p_.output[2])},
        narrow(p_.out_channels),
        narrow(quads_of(p_))};
    stream.dispatch(kernel, params, stream.linear_groups(ceil_div(quads_of(p_), kGroupSize)));
  }

 private:
  ConvProblem p_;
};

Support supports(const ConvProblem& p, const Context<Device>& c) {
  constexpr std::int64_t limit = std::int64_t{1} << 31;
  if (p.pass != Pass::forward) return Support::no("it computes the forward pass only");
  if (!p.empty_sum()) return Support::no("the sum has terms");
  if (p.output_elements() == 0) return Support::no("the output is empty");
  if (Support s = kernel_support(p, c.traits); !s) return s;
  return quads_of(p) < limit ? Support::yes() : Support::no("the output has over 2^33 elements");
}

double seconds(const ConvProblem& p, const Context<Device>& c) {
  const double bytes = double(p.output_elements()) * double(size_bytes(p.output_dtype));
  return launch_seconds(c) + bytes / c.traits.rates.memory_bytes_per_second;
}

}  // namespace

const Algorithm<Device> kEmptySum{"empty_sum", supports, seconds, make_plan<EmptySumPlan>};

}  // namespace vkconv::vulkan
