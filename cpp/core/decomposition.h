// A decomposition is an algorithm over child plans: each child solves a strictly simpler problem on strided views of
// the parent's arrays, so nothing is copied. Written once for all devices.
#pragma once
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/planner.h"

namespace vkconv {

// Where a child's arrays lie inside its parent's: it sees every step-th element (tap) from start on.
struct Slice {
  std::int64_t batch_start = 0;
  Extent3 input_start{0, 0, 0}, input_step{1, 1, 1};
  Extent3 output_start{0, 0, 0}, output_step{1, 1, 1};
  Extent3 tap_start{0, 0, 0}, tap_step{1, 1, 1};
  // An axis (0 N, 1 D, 2 H, 3 W) that the parent has not may hold what lies side by side along another of its axes, as
  // the phases of a dilated kernel do: that axis, or -1, and the steps along it from one element to the next.
  std::array<int, 4> along{-1, -1, -1, -1};
  std::array<std::int64_t, 4> input_apart{}, output_apart{};
};

struct ChildProblem {
  ConvProblem problem;
  Slice slice;
};

// From `start` on every step-th element along each axis, or those `apart` along another axis of the whole.
template <class Pointer>
View<Pointer> sliced(const View<Pointer>& whole, const Slice& s, const Extent3& start, const Extent3& step,
                     const std::array<std::int64_t, 4>& apart, DType t) {
  View<Pointer> v = whole.sliced(0, s.batch_start, 1, t);
  for (int axis = 0; axis < 3; ++axis) v = v.sliced(1 + axis, start[axis], step[axis], t);
  for (std::size_t axis = 0; axis < 4; ++axis)
    if (s.along[axis] >= 0) v.stride[axis] = whole.stride[static_cast<std::size_t>(s.along[axis])] * apart[axis];
  return v;
}

template <class Device>
Operands<Device> sliced(Operands<Device> a, const Slice& s, const ConvProblem& parent) {
  a.input = sliced(a.input, s, s.input_start, s.input_step, s.input_apart, parent.dtype_of(Pass::input_grad));
  a.output = sliced(a.output, s, s.output_start, s.output_step, s.output_apart, parent.dtype_of(Pass::forward));
  if (parent.epilogue.addend)
    a.addend = sliced(a.addend, s, s.output_start, s.output_step, s.output_apart, accumulator(parent.dtype));
  for (int axis = 0; axis < 3; ++axis)
    a.weight = a.weight.sliced(axis, s.tap_start[axis], s.tap_step[axis], parent.dtype_of(Pass::weight_grad));
  return a;
}

// A problem with tap k alone along an axis, on its view of the weights.
inline ChildProblem one_tap(ConvProblem p, int axis, std::int64_t k) {
  Slice slice;
  slice.tap_start[axis] = k;
  p.pad_lo[axis] -= k * p.dilation[axis];
  p.kernel[axis] = 1;
  return {canonical(p), slice};
}

// What `bytes` of a plan's own leave of the workspace limit to its children, which run one after another.
template <class Device>
Context<Device> without(std::size_t bytes, const Context<Device>& c) {
  return {c.traits, c.workspace_limit_bytes - bytes, c.planner};
}

// The children of one decomposed plan, planned once per distinct problem. Those that read the same taps in the same
// layout share prepared weights.
template <class Device>
class Children {
 public:
  struct Child {
    Slice slice;
    std::shared_ptr<const Plan<Device>> plan;
    std::size_t weights;  // which of the prepared ones
  };

  Children() = default;
  Children(const std::vector<ChildProblem>& problems, const Context<Device>& context, int siblings = 1) {
    std::map<ConvProblem, std::shared_ptr<const Plan<Device>>> plans;
    for (const auto& [problem, slice] : problems) {
      auto& plan = plans[problem];
      if (!plan) plan = context.planner.plan({problem, "", context.workspace_limit_bytes, siblings});
      list_.push_back(
          {slice, plan, weights_of({slice.tap_start, slice.tap_step, problem.kernel, plan->weight_layout(), plan})});
      workspace_bytes_ = std::max(workspace_bytes_, plan->workspace_bytes());
      prepared_workspace_bytes_ = std::max(prepared_workspace_bytes_, plan->prepared_workspace_bytes());
    }
  }

