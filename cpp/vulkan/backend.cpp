#include "vulkan/backend.h"

#include <array>
#include <optional>
#include <vector>

#include "algorithms/registry_vulkan.h"
#include "vulkan/array_queue.h"
#include "vulkan/device.h"
#include "vulkan/host_import.h"
#include "vulkan/logical_device.h"
#include "vulkan/pack_weights.h"
#include "vulkan/parts.h"
#include "vulkan/prepared.h"
#include "vulkan/transfer.h"

namespace vkconv::vulkan {
namespace {

struct DeviceArray {
  HostArray host;
  Buffer buffer;
};

// Axes that repeat one element on the host are copied once and repeat on the device.
HostArray with_broadcasts_once(HostArray array) {
  for (int a = 0; a < 6; ++a)
    if (array.stride[a] == 0) array.extent[a] = 1;
  return array;
}

std::array<std::int64_t, 6> packed_strides(const HostArray& array, const HostArray& stored) {
  auto stride = packed(stored, nullptr).stride;
  for (int a = 0; a < 6; ++a)
    if (stored.extent[a] != array.extent[a]) stride[a] = 0;
  return stride;
}

Pointer address_of(const std::byte* p) { return reinterpret_cast<std::uintptr_t>(p); }

// What must outlive the stream of a call on host arrays.
struct HostSide {
  DeviceArray written;  // without a buffer where the device writes host memory
  std::vector<HostImport> imports;
};

// The arrays of one execution as the device sees them: residents where they are, host arrays imported when `side` says
// that the call waits, else uploaded and kept by the stream.
class Arrays {
 public:
  Arrays(const ConvProblem& p, const Execution& execution, Stream& stream, HostSide* side)
      : p_(p), host_(execution.operands), residents_(execution.residents), stream_(stream), side_(side) {}

  Operands<Device> operands;

  void bind(bool prepared) {
    bind_input();
    bind_output();
    if (prepared) return bind_addend();
    bind_weight();
    bind_bias();
    bind_addend();
  }
  // Waits, with what was written in the host's array.
  void finish() {
    const DeviceArray& written = side_->written;
    if (written.buffer.pointer())
      download(stream_, written.buffer, written.host);
    else
      stream_.wait();
  }

 private:
  // Packed device memory for an array that is written, which finish() brings back, or with a copy of one that is read.
  Pointer packed_copy(const HostArray& array, bool written) {
    if (!written) return upload_new(stream_, array);
    side_->written = {array, stream_.allocate(array.bytes())};
    return side_->written.buffer.pointer();
  }

  View<Pointer> view_of(const ArrayMemory* resident, const View<std::byte*>& v, const HostArray& array, bool written) {
    if (resident) return {address_of(v.data), v.stride};
    if (side_)
      if (auto import = HostImport::make(stream_.device(), array))
        return {side_->imports.emplace_back(std::move(*import)).pointer_to(v.data), v.stride};
    const HostArray stored = written ? array : with_broadcasts_once(array);
    const Pointer data = packed_copy(stored, written);
    const auto s = packed_strides(array, stored);
    return {data, {s[1], s[2], s[3], s[4], 1}};
  }

  void bind_input() {
    const bool written = p_.pass == Pass::input_grad;
    operands.input = view_of(residents_.input, host_.input,
                             strided(host_.input, p_.batch, p_.input, p_.in_channels, type(written)), written);
  }

  void bind_output() {
    const bool written = p_.pass == Pass::forward;
    operands.output = view_of(residents_.output, host_.output,
                              strided(host_.output, p_.batch, p_.output, p_.out_channels, type(written)), written);
  }

  void bind_weight() {
    const WeightView<std::byte*>& w = host_.weight;
    if (residents_.weight) {
      operands.weight = {address_of(w.data), w.group, w.out, w.in, w.tap};
      return;
    }
    const bool written = p_.pass == Pass::weight_grad;
    const HostArray array = strided(w, p_, type(written));
    const Pointer data = packed_copy(array, written);
    const auto s = packed(array, nullptr).stride;
    operands.weight = {data, s[0], s[1], s[5], {s[2], s[3], s[4]}};
  }

