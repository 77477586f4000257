// What the language bindings see of a device: problems on host arrays. One implementation a device kind; everything
// behind it (planner, plans, device memory) is typed by its Device.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/planner.h"
#include "cpu/device.h"

namespace vkconv {

// Views of host memory, whatever the device.
using HostOperands = Operands<cpu::Device>;

// Weights a user prepared. Kept on their device in every layout the plans of different input sizes have asked for.
class PreparedConv {
 public:
  virtual ~PreparedConv() = default;
};

struct PlanSummary {
  std::string tree;  // small_kernel_depth(3x implicit_gemm)
  std::size_t workspace_bytes = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // Computes the array that the pass writes and returns when it is in host memory. `prepared` stands for
  // operands.weight when given. Safe to call from many threads. `request.problem` is canonical.
  virtual void run(const PlanRequest& request, const HostOperands& operands, PreparedConv* prepared) = 0;
  // Copies the weight (shape from `p`), so the caller's array may change afterwards.
  virtual std::shared_ptr<PreparedConv> prepare(const ConvProblem& p, const WeightView<std::byte*>& weight) = 0;

  virtual PlanSummary summary(const PlanRequest& request) = 0;
  virtual std::vector<Candidate> explain(const ConvProblem& p, std::size_t workspace_limit_bytes) = 0;
  virtual std::vector<std::string> algorithms() const = 0;
  virtual CacheInfo cache_info() const = 0;
  virtual void clear_cache() = 0;
  virtual void set_cache_capacity(std::size_t capacity) = 0;
};

// Brings a request into the form plans are cached by: canonical fields, and `flip` as a mirrored weight view.
inline void canonicalize(ConvProblem& p, HostOperands& operands) {
  p = canonical(p);
  if (!p.flip) return;
  p.flip = false;
  const DType weight_type = p.pass == Pass::weight_grad ? p.output_dtype : p.dtype;
  operands.weight = operands.weight.mirrored(p.kernel, weight_type);
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
  CacheInfo cache_info() const override { return planner_.cache_info(); }
  void clear_cache() override { planner_.clear_cache(); }
  void set_cache_capacity(std::size_t capacity) override { planner_.set_cache_capacity(capacity); }

 protected:
  Planner<Device> planner_;
};

}  // namespace vkconv