  const std::vector<Child>& list() const { return list_; }
  std::size_t workspace_bytes() const { return workspace_bytes_; }
  std::size_t prepared_workspace_bytes() const { return prepared_workspace_bytes_; }
  std::size_t prepared_bytes() const { return weights_.empty() ? 0 : weights_.back().end; }
  bool share_weights() const { return weights_.size() < list_.size(); }

  // `8x implicit_gemm, 1x reference`
  std::string describe() const {
    std::vector<std::pair<std::string, int>> counted;
    for (const Child& c : list_) {
      const std::string name = c.plan->describe();
      const auto same = std::ranges::find(counted, name, &std::pair<std::string, int>::first);
      if (same == counted.end())
        counted.emplace_back(name, 1);
      else
        ++same->second;
    }
    std::string s;
    for (const auto& [name, count] : counted) s += (s.empty() ? "" : ", ") + std::to_string(count) + "x " + name;
    return s;
  }
  std::string weight_layout() const {
    if (std::ranges::all_of(weights_, &std::string::empty, &Weights::layout)) return {};
    // Slices are part of the layout: equal child layouts of different slices hold different weights.
    std::string s;
    for (const Weights& w : weights_) {
      for (int a = 0; a < 3; ++a)
        for (const std::int64_t v : {w.first_tap[a], w.tap_step[a], w.taps[a]}) s += std::to_string(v) + " ";
      s += w.layout + ";";
    }
    return s;
  }
  PreparedWeights<Device> prepare_in(typename Device::Pointer to, typename Device::Stream& stream,
                                     const WeightView<typename Device::Pointer>& weight, DType dtype) const {
    PreparedWeights<Device> prepared;
    prepared.children.resize(weights_.size());
    stream.for_each_independent(std::ssize(weights_), false, [&](std::int64_t i) {
      const Weights& part = weights_[static_cast<std::size_t>(i)];
      WeightView<typename Device::Pointer> w = weight;
      for (int a = 0; a < 3; ++a) w = w.sliced(a, part.first_tap[a], part.tap_step[a], dtype);
      prepared.children[static_cast<std::size_t>(i)] = part.plan->prepare_in(to + part.begin, stream, w);
    });
    return prepared;
  }
  // Operands of child i, prepared weights included.
  Operands<Device> operands(std::size_t i, const Operands<Device>& parent, const ConvProblem& p) const {
    Operands<Device> a = sliced(parent, list_[i].slice, p);
    const bool use_prepared = parent.prepared && !list_[i].plan->weight_layout().empty();
    a.prepared = use_prepared ? &parent.prepared->children[list_[i].weights] : nullptr;
    return a;
  }

 private:
  struct Weights {
    Extent3 first_tap, tap_step, taps;
    std::string layout;
    std::shared_ptr<const Plan<Device>> plan;  // which makes them
    std::int64_t begin = 0;                    // bytes before those of all
    std::size_t end = 0;
  };

  std::size_t weights_of(Weights weights) {
    const auto parts = [](const Weights& w) { return std::tie(w.first_tap, w.tap_step, w.taps, w.layout); };
    const auto at = static_cast<std::size_t>(std::ranges::find(weights_, parts(weights), parts) - weights_.begin());
    if (at < weights_.size()) return at;
    weights.begin = static_cast<std::int64_t>(prepared_bytes());
    weights.end = prepared_bytes() + aligned_bytes(static_cast<std::int64_t>(weights.plan->prepared_bytes()));
    weights_.push_back(std::move(weights));
    return at;
  }

  std::vector<Child> list_;
  std::vector<Weights> weights_;  // in the order of their first children
  std::size_t workspace_bytes_ = 0, prepared_workspace_bytes_ = 0;
};

// Those of most taps first: where children run side by side, short work fills what the end of long work leaves idle.
inline std::vector<ChildProblem> longest_first(std::vector<ChildProblem> problems) {
  std::ranges::stable_sort(problems, std::greater{}, [](const ChildProblem& c) { return c.problem.taps(); });
  return problems;
}

// A plan whose weights are those of its children.
template <class Device>
class ChildrenPlan : public Plan<Device> {
 public:
  using typename Plan<Device>::Pointer;
  using typename Plan<Device>::Stream;

