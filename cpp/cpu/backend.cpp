#include "cpu/backend.h"

#include <cstring>
#include <map>
#include <mutex>

namespace vkconv::cpu {
namespace {

// The user's weight copied as (O, KD, KH, KW, I), and its prepared layouts by name.
class PreparedCpu final : public PreparedConv {
 public:
  PreparedCpu(const ConvProblem& p, const WeightView<std::byte*>& weight)
      : storage_(static_cast<std::size_t>(p.weight_elements()) * size_bytes(p.dtype)) {
    view_ = contiguous_weight(storage_.pointer(), p);
    const std::size_t element = size_bytes(p.dtype);
    std::byte* to = storage_.pointer();
    for (std::int64_t g = 0; g < p.groups; ++g)
      for (std::int64_t o = 0; o < p.out_channels_per_group(); ++o)
        for (std::int64_t d = 0; d < p.kernel[0]; ++d)
          for (std::int64_t h = 0; h < p.kernel[1]; ++h)
            for (std::int64_t w = 0; w < p.kernel[2]; ++w)
              for (std::int64_t i = 0; i < p.in_channels_per_group(); ++i, to += element) {
                const std::int64_t from = g * weight.group + o * weight.out + d * weight.tap[0] + h * weight.tap[1] +
                                          w * weight.tap[2] + i * weight.in;
                std::memcpy(to, weight.data + from * static_cast<std::int64_t>(element), element);
              }
  }

  const WeightView<std::byte*>& view() const { return view_; }

  const PreparedWeights<Device>* layout_for(const Plan<Device>& plan) {
    const std::string name = plan.weight_layout();
    if (name.empty()) return nullptr;
    std::lock_guard lock(mutex_);
    auto it = layouts_.find(name);
    if (it == layouts_.end()) {
      Device::Stream stream;
      it = layouts_.emplace(name, plan.prepare(stream, view_)).first;
    }
    return &it->second;
  }

 private:
  Buffer storage_;
  WeightView<std::byte*> view_;
  std::mutex mutex_;
  std::map<std::string, PreparedWeights<Device>> layouts_;
};

class CpuBackend final : public PlanningBackend<Device> {
 public:
  using PlanningBackend::PlanningBackend;

  void run(const PlanRequest& request, const HostOperands& operands, PreparedConv* prepared) override {
    const auto plan = planner_.plan(request);
    Buffer workspace;
    if (plan->workspace_bytes() > 0) workspace = Buffer(plan->workspace_bytes());
    Device::Stream stream;
    if (!prepared) return plan->execute(stream, operands, workspace.pointer());
    auto& own = static_cast<PreparedCpu&>(*prepared);
    HostOperands with_weight = operands;
    with_weight.weight = own.view();
    with_weight.prepared = own.layout_for(*plan);
    plan->execute(stream, with_weight, workspace.pointer());
  }

  std::shared_ptr<PreparedConv> prepare(const ConvProblem& p, const WeightView<std::byte*>& weight) override {
    return std::make_shared<PreparedCpu>(p, weight);
  }
};

}  // namespace

std::unique_ptr<Backend> make_backend() { return std::make_unique<CpuBackend>(host_traits()); }

}  // namespace vkconv::cpu
