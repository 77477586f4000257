// Weights that a user prepared, on the device and again on the device that replaces a lost one.
#pragma once
#include <map>
#include <memory>
#include <mutex>

#include "core/backend.h"
#include "vulkan/array_queue.h"
#include "vulkan/device.h"

namespace vkconv::vulkan {

// On one device: the weight and bias as given, and the weight in every layout asked for.
struct DeviceWeights {
  explicit DeviceWeights(std::shared_ptr<ArrayQueue> q) : queue(std::move(q)) {}
  ~DeviceWeights();

  const std::shared_ptr<ArrayQueue> queue;
  Buffer weight, bias;
  std::map<LayoutKey, PreparedWeights<Device>> layouts;
};

class PreparedVulkan final : public PreparedConv {
 public:
  PreparedVulkan(const ConvProblem& p, const HostOperands& operands);

  // Fills operands.weight, bias and prepared, valid for work submitted or recorded after this call while the result
  // is held. Calls that want the same layout wait for the one that records its making.
  // `p` is the plan's problem.
  std::shared_ptr<const DeviceWeights> fill(Operands<Device>& operands, const Plan<Device>& plan, const ConvProblem& p,
                                            const std::shared_ptr<ArrayQueue>& queue);

 private:
  std::shared_ptr<DeviceWeights> upload_to(const std::shared_ptr<ArrayQueue>& queue) const;

  const ConvProblem problem_;
  cpu::Buffer weight_, bias_;  // on the host, packed
  std::mutex mutex_;
  std::shared_ptr<DeviceWeights> on_device_;
};

}  // namespace vkconv::vulkan
