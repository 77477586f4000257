// What the language bindings see of a device: problems on arrays of the host or of the device. One implementation a
// device kind; everything behind it (planner, plans, device memory) is typed by its Device.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/orientation.h"
#include "core/planner.h"
#include "core/strided_array.h"
#include "cpu/device.h"

namespace vkconv {

// Views of host memory, whatever the device.
using HostOperands = Operands<cpu::Device>;

// Memory of a device that an array lives in. It may be freed while recorded work still uses it; it serves later work
// of its device only.
class ArrayMemory {
 public:
  virtual ~ArrayMemory() = default;
  virtual std::byte* address() const = 0;  // what operands hold: a number, unless it is host()
  virtual std::byte* host() const = 0;     // the same bytes as the host sees them; null where it does not
};

// The memory of operands that live on the device; null for operands in host memory.
struct Residents {
  const ArrayMemory *input = nullptr, *weight = nullptr, *output = nullptr, *bias = nullptr, *addend = nullptr;
};

// Weights, and the bias, that a user prepared. Kept on their device in every layout the plans of different input sizes
// have asked for.
class PreparedConv {
 public:
  virtual ~PreparedConv() = default;
};

// Plan::weight_layout() and the kernel: one whose axes without an extent are elsewhere has a layout of its own.
using LayoutKey = std::pair<std::string, Extent3>;

struct PlanSummary {
  std::string tree;  // small_kernel_depth(3x implicit_gemm)
  std::size_t workspace_bytes = 0;
};

// One use of a plan.
struct Execution {
  HostOperands operands{};
  PreparedConv* prepared = nullptr;  // stands for operands.weight and operands.bias
  Residents residents{};
  double* device_seconds = nullptr;  // asks for the device's own time, 0 where it has no clock; the call then waits
};

class Backend {
 public:
  virtual ~Backend() = default;

  // Computes the array that the pass writes. Returns when it is in host memory or, where it is a resident, when the
  // work is recorded: residents are used in the order of the calls, host memory is read before the call returns.
  // An array is written only on the device when any operand is a resident. What fails on the device after the call
  // is thrown by the next call that waits. Safe to call from many threads. `request.problem` is canonical.
  virtual void execute(const PlanRequest& request, const Execution& execution) = 0;
  // Copies the weight (shape from `p`) and, when p.epilogue.bias, the bias, so the caller's arrays may change
  // afterwards.
  virtual std::shared_ptr<PreparedConv> prepare(const ConvProblem& p, const HostOperands& operands) = 0;

  // Memory for a result, its content undefined; memory with a packed copy of a host array.
  virtual std::shared_ptr<ArrayMemory> allocate(std::size_t bytes) = 0;
  virtual std::shared_ptr<ArrayMemory> upload(const StridedArray& from) = 0;
  // Waits for the work recorded so far. `from` views `memory`; `to` is packed, of equal extents, in host memory.
  virtual void download(const ArrayMemory& memory, const StridedArray& from, const StridedArray& to) = 0;
  virtual void synchronize() = 0;
  // Copies between arrays of equal extents in memory of this device, of which some may be in `residents`, in the order
  // of the calls.
  virtual void copy(const StridedArray& from, const StridedArray& to, const Residents& residents) = 0;

  virtual PlanSummary summary(const PlanRequest& request) = 0;
  virtual std::vector<Candidate> explain(const ConvProblem& p, std::size_t workspace_limit_bytes) = 0;
  virtual std::vector<std::string> algorithms() const = 0;
  virtual void set_preferences(const Preferences& preferences) = 0;
  virtual CacheInfo cache_info() const = 0;
  virtual void clear_cache() = 0;
  virtual void set_cache_capacity(std::size_t capacity) = 0;
};

// The form plans are cached by: canonical fields, axes without an extent first, and no `flip`.
inline ConvProblem planned_form(ConvProblem p) {
  p = canonical(extended_axes_last(p).apply(p));
  p.flip = false;
  return p;
}

// Brings a request into it, `flip` as a mirrored weight view.
inline void canonicalize(ConvProblem& p, HostOperands& operands) {
  if (p.flip) operands.weight = operands.weight.mirrored(p.kernel, p.dtype_of(Pass::weight_grad));
  operands = extended_axes_last(p).apply(operands);
  p = planned_form(p);
}

// The planner half of a backend, the same for all devices.
template <class Device>
class PlanningBackend : public Backend {
 public:
  explicit PlanningBackend(typename Device::Traits traits) : planner_(registry<Device>(), std::move(traits)) {}

  PlanSummary summary(const PlanRequest& request) override {
    const auto plan = planner_.plan(request);
    return {plan->describe(), plan->workspace_bytes()};
  }
  std::vector<Candidate> explain(const ConvProblem& p, std::size_t limit) override {
    return planner_.explain(p, limit);
  }
  std::vector<std::string> algorithms() const override {
    std::vector<std::string> names;
    for (const auto& row : planner_.table()) names.emplace_back(row.name);
    return names;
  }
  void set_preferences(const Preferences& preferences) override { planner_.set_preferences(preferences); }
  CacheInfo cache_info() const override { return planner_.cache_info(); }
  void clear_cache() override { planner_.clear_cache(); }
  void set_cache_capacity(std::size_t capacity) override { planner_.set_cache_capacity(capacity); }

 protected:
  Planner<Device> planner_;
};

}  // namespace vkconv
