// phase_channels: a strided transposed convolution to one output channel, with its t stride phases as the t output
// channels of one dense problem. Row q of that problem is the run of outputs q t - e .. q t - e + t - 1, which lie side
// by side in memory, so the result is written in place: one GEMM with t columns in place of t products of one column.
// Tap j of phase r is tap (t - 1 - r) + j t of the kernel, an affine map, so the weight is a view too. The outputs
// before the first and behind the last whole row are small problems of their own. Where the pixels of the output or of
// the addend do not lie side by side, transpose_phases runs instead, whose sums are rounded in another order.
// It wins for synthesis windows (inverse STFT, filter banks), whose phases are thin and many.
// Source: pixel shuffle (Shi et al. 2016) read as a view.
#pragma once
#include "algorithms/split/split.h"
#include "algorithms/transpose_phases/transpose_phases.h"

namespace vkconv {

// The rows of whole phases: outputs [begin, end), begin = first_row t - e.
struct PhaseRows {
  std::int64_t begin, end, pad_lo, rows;
};

inline PhaseRows phase_rows(const ConvProblem& p) {
  const std::int64_t t = p.input_dilation[2], e = floor_mod(t - 1 - p.pad_lo[2], t);
  const std::int64_t first_row = e > 0 ? 1 : 0, last_row = (p.output[2] + e) / t;
  // Input element of (row q, tap j): q + j + (t - 1 - e - pad_lo) / t, an exact division.
  const std::int64_t pad_lo = (p.pad_lo[2] + e + 1 - t) / t - first_row;
  return {first_row * t - e, last_row * t - e, pad_lo, last_row - first_row};
}

inline ConvProblem phase_rows_problem(const ConvProblem& p) {
  const PhaseRows rows = phase_rows(p);
  ConvProblem c = p;
  c.out_channels = p.input_dilation[2];
  c.kernel[2] = p.kernel[2] / p.input_dilation[2];
  c.input_dilation[2] = 1;
  c.output[2] = rows.rows;
  c.pad_lo[2] = rows.pad_lo;
  return canonical(c);
}

inline std::vector<ChildProblem> phase_edge_children(const ConvProblem& p) {
  const PhaseRows rows = phase_rows(p);
  std::vector<ChildProblem> children;
  if (rows.begin > 0) children.push_back(split_part(p, 3, 0, rows.begin));
  if (rows.end < p.output[2]) children.push_back(split_part(p, 3, rows.end, p.output[2]));
  return children;
}

// Writes the one bias value t times: the bias of every phase.
inline ConvProblem phase_bias_problem(const ConvProblem& p) {
  ConvProblem c;
  c.dtype = c.output_dtype = accumulator(p.dtype);
  c.kernel[2] = 0;
  c.output[2] = p.input_dilation[2];
  c.epilogue.bias = true;
  return c;
}

template <class Device>
class PhaseChannelsPlan final : public Plan<Device> {
 public:
  using typename Plan<Device>::Pointer;
  using typename Plan<Device>::Stream;

  PhaseChannelsPlan(const ConvProblem& p, const Context<Device>& context)
      : p_(p), edges_(phase_edge_children(p), context) {
    const auto plan = [&](const ConvProblem& c, const char* algorithm) {
      return context.planner.plan({c, algorithm, context.workspace_limit_bytes});
    };
    dense_ = plan(phase_rows_problem(p), "");
    strided_ = plan(p, TransposePhases::name);
    if (p.epilogue.bias) {
      bias_ = plan(phase_bias_problem(p), "");
      bias_bytes_ = round_up(p.input_dilation[2] * 8, 256);
    }
  }

  void execute(Stream& stream, const Operands<Device>& operands, Pointer workspace) const override {
    Operands<Device> a = operands;
    a.prepared = nullptr;
    const bool side_by_side = a.output.stride[3] == 1 && (!p_.epilogue.addend || a.addend.stride[3] == 1);
    if (!side_by_side) return strided_->execute(stream, a, workspace);
    for (std::size_t i = 0; i < edges_.list().size(); ++i)
      edges_.list()[i].plan->execute(stream, edges_.operands(i, a, p_), workspace);
    if (bias_) {
      Operands<Device> b = a;
      b.output = contiguous_view(workspace, {1, 1, p_.input_dilation[2]}, 1);
      bias_->execute(stream, b, workspace + bias_bytes_);
      a.bias = workspace;
    }
    a.weight = phase_weight(operands.weight);
    a.output = rows_view(a.output, p_.output_dtype);
    if (p_.epilogue.addend) a.addend = rows_view(a.addend, accumulator(p_.dtype));
    a.prepared = operands.prepared;
    dense_->execute(stream, a, workspace + bias_bytes_);
  }

  std::size_t workspace_bytes() const override {
    const std::size_t dense = static_cast<std::size_t>(bias_bytes_) + dense_->workspace_bytes();
    return std::max({dense, edges_.workspace_bytes(), strided_->workspace_bytes()});
  }
  std::string describe() const override { return "phase_channels(" + dense_->describe() + ")"; }
  std::string weight_layout() const override {
    const std::string layout = dense_->weight_layout();
    return layout.empty() ? layout : "phases " + layout;
  }
  PreparedWeights<Device> prepare(Stream& stream, const WeightView<Pointer>& weight) const override {
    return dense_->prepare(stream, phase_weight(weight));
  }

 private:
  WeightView<Pointer> phase_weight(const WeightView<Pointer>& weight) const {
    const std::int64_t t = p_.input_dilation[2];
    WeightView<Pointer> w = weight.sliced(2, t - 1, 1, p_.dtype);
    w.out = -weight.tap[2];
    w.tap[2] = t * weight.tap[2];
    return w;
  }
  View<Pointer> rows_view(View<Pointer> v, DType type) const {
    v = v.sliced(3, phase_rows(p_).begin, 1, type);
    v.stride[3] = p_.input_dilation[2];
    return v;
  }

  ConvProblem p_;
  std::shared_ptr<const Plan<Device>> dense_, strided_, bias_;
  Children<Device> edges_;
  std::int64_t bias_bytes_ = 0;
};

inline Support phase_channels_support(const ConvProblem& p) {
  if (Support s = forward_support(p); !s) return s;
  if (p.input_dilation[0] > 1 || p.input_dilation[1] > 1) return Support::no("depth or height is dilated");
  if (p.input_dilation[2] < 2) return Support::no("the input is not dilated along width");
  if (p.out_channels != 1)
    return Support::no("there are " + std::to_string(p.out_channels) + " output channels, not 1");
  if (p.stride[2] != 1 || p.dilation[2] != 1) return Support::no("stride or kernel dilation along width is above 1");
  if (p.kernel[2] % p.input_dilation[2] != 0)
    return Support::no("the kernel's width " + std::to_string(p.kernel[2]) +
                       " is not a multiple of the input dilation " + std::to_string(p.input_dilation[2]));
  if (phase_rows(p).rows < 1) return Support::no("the output has no whole row of phases");
  return Support::yes();
}

template <class Device>
Algorithm<Device> phase_channels() {
  return {"phase_channels", [](const ConvProblem& p, const Context<Device>&) { return phase_channels_support(p); },
          [](const ConvProblem& p, const Context<Device>& context) {
            return context.planner.seconds(phase_rows_problem(p), context.workspace_limit_bytes) +
                   sum_of_seconds(phase_edge_children(p), context);
          },
          make_plan<PhaseChannelsPlan<Device>>};
}

}  // namespace vkconv
