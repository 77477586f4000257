// Runs one problem on a Vulkan device from plain vectors: the counterpart of run_cpu in harness.h.
#pragma once
#include "algorithms/registry_vulkan.h"
#include "harness.h"
#include "vulkan/backend.h"

namespace vkconv::tools {

// Of a device that can be used: throws DeviceError otherwise.
inline const vulkan::Traits& usable_traits(int index) {
  vulkan::open_device(index);
  return vulkan::enumerate_devices().devices[static_cast<std::size_t>(index)].traits;
}

// The arrays of a problem in device memory.
class DeviceOperands {
 public:
  DeviceOperands(const HostOperands& host, vulkan::Stream& stream) {
    const std::vector<std::byte>* const sources[] = {&host.input, &host.weight, &host.output, &host.bias, &host.addend};
    for (const auto* source : sources) buffers_.push_back(upload(*source, stream));
    const auto& from = host.operands;
    operands.input = {at(0, host.input, from.input.data), from.input.stride};
    operands.output = {at(2, host.output, from.output.data), from.output.stride};
    operands.addend = {at(4, host.addend, from.addend.data), from.addend.stride};
    const auto& w = from.weight;
    operands.weight = {at(1, host.weight, w.data), w.group, w.out, w.in, w.tap};
    operands.bias = at(3, host.bias, from.bias);
  }

  // Copies the arrays back over those of `host`.
  void download(HostOperands& host, vulkan::Stream& stream) const {
    std::vector<std::byte>* const targets[] = {&host.input, &host.weight, &host.output};
    for (std::size_t i = 0; i < 3; ++i) {
      const vulkan::Buffer staging = stream.allocate(targets[i]->size(), vulkan::MemoryKind::staging);
      stream.copy(staging.pointer(), buffers_[i].pointer(), targets[i]->size());
      stream.wait();
      std::memcpy(targets[i]->data(), staging.mapped(), targets[i]->size());
    }
  }

  Operands<vulkan::Device> operands;

 private:
  static vulkan::Buffer upload(const std::vector<std::byte>& bytes, vulkan::Stream& stream) {
    vulkan::Buffer buffer = stream.allocate(bytes.size());
    const vulkan::Buffer staging = stream.allocate(bytes.size(), vulkan::MemoryKind::staging);
    std::memcpy(staging.mapped(), bytes.data(), bytes.size());
    stream.copy(buffer.pointer(), staging.pointer(), bytes.size());
    stream.wait();
    return buffer;
  }
  vulkan::Pointer at(std::size_t i, const std::vector<std::byte>& host, const std::byte* p) const {
    return buffers_[i].pointer() + static_cast<std::uint64_t>(p - host.data());
  }

  std::vector<vulkan::Buffer> buffers_;
};

inline void execute(const Plan<vulkan::Device>& plan, vulkan::Stream& stream, Operands<vulkan::Device> operands,
                    bool prepare) {
  const vulkan::Buffer workspace = stream.allocate(std::max<std::size_t>(plan.workspace_bytes(), 4));
  PreparedWeights<vulkan::Device> prepared;
  if (prepare) {
    prepared = plan.prepare(stream, operands.weight);
    operands.prepared = &prepared;
  }
  plan.execute(stream, operands, workspace.pointer());
  stream.wait();
}

inline std::vector<double> run_vulkan(const ConvProblem& p, const Arrays& a, Planner<vulkan::Device>& planner,
                                      vulkan::Stream& stream, const std::string& algorithm,
                                      std::size_t workspace_limit = kDefaultWorkspaceLimitBytes, bool prepare = false) {
  const auto plan = planner.plan({without_flip(p), algorithm, workspace_limit});
  HostOperands host(p, a);
  const DeviceOperands device(host, stream);
  execute(*plan, stream, device.operands, prepare);
  device.download(host, stream);
  return host.result(p);
}

}  // namespace vkconv::tools
