// What an algorithm is: three pure functions and a plan. A Device type supplies
//   Pointer   address with `+ bytes`                  Buffer   owning memory with pointer()
//   Stream    where work is executed or recorded      Traits   plain data: limits, features, measured rates
// and everything here is written once for all devices.
#pragma once
#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/checked.h"
#include "core/problem.h"
#include "core/view.h"

namespace vkconv {

template <class Device>
class Planner;

// Weights in the layout one plan wants (packed, transformed). Those of a user's prepared object own their memory.
template <class Device>
struct PreparedWeights {
  typename Device::Pointer data{};
  std::vector<PreparedWeights> children{};
  typename Device::Buffer memory{};  // of the whole tree, in its root
};

// The arrays of one execution, named by their role in the forward geometry; the problem's pass says which of them
// is written. `bias` is contiguous (O) in the accumulator type. `prepared` (optional) was made from `weight` by
// this plan or by one with an equal weight_layout().
template <class Device>
struct Operands {
  using Pointer = typename Device::Pointer;
  View<Pointer> input, output, addend;
  WeightView<Pointer> weight;
  Pointer bias{};
  const PreparedWeights<Device>* prepared = nullptr;
};

// An immutable recipe for one problem on one device. Safe to execute from many threads.
template <class Device>
class Plan {
 public:
  using Pointer = typename Device::Pointer;
  using Stream = typename Device::Stream;

  virtual ~Plan() = default;
  // `workspace` has workspace_bytes(), aligned to 256 bytes; its content is undefined before and after.
  virtual void execute(Stream& stream, const Operands<Device>& operands, Pointer workspace) const = 0;
  virtual std::size_t workspace_bytes() const { return 0; }
  // What execute() uses of them when weights are prepared.
  virtual std::size_t prepared_workspace_bytes() const { return workspace_bytes(); }
  // As a tree: `small_kernel_depth(3x implicit_gemm)`.
  virtual std::string describe() const = 0;
  // Names the layout prepare() makes; plans with equal names share prepared weights. Empty: weights are read as
  // they are and prepare() has nothing to do.
  virtual std::string weight_layout() const { return {}; }
  virtual std::size_t prepared_bytes() const { return 0; }
  // In memory of prepared_bytes(), aligned to 256 bytes.
  virtual PreparedWeights<Device> prepare_in(Pointer, Stream&, const WeightView<Pointer>&) const { return {}; }

  // In memory of their own.
  PreparedWeights<Device> prepare(Stream& stream, const WeightView<Pointer>& weight) const {
    typename Device::Buffer memory = stream.allocate(std::max<std::size_t>(prepared_bytes(), kWorkspaceAlignment));
    PreparedWeights<Device> prepared = prepare_in(memory.pointer(), stream, weight);
    prepared.memory = std::move(memory);
    return prepared;
  }
};

// The answer to "could it be right?": empty reason means yes.
struct Support {
  std::string reason;
  explicit operator bool() const { return reason.empty(); }
  static Support yes() { return {}; }
  static Support no(std::string why) { return {std::move(why)}; }
};

// Yes for a forward problem, canonical and with something to sum.
inline Support forward_support(const ConvProblem& p) {
  if (p.pass != Pass::forward) return Support::no("it computes the forward pass only");
  if (p.flip) return Support::no("a flipped kernel is a mirrored weight view here, not a flag");
  if (p.empty_sum()) return Support::no("the sum has no terms");
  if (p.output_elements() == 0) return Support::no("the output is empty");
  return Support::yes();
}

// What a plan is made in: the described device, the caller's limit, and the planner for child problems.
template <class Device>
struct Context {
  const typename Device::Traits& traits;
  std::size_t workspace_limit_bytes;
  Planner<Device>& planner;
  int siblings = 1;  // plans like this one that may run at the same time, this one included
};

// Yes where the caller's limit holds what the plan needs: "packed weights need 12 bytes of workspace, the limit is 8".
template <class Device>
Support workspace_support(std::string_view what, std::size_t bytes, const Context<Device>& context) {
  if (bytes <= context.workspace_limit_bytes) return Support::yes();
  return Support::no(std::string(what) + " need " + std::to_string(bytes) + " bytes of workspace, the limit is " +
                     std::to_string(context.workspace_limit_bytes));
}

// One row of the registry. `supports` and `seconds` are pure and need no hardware; `make` allocates nothing on the
// device.
template <class Device>
struct Algorithm {
  std::string_view name;
  Support (*supports)(const ConvProblem&, const Context<Device>&);
  double (*seconds)(const ConvProblem&, const Context<Device>&);
  std::shared_ptr<const Plan<Device>> (*make)(const ConvProblem&, const Context<Device>&);
};

// Algorithm::make of a plan that is constructed from problem and context.
template <class P, class Device>
std::shared_ptr<const Plan<Device>> make_plan(const ConvProblem& p, const Context<Device>& context) {
  return std::make_shared<P>(p, context);
}

// The table of this device, in the order `algorithms()` lists them (registry_<device>.cpp).
template <class Device>
std::span<const Algorithm<Device>> registry();

}  // namespace vkconv
