#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "vulkan/array_queue.h"
#include "vulkan/device.h"
#include "vulkan/logical_device.h"

namespace vkconv::vulkan {
namespace {

struct Slots {
  std::mutex mutex;
  std::map<int, std::shared_ptr<ArrayQueue>> queues;
};

// Never destroyed: buffers may outlive static destructors.
Slots& slots() {
  static Slots& s = *new Slots;
  return s;
}

}  // namespace

std::shared_ptr<ArrayQueue> open_queue(int index) {
  const Instance& instance = Instance::get();
  if (index < 0 || index >= static_cast<int>(instance.devices().size())) {
    const std::string name = "there is no device 'vulkan:" + std::to_string(index) + "': ";
    throw DeviceError(name + (instance.devices().empty() ? instance.list().reason
                                                         : std::to_string(instance.devices().size()) + " found"));
  }
  const PhysicalDevice& physical = instance.devices()[static_cast<std::size_t>(index)];
  if (!physical.info.unusable.empty())
    throw DeviceError("'" + physical.info.traits.name + "' cannot be used: " + physical.info.unusable);
  Slots& s = slots();
  std::lock_guard lock(s.mutex);
  std::shared_ptr<ArrayQueue>& queue = s.queues[index];
  if (queue && queue->device()->lost()) queue.reset();
  if (!queue) queue = std::make_shared<ArrayQueue>(LogicalDevice::create(physical));
  return queue;
}

std::shared_ptr<LogicalDevice> open_device(int index) { return open_queue(index)->device(); }

MemoryInfo memory_info(int index) {
  const auto queue = open_queue(index);
  queue->collect();
  return queue->device()->memory().info();
}
void reset_memory_peak(int index) { open_device(index)->memory().reset_peak(); }
void trim_memory(int index) {
  const auto queue = open_queue(index);
  queue->collect();
  queue->device()->memory().trim();
}

}  // namespace vkconv::vulkan