  void bind_bias() {
    if (!p_.epilogue.bias) return;
    if (residents_.bias) {
      operands.bias = address_of(host_.bias);
      return;
    }
    const HostArray bias{
        host_.bias, {1, 1, 1, 1, 1, p_.out_channels}, {0, 0, 0, 0, 0, 1}, size_bytes(accumulator(p_.dtype))};
    operands.bias = upload_new(stream_, bias);
  }

  void bind_addend() {
    if (!p_.epilogue.addend) return;
    const DType t = accumulator(p_.dtype);
    operands.addend =
        view_of(residents_.addend, host_.addend, strided(host_.addend, p_.batch, p_.output, p_.out_channels, t), false);
  }

  DType type(bool written) const { return written ? p_.output_dtype : p_.dtype; }

  const ConvProblem& p_;
  const HostOperands& host_;
  const Residents& residents_;
  Stream& stream_;
  HostSide* side_;
};

bool writes_resident(const ConvProblem& p, const Residents& r) {
  return p.pass == Pass::forward ? r.output : p.pass == Pass::input_grad ? r.input : r.weight;
}

void require_queue(const Residents& residents, const ArrayQueue& queue) {
  for (const ArrayMemory* memory :
       {residents.input, residents.weight, residents.output, residents.bias, residents.addend})
    if (memory && static_cast<const DeviceMemory*>(memory)->queue() != &queue)
      throw DeviceError("an array lies in memory of a Vulkan device that was lost");
}

class VulkanBackend final : public PlanningBackend<Device> {
 public:
  VulkanBackend(int index, Traits traits) : PlanningBackend(std::move(traits)), index_(index) {}

  // Short memory: arrays that nothing refers to any more may still be in use, else a plan with less scratch memory is
  // taken, else host arrays go in two parts.
  void execute(const PlanRequest& request, const Execution& execution) override {
    try {
      attempt(request, execution);
    } catch (const OutOfMemory&) {
      const auto queue = open_queue(index_);
      queue->wait();
      queue->device()->memory().trim();
      try {
        attempt(request, execution);
      } catch (const OutOfMemory&) {
        if (!execute_in_less(request, execution) && !execute_halves(request, execution)) throw;
      }
    }
  }

  std::shared_ptr<PreparedConv> prepare(const ConvProblem& p, const HostOperands& operands) override {
    return std::make_shared<PreparedVulkan>(p, operands);
  }

  std::shared_ptr<ArrayMemory> allocate(std::size_t bytes) override {
    auto queue = open_queue(index_);
    Buffer buffer = queue->allocate(bytes);
    return std::make_shared<DeviceMemory>(std::move(queue), std::move(buffer));
  }

  std::shared_ptr<ArrayMemory> upload(const StridedArray& from) override {
    const auto queue = open_queue(index_);
    auto memory = std::make_shared<DeviceMemory>(queue, queue->allocate_unused(from.bytes()));
    Stream stream(queue->device());
    vulkan::upload(stream, from, memory->buffer());
    if (stream.recorded() > 0) queue->adopt(std::move(stream));
    return memory;
  }

  void download(const ArrayMemory& opaque, const StridedArray& from, const StridedArray& to) override {
    const auto& memory = static_cast<const DeviceMemory&>(opaque);
    const auto queue = open_queue(index_);
    require_queue({.input = &memory}, *queue);
    queue->wait();
    Stream stream(queue->device());
    download_view(stream, memory.buffer(), from, to);
  }

  void synchronize() override { open_queue(index_)->wait(); }

  void copy(const StridedArray& from, const StridedArray& to, const Residents& residents) override {
    const auto queue = open_queue(index_);
    require_queue(residents, *queue);
    queue->record([&](Stream& stream) { vulkan::copy(stream, from, to); });
  }

