#include "vulkan/prepared.h"

#include <cstring>

#include "core/interruption.h"
#include "vulkan/transfer.h"

namespace vkconv::vulkan {
namespace {

std::size_t bias_bytes(const ConvProblem& p) {
  return p.epilogue.bias ? static_cast<std::size_t>(p.out_channels) * size_bytes(accumulator(p.dtype)) : 0;
}

HostArray flat_words(std::byte* data, std::size_t bytes) {
  return {data, {1, 1, 1, 1, 1, static_cast<std::int64_t>(bytes / 4)}, {0, 0, 0, 0, 0, 1}, 4};
}

}  // namespace

DeviceWeights::~DeviceWeights() {
  queue->release(std::move(weight));
  queue->release(std::move(bias));
  for (auto& [key, layout] : layouts) queue->release(std::move(layout.memory));
}

PreparedVulkan::PreparedVulkan(const ConvProblem& p, const HostOperands& operands)
    : problem_(p), weight_(static_cast<std::size_t>(p.weight_elements()) * size_bytes(p.dtype)), bias_(bias_bytes(p)) {
  const HostArray array = strided(operands.weight, p, p.dtype);
  pack(array, 0, array.elements(), weight_.pointer());
  if (bias_bytes(p) > 0) std::memcpy(bias_.pointer(), operands.bias, bias_bytes(p));
}

std::shared_ptr<const DeviceWeights> PreparedVulkan::fill(Operands<Device>& operands, const Plan<Device>& plan,
                                                          const ConvProblem& p,
                                                          const std::shared_ptr<ArrayQueue>& queue) {
  const Interruptible by_nothing(nullptr);
  std::lock_guard lock(mutex_);
  if (!on_device_ || on_device_->queue != queue) on_device_ = upload_to(queue);
  operands.weight = contiguous_weight(on_device_->weight.pointer(), p);
  operands.bias = on_device_->bias.pointer();
  if (const LayoutKey key{plan.weight_layout(), p.kernel}; !key.first.empty()) {
    auto it = on_device_->layouts.find(key);
    if (it == on_device_->layouts.end()) {
      it = on_device_->layouts.try_emplace(key).first;
      try {
        Stream stream(queue->device());
        it->second = plan.prepare(stream, operands.weight);
        queue->adopt(std::move(stream));
      } catch (...) {  // nothing makes what was to be in it
        on_device_->layouts.erase(it);
        throw;
      }
    }
    operands.prepared = &it->second;
  }
  return on_device_;
}

std::shared_ptr<DeviceWeights> PreparedVulkan::upload_to(const std::shared_ptr<ArrayQueue>& queue) const {
  auto made = std::make_shared<DeviceWeights>(queue);
  const HostArray weight = strided(contiguous_weight(weight_.pointer(), problem_), problem_, problem_.dtype);
  made->weight = queue->allocate_unused(weight.bytes());
  const HostArray bias = flat_words(bias_.pointer(), bias_bytes(problem_));
  made->bias = queue->allocate_unused(bias.bytes());
  Stream stream(queue->device());
  upload(stream, weight, made->weight);
  if (bias.bytes() > 0) upload(stream, bias, made->bias);
  queue->adopt(std::move(stream));
  return made;
}

}  // namespace vkconv::vulkan
