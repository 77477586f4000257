// small_kernel_depth: a 3D convolution whose kernel is short in depth as KD problems of kernel depth 1 over
// depth-shifted views of the input, summed. A slice along D of a channels-last array is contiguous, so nothing is
// copied, and the flat problems may use algorithms that 3D lacks. The partial sums stay in the accumulator type: the
// output itself when it has that type, a workspace otherwise; bias, activation and the one rounding belong to the
// last tap. It wins for few taps where the flat problem's algorithm is faster than any 3D one.
// Source: MLX pull request 3785, extended to any depth stride, dilation, padding, batch and channel count.
#pragma once
#include "core/checked.h"
#include "core/decomposition.h"

namespace vkconv {

inline constexpr std::int64_t kMaxKernelDepth = 16;

// Tap k of the depth axis: the whole output from the input shifted by k * dilation.
inline std::vector<ChildProblem> depth_tap_children(const ConvProblem& p) {
  std::vector<ChildProblem> children;
  for (std::int64_t k = 0; k < p.kernel[0]; ++k) {
    ConvProblem& c = children.emplace_back(one_tap(p, 0, k)).problem;
    const bool first = k == 0, last = k + 1 == p.kernel[0];
    c.epilogue.addend = p.epilogue.addend || !first;
    if (!last) {
      c.output_dtype = accumulator(p.dtype);
      c.epilogue.bias = false;
      c.epilogue.activation = Activation::identity;
      c.epilogue.alpha = c.epilogue.beta = 0;
    }
  }
  return children;
}

template <class Device>
class SmallKernelDepthPlan final : public ChildrenPlan<Device> {
 public:
  using typename Plan<Device>::Pointer;
  using typename Plan<Device>::Stream;

  SmallKernelDepthPlan(const ConvProblem& p, const Context<Device>& context)
      : ChildrenPlan<Device>("small_kernel_depth", p, {depth_tap_children(p), context}),
        sum_bytes_(partial_sum_bytes(p)) {}

  // Bytes of partial sums kept outside the output; 0 when the output has the accumulator type.
  static std::size_t partial_sum_bytes(const ConvProblem& p) {
    if (p.output_dtype == accumulator(p.dtype)) return 0;
    return aligned_bytes(p.output_elements() * accumulator_bytes(p.dtype));
  }

  void execute(Stream& stream, const Operands<Device>& operands, Pointer workspace) const override {
    const View<Pointer> sum = sum_bytes_ ? contiguous_view(workspace, p_.output, p_.out_channels) : operands.output;
    const Pointer child_workspace = workspace + static_cast<std::int64_t>(sum_bytes_);
    const std::size_t last = children_.list().size() - 1;
    for (std::size_t k = 0; k <= last; ++k) {
      Operands<Device> a = children_.operands(k, operands, p_);
      if (k > 0) a.addend = sum;
      if (k < last) a.output = sum;
      children_.list()[k].plan->execute(stream, a, child_workspace);
    }
  }
  std::size_t workspace_bytes() const override { return sum_bytes_ + children_.workspace_bytes(); }
  std::size_t prepared_workspace_bytes() const override { return sum_bytes_ + children_.prepared_workspace_bytes(); }

 private:
  using ChildrenPlan<Device>::p_;
  using ChildrenPlan<Device>::children_;
  std::size_t sum_bytes_;
};

// Children get what the partial sums leave of the workspace limit.
template <class Device>
Context<Device> small_kernel_depth_context(const ConvProblem& p, const Context<Device>& context) {
  return without(SmallKernelDepthPlan<Device>::partial_sum_bytes(p), context);
}

template <class Device>
Algorithm<Device> small_kernel_depth() {
  return {"small_kernel_depth",
          [](const ConvProblem& p, const Context<Device>& context) {
            if (Support s = forward_support(p); !s) return s;
            if (p.kernel[0] < 2) return Support::no("the kernel has no depth");
            if (p.kernel[0] > kMaxKernelDepth)
              return Support::no("the kernel's depth " + std::to_string(p.kernel[0]) + " is above " +
                                 std::to_string(kMaxKernelDepth));
            if (p.input_dilated()) return Support::no("the input is dilated");
            return workspace_support("partial sums", SmallKernelDepthPlan<Device>::partial_sum_bytes(p), context);
          },
          [](const ConvProblem& p, const Context<Device>& context) {
            return sum_of_seconds(depth_tap_children(p), small_kernel_depth_context(p, context));
          },
          [](const ConvProblem& p, const Context<Device>& context) -> std::shared_ptr<const Plan<Device>> {
            return std::make_shared<SmallKernelDepthPlan<Device>>(p, small_kernel_depth_context(p, context));
          }};
}

}  // namespace vkconv
