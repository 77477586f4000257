// phase_channels: a strided transposed convolution to O channels, with its t stride phases along width as the t O
// output channels of one dense problem. Row q of that problem is the run of outputs q t - e .. q t - e + t - 1, which
// lie side by side in memory, so the result is written in place: one GEMM with t O columns in place of t products of O,
// and one that reads the input once. Tap j of phase r is tap (t - 1 - r) + j t of the kernel, an affine map: the weight
// of one channel is a view too, that of several is copied, on devices whose memory the host writes. The outputs before
// the first and behind the last whole row are small problems of their own. Where the pixels of the output or of the
// addend do not lie side by side, transpose_phases runs instead, whose sums are rounded in another order.
// It wins where the phases are thin and many: decoders and upsampling layers, synthesis windows (inverse STFT, filter
// banks). Source: pixel shuffle (Shi et al. 2016) read as a view.
#pragma once
#include <type_traits>

#include "algorithms/split/split.h"
#include "algorithms/transpose_phases/transpose_phases.h"
#include "cpu/device.h"
#include "cpu/estimates.h"
#include "cpu/strided_copy.h"

namespace vkconv {

// Whether the host writes the device's memory.
template <class Device>
inline constexpr bool kHostMemory = std::is_same_v<Device, cpu::Device>;

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
  c.out_channels *= p.input_dilation[2];
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

// Of the weights of several channels, which are no view.
inline std::int64_t copied_weight_bytes(const ConvProblem& p) {
  return p.out_channels == 1 ? 0 : p.weight_elements() * static_cast<std::int64_t>(size_bytes(p.dtype));
}

// Writes the bias t times: the bias of every phase.
inline ConvProblem phase_bias_problem(const ConvProblem& p) {
  ConvProblem c;
  c.out_channels = p.out_channels;
  c.dtype = c.output_dtype = accumulator(p.dtype);
  c.kernel[2] = 0;
  c.output[2] = p.input_dilation[2];
  c.epilogue.bias = true;
  return c;
}

// Of the workspace, before that of a child: the bias of every phase, then the copied weights.
inline std::size_t phase_bias_bytes(const ConvProblem& p) {
  return p.epilogue.bias ? aligned_bytes(p.input_dilation[2] * p.out_channels * accumulator_bytes(p.dtype)) : 0;
}
inline std::size_t phase_weight_bytes(const ConvProblem& p) { return aligned_bytes(copied_weight_bytes(p)); }
inline std::size_t phase_copies_bytes(const ConvProblem& p) { return phase_bias_bytes(p) + phase_weight_bytes(p); }

// What the copies leave of the workspace limit.
template <class Device>
Context<Device> phase_channels_context(const ConvProblem& p, const Context<Device>& context) {
  return without(phase_copies_bytes(p), context);
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
    if (p.epilogue.bias) bias_ = plan(phase_bias_problem(p), "");
  }

  void execute(Stream& stream, const Operands<Device>& operands, Pointer workspace) const override {
    Operands<Device> a = operands;
    a.prepared = nullptr;
    const auto dense = [&](const View<Pointer>& v) { return v.stride[3] == p_.out_channels; };
    const bool side_by_side = dense(a.output) && (!p_.epilogue.addend || dense(a.addend));
    if (!side_by_side) return strided_->execute(stream, a, workspace);
    for (std::size_t i = 0; i < edges_.list().size(); ++i)
      edges_.list()[i].plan->execute(stream, edges_.operands(i, a, p_), workspace);
    if (bias_) {
      Operands<Device> b = a;
      b.output = contiguous_view(workspace, {1, 1, p_.input_dilation[2]}, p_.out_channels);
      bias_->execute(stream, b, workspace + phase_bias_bytes(p_));
      a.bias = workspace;
    }
    workspace += phase_bias_bytes(p_);
    a.weight = operands.prepared ? prepared_weight(operands) : phase_weight(operands.weight, workspace);
    if (operands.prepared && !dense_->weight_layout().empty()) a.prepared = &operands.prepared->children.front();
    a.output = rows_view(a.output, p_.output_dtype);
    if (p_.epilogue.addend) a.addend = rows_view(a.addend, accumulator(p_.dtype));
    dense_->execute(stream, a, workspace + phase_weight_bytes(p_));
  }

  std::size_t workspace_bytes() const override {
    const std::size_t dense = phase_copies_bytes(p_) + dense_->workspace_bytes();
    return std::max({dense, edges_.workspace_bytes(), strided_->workspace_bytes()});
  }
  std::string describe() const override {
    const std::string edges = edges_.describe();
    return "phase_channels(" + dense_->describe() + (edges.empty() ? "" : ", " + edges) + ")";
  }
  std::string weight_layout() const override {
    const std::string layout = dense_->weight_layout();
    return layout.empty() && phase_weight_bytes(p_) == 0 ? layout : "phases " + layout;
  }
  // The copy, if there is one, and what the dense plan makes of it. Parts of that plan may want no layout: they read
  // the copy.
  std::size_t prepared_bytes() const override { return phase_weight_bytes(p_) + dense_->prepared_bytes(); }
  PreparedWeights<Device> prepare_in(Pointer to, Stream& stream, const WeightView<Pointer>& weight) const override {
    PreparedWeights<Device> prepared;
    prepared.data = to;
    prepared.children.push_back(dense_->prepare_in(to + phase_weight_bytes(p_), stream, phase_weight(weight, to)));
    return prepared;
  }

