// The Vulkan half of the device table; without VKCONV_VULKAN a list that is empty for that reason.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "bindings/devices.h"

namespace vkconv::bindings {

struct VulkanDevices {
  std::vector<DeviceEntry> entries;
  std::string reason;  // why there is none
};

VulkanDevices vulkan_devices();
std::shared_ptr<Backend> make_vulkan_backend(int index);

// Memory of the pool of device `index`.
struct DeviceMemory {
  std::uint64_t used_bytes = 0, peak_used_bytes = 0, cached_bytes = 0, staging_bytes = 0, total_bytes = 0;
};
DeviceMemory vulkan_memory(int index);
void reset_vulkan_memory_peak(int index);
void trim_vulkan_memory(int index);
// Descriptions of devices as JSON: of a device that is here, and the committed ones by name.
std::string vulkan_description(int index);
std::vector<std::pair<std::string, std::string>> vulkan_descriptions();
// A device that plans only, under its description's name.
OpenDevice described_device(const std::string& json);
// What the validation layer said since the last call; empty unless VKCONV_VALIDATION is set.
std::vector<std::string> take_validation_messages();

}  // namespace vkconv::bindings
