// input_grad: the gradient with respect to the input is itself a forward convolution, of the output gradient dilated
// by the stride with the mirrored kernel, input and output channels swapped in each group. Mirroring and swapping are
// strides of the weight view; the forward planner does the rest (transpose_phases when the stride is above 1).
#pragma once
#include "core/planner.h"

namespace vkconv {

inline ConvProblem input_grad_child(const ConvProblem& p) {
  ConvProblem f = canonical(input_grad_as_forward(p));
  f.flip = false;  // the weight view is mirrored instead
  f.epilogue = {};
  return f;
}

template <class Device>
class InputGradPlan final : public Plan<Device> {
 public:
  using typename Plan<Device>::Pointer;
  using typename Plan<Device>::Stream;

  InputGradPlan(const ConvProblem& p, const Context<Device>& context)
      : p_(p), child_(context.planner.plan({input_grad_child(p), "", context.workspace_limit_bytes})) {}

  void execute(Stream& stream, const Operands<Device>& operands, Pointer workspace) const override {
    Operands<Device> a = operands;
    a.input = operands.output;
    a.output = operands.input;
    a.weight = child_weight(operands.weight);
    child_->execute(stream, a, workspace);
  }
  std::size_t workspace_bytes() const override { return child_->workspace_bytes(); }
  std::size_t prepared_workspace_bytes() const override { return child_->prepared_workspace_bytes(); }
  std::string describe() const override { return "input_grad(" + child_->describe() + ")"; }
  std::string weight_layout() const override {
    const std::string layout = child_->weight_layout();
    return layout.empty() ? layout : "swapped " + layout;
  }
  std::size_t prepared_bytes() const override { return child_->prepared_bytes(); }
  PreparedWeights<Device> prepare_in(Pointer to, Stream& stream, const WeightView<Pointer>& weight) const override {
    return child_->prepare_in(to, stream, child_weight(weight));
  }

 private:
  WeightView<Pointer> child_weight(const WeightView<Pointer>& w) const {
    return w.mirrored(p_.kernel, p_.dtype).transposed();
  }

  ConvProblem p_;
  std::shared_ptr<const Plan<Device>> child_;
};

template <class Device>
Algorithm<Device> input_grad() {
  return {"input_grad",
          [](const ConvProblem& p, const Context<Device>&) {
            if (p.pass != Pass::input_grad) return Support::no("it computes the input gradient only");
            return Support::yes();
          },
          [](const ConvProblem& p, const Context<Device>& context) {
            return context.planner.seconds(input_grad_child(p), context.workspace_limit_bytes);
          },
          make_plan<InputGradPlan<Device>>};
}

}  // namespace vkconv