 private:
  // Phase by phase, of the first channel.
  WeightView<Pointer> phase_view(const WeightView<Pointer>& weight) const {
    const std::int64_t t = p_.input_dilation[2];
    WeightView<Pointer> w = weight.sliced(2, t - 1, 1, p_.dtype);
    w.out = -weight.tap[2];
    w.tap[2] = t * weight.tap[2];
    return w;
  }
  // `room` is for the weights of several channels.
  WeightView<Pointer> phase_weight(const WeightView<Pointer>& weight, [[maybe_unused]] Pointer room) const {
    if constexpr (kHostMemory<Device>)
      if (p_.out_channels > 1) return copied_weight(phase_view(weight), weight.out, room);
    return phase_view(weight);
  }
  WeightView<Pointer> prepared_weight(const Operands<Device>& operands) const {
    if constexpr (kHostMemory<Device>)
      if (p_.out_channels > 1) return contiguous_weight(operands.prepared->data, phase_rows_problem(p_));
    return phase_view(operands.weight);
  }
  // From phases `phases.out` apart, each with channels `channel_stride` apart.
  WeightView<Pointer> copied_weight(const WeightView<Pointer>& phases, std::int64_t channel_stride,
                                    Pointer room) const {
    const ConvProblem dense = phase_rows_problem(p_);
    const WeightView<Pointer> to = contiguous_weight(room, dense);
    const auto element = static_cast<std::int64_t>(size_bytes(p_.dtype));
    cpu::StridedCopy copy{to.data, phases.data, size_bytes(p_.dtype), false, 6, {}, {}, {}};
    copy.extent = {p_.input_dilation[2], p_.out_channels, dense.kernel[0],
                   dense.kernel[1],      dense.kernel[2], p_.in_channels};
    copy.to_stride = {to.out * p_.out_channels, to.out, to.tap[0], to.tap[1], to.tap[2], to.in};
    copy.from_stride = {phases.out, channel_stride, phases.tap[0], phases.tap[1], phases.tap[2], phases.in};
    for (std::size_t axis = 0; axis < 6; ++axis) copy.to_stride[axis] *= element, copy.from_stride[axis] *= element;
    cpu::run(copy);
    return to;
  }
  View<Pointer> rows_view(View<Pointer> v, DType type) const {
    v = v.sliced(3, phase_rows(p_).begin, 1, type);
    v.stride[3] *= p_.input_dilation[2];
    return v;
  }

  ConvProblem p_;
  std::shared_ptr<const Plan<Device>> dense_, strided_, bias_;
  Children<Device> edges_;
};

template <class Device>
Support phase_channels_support(const ConvProblem& p, const Context<Device>& context) {
  if (Support s = TransposePhases::supports(p, context.traits); !s) return s;
  if (!kHostMemory<Device> && (p.input_dilation[0] > 1 || p.input_dilation[1] > 1))
    return Support::no("depth or height is dilated");
  if (p.input_dilation[2] < 2) return Support::no("the input is not dilated along width");
  if (!kHostMemory<Device> && p.out_channels != 1)
    return Support::no("there are " + std::to_string(p.out_channels) + " output channels, not 1");
  if (p.groups > 1) return Support::no("the channels of a group would not lie side by side");
  if (p.stride[2] != 1 || p.dilation[2] != 1) return Support::no("stride or kernel dilation along width is above 1");
  if (p.kernel[2] % p.input_dilation[2] != 0)
    return Support::no("the kernel's width " + std::to_string(p.kernel[2]) +
                       " is not a multiple of the input dilation " + std::to_string(p.input_dilation[2]));
  if (phase_rows(p).rows < 1) return Support::no("the output has no whole row of phases");
  return workspace_support("the weights of all phases", phase_copies_bytes(p), context);
}

template <class Device>
Algorithm<Device> phase_channels() {
  return {"phase_channels", phase_channels_support<Device>,
          [](const ConvProblem& p, const Context<Device>& c) {
            const Context<Device> context = phase_channels_context(p, c);
            double copying = 0;
            if constexpr (kHostMemory<Device>)
              if (const std::int64_t bytes = copied_weight_bytes(p); bytes > 0)
                copying = cpu::kWeightShare * (context.traits.launch_seconds +
                                               2 * static_cast<double>(bytes) / context.traits.memory_bytes_per_second);
            return copying + context.planner.seconds(phase_rows_problem(p), context.workspace_limit_bytes) +
                   sum_of_seconds(phase_edge_children(p), context);
          },
          [](const ConvProblem& p, const Context<Device>& context) -> std::shared_ptr<const Plan<Device>> {
            return std::make_shared<PhaseChannelsPlan<Device>>(p, phase_channels_context(p, context));
          }};
}

}  // namespace vkconv
