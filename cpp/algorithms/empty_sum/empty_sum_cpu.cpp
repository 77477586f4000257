// empty_sum: outputs that no product reaches are epilogues of zero. Transposed convolutions and input gradients whose
// stride is longer than their kernel leave such phases between the others: of a 1x1 kernel with stride 2, three of
// four.
#include "algorithms/empty_sum/empty_sum.h"

#include "algorithms/registry_cpu.h"
#include "cpu/estimates.h"

namespace vkconv::cpu {
namespace empty_sum {
namespace {

class EmptySumPlan final : public Plan<Device> {
 public:
  EmptySumPlan(const ConvProblem& p, const Context<Device>&) : p_(p) {}
  std::string describe() const override { return "empty_sum"; }
  void execute(Device::Stream&, const Operands<Device>& a, std::byte*) const override { run(p_, a); }

 private:
  ConvProblem p_;
};

Support supports(const ConvProblem& p, const Context<Device>&) {
  if (p.pass != Pass::forward) return Support::no("it computes the forward pass only");
  if (!p.empty_sum()) return Support::no("the sum has terms");
  return Support::yes();
}

double seconds(const ConvProblem& p, const Context<Device>& c) {
  constexpr double kOutputFlops = 8;
  const double outputs = static_cast<double>(p.output_elements());
  return section_seconds(c.traits, kOutputFlops * outputs / c.traits.f32_flops_per_second,
                         outputs * static_cast<double>(size_bytes(p.output_dtype)));
}

}  // namespace
}  // namespace empty_sum

const Algorithm<Device> kEmptySum{"empty_sum", empty_sum::supports, empty_sum::seconds,
                                  make_plan<empty_sum::EmptySumPlan>};

}  // namespace vkconv::cpu