 private:
  void attempt(const PlanRequest& request, const Execution& execution) {
    const auto plan = planner_.plan(request);
    const auto queue = open_queue(index_);
    require_queue(execution.residents, *queue);
    if (writes_resident(request.problem, execution.residents) && !execution.device_seconds)
      record(request.problem, *plan, execution, queue);
    else
      run_now(request.problem, *plan, execution, queue);
  }

  // In scratch memory of a quarter of what the arrays take.
  bool execute_in_less(const PlanRequest& request, const Execution& execution) try {
    const auto limit = static_cast<std::size_t>(request.problem.bytes_moved() / 4);
    if (!request.algorithm.empty() || request.workspace_limit_bytes <= limit) return false;
    attempt({request.problem, "", limit}, execution);
    return true;
  } catch (const OutOfMemory&) {
    return false;
  } catch (const ProblemError&) {  // no plan runs in so little
    return false;
  }

  bool execute_halves(const PlanRequest& request, const Execution& execution) {
    const Residents& r = execution.residents;
    if (r.input || r.weight || r.output || r.bias || r.addend) return false;
    const std::vector<Part> parts = halves(request.problem, execution.operands);
    double seconds = 0;
    for (const Part& part : parts) {
      execute({part.problem, request.algorithm, request.workspace_limit_bytes},
              {.operands = part.operands, .prepared = execution.prepared, .device_seconds = execution.device_seconds});
      if (execution.device_seconds) seconds += *execution.device_seconds;
    }
    if (execution.device_seconds) *execution.device_seconds = seconds;
    return !parts.empty();
  }

  static void record(const ConvProblem& p, const Plan<Device>& plan, const Execution& execution,
                     const std::shared_ptr<ArrayQueue>& queue) {
    std::optional<DeviceMemory> workspace;
    if (plan.workspace_bytes() > 0) workspace.emplace(queue, queue->allocate(plan.workspace_bytes()));
    Operands<Device> operands;
    const auto weights = fill(operands, plan, p, execution, queue);
    queue->record([&](Stream& stream) {
      Arrays arrays(p, execution, stream, nullptr);
      arrays.operands = operands;
      arrays.bind(weights != nullptr);
      plan.execute(stream, arrays.operands, workspace ? workspace->buffer().pointer() : 0);
    });
  }

  // In a stream of its own, behind what is recorded.
  static void run_now(const ConvProblem& p, const Plan<Device>& plan, const Execution& execution,
                      const std::shared_ptr<ArrayQueue>& queue) {
    HostSide side;
    Operands<Device> operands;
    const auto weights = fill(operands, plan, p, execution, queue);
    queue->flush();
    Stream stream(queue->device());
    Arrays arrays(p, execution, stream, &side);
    arrays.operands = operands;
    arrays.bind(weights != nullptr);
    Pointer workspace = 0;
    if (plan.workspace_bytes() > 0) workspace = stream.keep(stream.allocate(plan.workspace_bytes())).pointer();
    if (execution.device_seconds) stream.start_timer();
    plan.execute(stream, arrays.operands, workspace);
    if (execution.device_seconds) stream.stop_timer();
    arrays.finish();
    if (execution.device_seconds) *execution.device_seconds = stream.timed_seconds();
  }

  static std::shared_ptr<const DeviceWeights> fill(Operands<Device>& operands, const Plan<Device>& plan,
                                                   const ConvProblem& p, const Execution& execution,
                                                   const std::shared_ptr<ArrayQueue>& queue) {
    if (!execution.prepared) return nullptr;
    return static_cast<PreparedVulkan*>(execution.prepared)->fill(operands, plan, p, queue);
  }

  const int index_;
};

}  // namespace

std::unique_ptr<Backend> make_backend(int index) {
  const auto& devices = enumerate_devices().devices;
  if (index < 0 || index >= static_cast<int>(devices.size()) ||
      !devices[static_cast<std::size_t>(index)].unusable.empty())
    open_device(index);  // throws the reason
  return std::make_unique<VulkanBackend>(index, devices[static_cast<std::size_t>(index)].traits);
}

}  // namespace vkconv::vulkan
