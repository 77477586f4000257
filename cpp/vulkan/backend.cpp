#include "vulkan/backend.h"

#include <cstring>
#include <map>
#include <mutex>

#include "algorithms/registry_vulkan.h"
#include "vulkan/device.h"
#include "vulkan/transfer.h"

namespace vkconv::vulkan {
namespace {

using Arrays = Operands<Device>;

struct DeviceArray {
  HostArray host;
  Buffer buffer;
};

// Axes that repeat one element on the host are copied once and repeat on the device.
void store_broadcasts_once(HostArray& array) {
  for (int a = 0; a < 6; ++a)
    if (array.stride[a] == 0) array.extent[a] = 1;
}

std::array<std::int64_t, 6> packed_strides(const HostArray& array, const HostArray& stored) {
  std::array<std::int64_t, 6> stride{};
  std::int64_t next = 1;
  for (int a = 5; a >= 0; --a) {
    stride[a] = stored.extent[a] == array.extent[a] ? next : 0;
    next *= stored.extent[a];
  }
  return stride;
}

View<Pointer> packed_view(Pointer data, const std::array<std::int64_t, 6>& s) {
  return {data, {s[1], s[2], s[3], s[4], 1}};
}
WeightView<Pointer> packed_weight(Pointer data, const std::array<std::int64_t, 6>& s) {
  return {data, s[0], s[1], s[5], {s[2], s[3], s[4]}};
}

// A prepared weight on one device, as given and in every layout asked for.
struct DeviceWeights {
  std::shared_ptr<LogicalDevice> device;
  Buffer raw;
  std::map<std::string, PreparedWeights<Device>> layouts;
};

// The user's weight, packed on the host and uploaded when it is first used and after the device was lost.
class PreparedVulkan final : public PreparedConv {
 public:
  PreparedVulkan(const ConvProblem& p, const WeightView<std::byte*>& weight)
      : problem_(p), host_(static_cast<std::size_t>(p.weight_elements()) * size_bytes(p.dtype)) {
    const HostArray array = host_array(weight, p, p.dtype);
    pack(array, 0, array.elements(), host_.pointer());
  }

  // Fills operands.weight and operands.prepared, valid while the result is held. Calls that want the same layout wait
  // for the one that makes it.
  std::shared_ptr<const DeviceWeights> fill(Arrays& operands, const Plan<Device>& plan,
                                            const std::shared_ptr<LogicalDevice>& device) {
    std::lock_guard lock(mutex_);
    if (!weights_ || weights_->device != device) weights_ = upload_to(device);
    operands.weight = contiguous_weight(weights_->raw.pointer(), problem_);
    if (const std::string name = plan.weight_layout(); !name.empty()) {
      auto it = weights_->layouts.find(name);
      if (it == weights_->layouts.end()) {
        Stream stream(device);
        PreparedWeights<Device> made = plan.prepare(stream, operands.weight);
        stream.wait();
        it = weights_->layouts.emplace(name, std::move(made)).first;
      }
      operands.prepared = &it->second;
    }
    return weights_;
  }

 private:
  std::shared_ptr<DeviceWeights> upload_to(const std::shared_ptr<LogicalDevice>& device) {
    Stream stream(device);
    const HostArray array = host_array(contiguous_weight(host_.pointer(), problem_), problem_, problem_.dtype);
    auto weights = std::make_shared<DeviceWeights>();
    weights->device = device;
    weights->raw = stream.allocate(array.bytes());
    upload(stream, array, weights->raw);
    stream.wait();
    return weights;
  }

  const ConvProblem problem_;
  cpu::Buffer host_;
  std::mutex mutex_;
  std::shared_ptr<DeviceWeights> weights_;
};

// One call: uploads what the pass reads, runs the plan and downloads what it writes.
class Call {
 public:
  Call(const ConvProblem& p, const HostOperands& host, std::shared_ptr<LogicalDevice> device)
      : p_(p), host_(host), device_(std::move(device)), stream_(device_) {}

  void run(const Plan<Device>& plan, PreparedVulkan* prepared) {
    if (prepared) weights_ = prepared->fill(operands_, plan, device_);
    bind_input();
    bind_output();
    if (!prepared) bind_weight();
    bind_epilogue();
    Pointer workspace = 0;
    if (plan.workspace_bytes() > 0) {
      Buffer buffer = stream_.allocate(plan.workspace_bytes());
      workspace = buffer.pointer();
      stream_.keep(std::move(buffer));
    }
    plan.execute(stream_, operands_, workspace);
    download(stream_, written_.buffer, written_.host);
  }

 private:
  // Packed strides of the device copy of an array that is read, or of the array that will be written. `repeats`:
  // axes of stride 0 keep it.
  std::array<std::int64_t, 6> bind(const HostArray& array, bool written, bool repeats, Pointer& data) {
    DeviceArray made{array, {}};
    if (repeats) store_broadcasts_once(made.host);
    made.buffer = stream_.allocate(made.host.bytes());
    data = made.buffer.pointer();
    const auto stride = packed_strides(array, made.host);
    if (written) {
      written_ = std::move(made);
    } else {
      upload(stream_, made.host, made.buffer);
      stream_.keep(std::move(made.buffer));
    }
    return stride;
  }

  void bind_input() {
    const bool written = p_.pass == Pass::input_grad;
    Pointer data = 0;
    const HostArray array = host_array(host_.input, p_.batch, p_.input, p_.in_channels, type(written));
    const auto strides = bind(array, written, !written, data);
    operands_.input = packed_view(data, strides);
  }

  void bind_output() {
    const bool written = p_.pass == Pass::forward;
    Pointer data = 0;
    const HostArray array = host_array(host_.output, p_.batch, p_.output, p_.out_channels, type(written));
    const auto strides = bind(array, written, !written, data);
    operands_.output = packed_view(data, strides);
  }

  void bind_weight() {
    const bool written = p_.pass == Pass::weight_grad;
    Pointer data = 0;
    const auto s = bind(host_array(host_.weight, p_, type(written)), written, false, data);
    operands_.weight = packed_weight(data, s);
  }

  void bind_epilogue() {
    const DType t = accumulator(p_.dtype);
    if (p_.epilogue.bias) {
      const HostArray bias{host_.bias, {1, 1, 1, 1, 1, p_.out_channels}, {0, 0, 0, 0, 0, 1}, size_bytes(t)};
      bind(bias, false, false, operands_.bias);
    }
    if (p_.epilogue.addend) {
      Pointer data = 0;
      const auto s = bind(host_array(host_.addend, p_.batch, p_.output, p_.out_channels, t), false, true, data);
      operands_.addend = packed_view(data, s);
    }
  }

  DType type(bool written) const { return written ? p_.output_dtype : p_.dtype; }

  const ConvProblem& p_;
  const HostOperands& host_;
  std::shared_ptr<LogicalDevice> device_;
  Arrays operands_;
  std::shared_ptr<const DeviceWeights> weights_;
  DeviceArray written_;
  Stream stream_;
};

class VulkanBackend final : public PlanningBackend<Device> {
 public:
  VulkanBackend(int index, Traits traits) : PlanningBackend(std::move(traits)), index_(index) {}

  void run(const PlanRequest& request, const HostOperands& operands, PreparedConv* prepared) override {
    const auto plan = planner_.plan(request);
    Call(request.problem, operands, open_device(index_)).run(*plan, static_cast<PreparedVulkan*>(prepared));
  }

  std::shared_ptr<PreparedConv> prepare(const ConvProblem& p, const WeightView<std::byte*>& weight) override {
    return std::make_shared<PreparedVulkan>(p, weight);
  }

 private:
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
