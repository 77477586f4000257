#include "cpu/backend.h"

#include <cstring>
#include <map>
#include <mutex>

#include "core/fork_mutex.h"
#include "cpu/strided_copy.h"

namespace vkconv::cpu {
namespace {

class HostMemory final : public ArrayMemory {
 public:
  explicit HostMemory(std::size_t bytes) : buffer_(bytes) {}
  std::byte* address() const override { return buffer_.pointer(); }
  std::byte* host() const override { return buffer_.pointer(); }

 private:
  Buffer buffer_;
};

// The user's weight copied as (O, KD, KH, KW, I), and its prepared layouts by name; the user's bias.
class PreparedCpu final : public PreparedConv {
 public:
  PreparedCpu(const ConvProblem& p, const HostOperands& operands)
      : storage_(static_cast<std::size_t>(p.weight_elements()) * size_bytes(p.dtype)) {
    cpu::copy(strided(operands.weight, p, p.dtype), strided(view(p), p, p.dtype));
    if (!p.epilogue.bias) return;
    const std::size_t bytes = static_cast<std::size_t>(p.out_channels) * size_bytes(accumulator(p.dtype));
    bias_ = Buffer(bytes);
    if (bytes > 0) std::memcpy(bias_.pointer(), operands.bias, bytes);
  }

  // `p` is a problem of these weights, whose axes without an extent may be elsewhere.
  WeightView<std::byte*> view(const ConvProblem& p) const { return contiguous_weight(storage_.pointer(), p); }
  std::byte* bias() const { return bias_.pointer(); }

  const PreparedWeights<Device>* layout_for(const Plan<Device>& plan, const ConvProblem& p) {
    const LayoutKey key{plan.weight_layout(), p.kernel};
    if (key.first.empty()) return nullptr;
    if (const auto* made = find(key)) return made;
    Device::Stream stream;
    PreparedWeights<Device> made = plan.prepare(stream, view(p));
    std::lock_guard lock(mutex_);
    return &layouts_.try_emplace(key, std::move(made)).first->second;  // or the one another thread made meanwhile
  }

 private:
  const PreparedWeights<Device>* find(const LayoutKey& key) {
    std::lock_guard lock(mutex_);
    const auto it = layouts_.find(key);
    return it == layouts_.end() ? nullptr : &it->second;
  }

  Buffer storage_;
  Buffer bias_;
  ForkMutex mutex_;
  std::map<LayoutKey, PreparedWeights<Device>> layouts_;
};

class CpuBackend final : public PlanningBackend<Device> {
 public:
  using PlanningBackend::PlanningBackend;

  void execute(const PlanRequest& request, const Execution& execution) override {
    const auto plan = planner_.plan(request);
    Buffer workspace;
    if (plan->workspace_bytes() > 0) workspace = Buffer(plan->workspace_bytes());
    Device::Stream stream;
    HostOperands operands = execution.operands;
    if (execution.prepared) {
      auto& own = static_cast<PreparedCpu&>(*execution.prepared);
      operands.weight = own.view(request.problem);
      operands.bias = own.bias();
      operands.prepared = own.layout_for(*plan, request.problem);
    }
    plan->execute(stream, operands, workspace.pointer());
    if (execution.device_seconds) *execution.device_seconds = 0;
  }

  std::shared_ptr<PreparedConv> prepare(const ConvProblem& p, const HostOperands& operands) override {
    return std::make_shared<PreparedCpu>(p, operands);
  }

  std::shared_ptr<ArrayMemory> allocate(std::size_t bytes) override { return std::make_shared<HostMemory>(bytes); }
  std::shared_ptr<ArrayMemory> upload(const StridedArray& from) override {
    auto memory = std::make_shared<HostMemory>(from.bytes());
    cpu::copy(from, packed(from, memory->address()));
    return memory;
  }
  void download(const ArrayMemory&, const StridedArray& from, const StridedArray& to) override { cpu::copy(from, to); }
  void synchronize() override {}
  void copy(const StridedArray& from, const StridedArray& to, const Residents&) override { cpu::copy(from, to); }
};

}  // namespace

std::unique_ptr<Backend> make_backend() { return std::make_unique<CpuBackend>(host_traits()); }

}  // namespace vkconv::cpu
