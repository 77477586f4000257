// Plans of weight gradients whose sums are right where all values are finite; those that are not so are computed again
// by weight_grad, or where that wants more workspace by the definition.
#pragma once
#include <algorithm>
#include <memory>
#include <string>

#include "algorithms/registry_cpu.h"
#include "core/orientation.h"
#include "core/planner.h"
#include "cpu/device.h"

namespace vkconv::cpu {

// `Sums` has the algorithm's kName, its Layout, and
//   orientation(p), of the axes;
//   layout(p, context), and its bytes(p, layout), for the problem with its axes so;
//   run(p, layout, operands, workspace), which returns false where a sum may be wrong.
template <class Sums>
class FiniteSumsPlan final : public Plan<Device> {
 public:
  FiniteSumsPlan(const ConvProblem& p, const Context<Device>& context)
      : orientation_(Sums::orientation(p)),
        p_(orientation_.apply(p)),
        layout_(Sums::layout(p_, context)),
        direct_(context.planner.plan({p, direct_algorithm(p, context), context.workspace_limit_bytes})) {}

  std::string describe() const override { return Sums::kName; }
  std::size_t workspace_bytes() const override {
    return std::max(Sums::bytes(p_, layout_), direct_->workspace_bytes());
  }

  void execute(Device::Stream& stream, const Operands<Device>& operands, std::byte* workspace) const override {
    if (!Sums::run(p_, layout_, orientation_.apply(operands), workspace)) direct_->execute(stream, operands, workspace);
  }

 private:
  static std::string direct_algorithm(const ConvProblem& p, const Context<Device>& context) {
    return std::string(kWeightGrad.supports(p, context) ? kWeightGrad.name : kReference.name);
  }

  Orientation orientation_;
  ConvProblem p_;
  typename Sums::Layout layout_;
  std::shared_ptr<const Plan<Device>> direct_;
};

}  // namespace vkconv::cpu
