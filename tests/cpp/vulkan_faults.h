// Vulkan functions that fail at a chosen call, put into the table of functions that vulkan.hpp calls through: below
// everything of this library, above the validation layer and the driver.
#pragma once
#include <cstdint>
#include <string>
#include <type_traits>

#include "vulkan/instance.h"

namespace vkconv::vulkan {

class VulkanFaults {
 public:
  // Devices that are created while it lives can fail. One at a time.
  explicit VulkanFaults(const PhysicalDevice& physical);
  ~VulkanFaults();
  VulkanFaults(const VulkanFaults&) = delete;

  // The n-th call (from 0, of all threads) of those that can return `result` returns it and does nothing. A device that
  // is lost stays lost until disarm().
  void arm(std::int64_t n, vk::Result result);
  // The function that failed since arm(), or an empty string.
  std::string disarm();

 private:
  using Table = std::remove_cvref_t<decltype(*std::declval<vk::raii::PhysicalDevice>().getDispatcher())>;
  Table& table_;
};

}  // namespace vkconv::vulkan
