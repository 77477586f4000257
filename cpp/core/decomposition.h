// A decomposition is an algorithm over child plans: each child solves a strictly simpler problem on strided views of
// the parent's arrays, so nothing is copied. Written once for all devices.
#pragma once
#include <algorithm>
#include <map>
#include <string>
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
};

struct ChildProblem {
  ConvProblem problem;
  Slice slice;
};

template <class Device>
Operands<Device> sliced(Operands<Device> a, const Slice& s, const ConvProblem& parent) {
  a.input = a.input.sliced(0, s.batch_start, 1, parent.dtype);
  a.output = a.output.sliced(0, s.batch_start, 1, parent.output_dtype);
  if (parent.epilogue.addend) a.addend = a.addend.sliced(0, s.batch_start, 1, accumulator(parent.dtype));
  for (int axis = 0; axis < 3; ++axis) {
    a.input = a.input.sliced(1 + axis, s.input_start[axis], s.input_step[axis], parent.dtype);
    a.output = a.output.sliced(1 + axis, s.output_start[axis], s.output_step[axis], parent.output_dtype);
    if (parent.epilogue.addend)
      a.addend = a.addend.sliced(1 + axis, s.output_start[axis], s.output_step[axis], accumulator(parent.dtype));
    a.weight = a.weight.sliced(axis, s.tap_start[axis], s.tap_step[axis], parent.dtype);
  }
  return a;
}

// The children of one decomposed plan, planned once per distinct problem.
template <class Device>
class Children {
 public:
  struct Child {
    Slice slice;
    Extent3 kernel;
    std::shared_ptr<const Plan<Device>> plan;
  };

  Children() = default;
  Children(const std::vector<ChildProblem>& problems, const Context<Device>& context, int siblings = 1) {
    std::map<ConvProblem, std::shared_ptr<const Plan<Device>>> plans;
    for (const auto& [problem, slice] : problems) {
      auto& plan = plans[problem];
      if (!plan) plan = context.planner.plan({problem, "", context.workspace_limit_bytes, siblings});
      list_.push_back({slice, problem.kernel, plan});
      workspace_bytes_ = std::max(workspace_bytes_, plan->workspace_bytes());
      prepared_workspace_bytes_ = std::max(prepared_workspace_bytes_, plan->prepared_workspace_bytes());
    }
  }

  const std::vector<Child>& list() const { return list_; }
  std::size_t workspace_bytes() const { return workspace_bytes_; }
  std::size_t prepared_workspace_bytes() const { return prepared_workspace_bytes_; }

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
    const auto has_layout = [](const Child& c) { return !c.plan->weight_layout().empty(); };
    if (std::none_of(list_.begin(), list_.end(), has_layout)) return {};
    // Slices are part of the layout: equal child layouts of different slices hold different weights.
    std::string s;
    for (const Child& c : list_) {
      for (int a = 0; a < 3; ++a)
        for (const std::int64_t v : {c.slice.tap_start[a], c.slice.tap_step[a], c.kernel[a]})
          s += std::to_string(v) + " ";
      s += c.plan->weight_layout() + ";";
    }
    return s;
  }
  PreparedWeights<Device> prepare(typename Device::Stream& stream, const WeightView<typename Device::Pointer>& weight,
                                  DType dtype) const {
    PreparedWeights<Device> prepared;
    for (const Child& c : list_) {
      WeightView<typename Device::Pointer> w = weight;
      for (int a = 0; a < 3; ++a) w = w.sliced(a, c.slice.tap_start[a], c.slice.tap_step[a], dtype);
      prepared.children.push_back(c.plan->prepare(stream, w));
    }
    return prepared;
  }
  // Operands of child i, prepared weights included.
  Operands<Device> operands(std::size_t i, const Operands<Device>& parent, const ConvProblem& p) const {
    Operands<Device> a = sliced(parent, list_[i].slice, p);
    const bool use_prepared = parent.prepared && !list_[i].plan->weight_layout().empty();
    a.prepared = use_prepared ? &parent.prepared->children[i] : nullptr;
    return a;
  }

 private:
  std::vector<Child> list_;
  std::size_t workspace_bytes_ = 0, prepared_workspace_bytes_ = 0;
};

// Children that write disjoint parts of the output, in any order.
template <class Device>
class DisjointPlan final : public Plan<Device> {
 public:
  using typename Plan<Device>::Pointer;
  using typename Plan<Device>::Stream;

  DisjointPlan(std::string name, const ConvProblem& p, const std::vector<ChildProblem>& problems,
               const Context<Device>& context)
      : name_(std::move(name)), p_(p), children_(problems, context, static_cast<int>(problems.size())) {}

  void execute(Stream& stream, const Operands<Device>& operands, Pointer workspace) const override {
    const bool share_workspace =
        (operands.prepared ? children_.prepared_workspace_bytes() : children_.workspace_bytes()) > 0;
    stream.for_each_independent(static_cast<std::int64_t>(children_.list().size()), share_workspace,
                                [&](std::int64_t i) {
                                  const auto at = static_cast<std::size_t>(i);
                                  const auto a = children_.operands(at, operands, p_);
                                  children_.list()[at].plan->execute(stream, a, workspace);
                                });
  }
  std::size_t workspace_bytes() const override { return children_.workspace_bytes(); }
  std::size_t prepared_workspace_bytes() const override { return children_.prepared_workspace_bytes(); }
  std::string describe() const override { return name_ + "(" + children_.describe() + ")"; }
  std::string weight_layout() const override { return children_.weight_layout(); }
  PreparedWeights<Device> prepare(Stream& stream, const WeightView<Pointer>& weight) const override {
    return children_.prepare(stream, weight, p_.dtype);
  }

 private:
  std::string name_;
  ConvProblem p_;
  Children<Device> children_;
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
