// The process's Vulkan instance and its physical devices.
#pragma once
#include <vector>

#include "vulkan/backend.h"
#include "vulkan/raii.h"

namespace vkconv::vulkan {

struct PhysicalDevice {
  vk::raii::PhysicalDevice handle;
  DeviceInfo info;
};

// Created by the first call and never destroyed: buffers may outlive static destructors. Throws DeviceError in a
// child process that was forked after it was created; a Vulkan driver does not survive a fork.
class Instance {
 public:
  static Instance& get();

  const std::vector<PhysicalDevice>& devices() const { return devices_; }
  const DeviceList& list() const { return list_; }

 private:
  Instance();
  void create();
  void list_devices();

  std::unique_ptr<vk::raii::Context> context_;
  std::unique_ptr<vk::raii::Instance> instance_;
  std::unique_ptr<vk::raii::DebugUtilsMessengerEXT> messenger_;
  std::vector<PhysicalDevice> devices_;
  DeviceList list_;
};

// True in a child process forked after the instance was created. Every Vulkan object of the parent is dead there.
bool forked();
// Throws DeviceError when forked().
void require_not_forked();

// Reads everything Traits holds.
DeviceInfo describe(const vk::raii::Instance& instance, const vk::raii::PhysicalDevice& device);

}  // namespace vkconv::vulkan