  std::string describe() const final { return name_ + "(" + children_.describe() + ")"; }
  std::string weight_layout() const final { return children_.weight_layout(); }
  std::size_t prepared_bytes() const final { return children_.prepared_bytes(); }
  PreparedWeights<Device> prepare_in(Pointer to, Stream& stream, const WeightView<Pointer>& weight) const final {
    return children_.prepare_in(to, stream, weight, p_.dtype);
  }

 protected:
  ChildrenPlan(std::string name, const ConvProblem& p, Children<Device> children)
      : name_(std::move(name)), p_(p), children_(std::move(children)) {}

  std::string name_;
  ConvProblem p_;
  Children<Device> children_;
};

// Children that write disjoint parts of the output, in any order.
template <class Device>
class DisjointPlan final : public ChildrenPlan<Device> {
 public:
  using typename Plan<Device>::Pointer;
  using typename Plan<Device>::Stream;

  DisjointPlan(std::string name, const ConvProblem& p, const std::vector<ChildProblem>& problems,
               const Context<Device>& context)
      : ChildrenPlan<Device>(std::move(name), p, {longest_first(problems), context, static_cast<int>(problems.size())}),
        packs_first_(packs_first(context)) {}

  void execute(Stream& stream, const Operands<Device>& operands, Pointer workspace) const override {
    if (operands.prepared || !packs_first_) return run(stream, operands, workspace);
    const PreparedWeights<Device> packed = this->prepare_in(workspace, stream, operands.weight);
    Operands<Device> a = operands;
    a.prepared = &packed;
    run(stream, a, workspace + static_cast<std::int64_t>(children_.prepared_bytes()));
  }
  std::size_t workspace_bytes() const override {
    if (!packs_first_) return children_.workspace_bytes();
    return children_.prepared_bytes() + children_.prepared_workspace_bytes();
  }
  std::size_t prepared_workspace_bytes() const override { return children_.prepared_workspace_bytes(); }

 private:
  // Whether all weights of a call are packed before the children run.
  bool packs_first(const Context<Device>& c) const {
    const std::size_t packed = children_.prepared_bytes();
    return packed > 0 && packed + children_.prepared_workspace_bytes() <= c.workspace_limit_bytes &&
           Device::packs_first(c.traits, packed, children_.share_weights());
  }

  void run(Stream& stream, const Operands<Device>& operands, Pointer workspace) const {
    const bool share_workspace =
        (operands.prepared ? children_.prepared_workspace_bytes() : children_.workspace_bytes()) > 0;
    stream.for_each_independent(static_cast<std::int64_t>(children_.list().size()), share_workspace,
                                [&](std::int64_t i) {
                                  const auto at = static_cast<std::size_t>(i);
                                  const auto a = children_.operands(at, operands, this->p_);
                                  children_.list()[at].plan->execute(stream, a, workspace);
                                });
  }

  using ChildrenPlan<Device>::children_;
  bool packs_first_;
};

// Estimate of children that run one after another, or of siblings.
template <class Device>
double sum_of_seconds(const std::vector<ChildProblem>& problems, const Context<Device>& context, int siblings = 1) {
  std::map<ConvProblem, double> known;
  double sum = 0;
  for (const auto& [problem, slice] : problems) {
    auto [it, added] = known.try_emplace(problem, 0);
    if (added)
      it->second = context.planner.seconds(problem, context.workspace_limit_bytes, siblings) +
                   Device::scattered_seconds(context.traits, problem, slice.input_step[2], slice.output_step[2],
                                             problems.size());
    sum += it->second;
  }
  return sum;
}

// An algorithm with a DisjointPlan: Decomposition has its `name`, and of a problem `supports(p, traits)` and
// `children(p)`.
template <class Device, class Decomposition>
Algorithm<Device> disjoint_algorithm() {
  return {
      Decomposition::name,
      [](const ConvProblem& p, const Context<Device>& context) { return Decomposition::supports(p, context.traits); },
      [](const ConvProblem& p, const Context<Device>& context) {
        const auto children = Decomposition::children(p);
        return sum_of_seconds(children, context, static_cast<int>(children.size()));
      },
      [](const ConvProblem& p, const Context<Device>& context) -> std::shared_ptr<const Plan<Device>> {
        return std::make_shared<DisjointPlan<Device>>(Decomposition::name, p, Decomposition::children(p), context);
      }};
}

}  // namespace vkconv
