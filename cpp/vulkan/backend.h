// What the rest of the library sees of Vulkan. Nothing here makes a Vulkan call until it is asked for devices.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/backend.h"
#include "vulkan/buffer.h"
#include "vulkan/traits.h"

namespace vkconv::vulkan {

struct DeviceInfo {
  Traits traits;
  std::string unusable;  // why the device cannot be used; empty when it can
};

// Usable devices first; discrete, integrated, virtual, software among them. The position is the i of "vulkan:i".
// Read once a process. No loader or no driver is an empty list and a reason; it never throws.
struct DeviceList {
  std::vector<DeviceInfo> devices;
  std::string reason;  // why the list is empty
};
const DeviceList& enumerate_devices();

// Throws DeviceError when there is no such device or it is not usable. The Vulkan device is created by the first run
// and again by the first run after it was lost.
std::unique_ptr<Backend> make_backend(int index);

// Memory of a device's pool: its figures, the peak counted anew, and what is unused given back to the system.
MemoryInfo memory_info(int index);
void reset_memory_peak(int index);
void trim_memory(int index);

// Messages of the validation layer since the last call. Empty unless VKCONV_VALIDATION=1 was set when the first
// Vulkan call was made.
std::vector<std::string> take_validation_messages();

}  // namespace vkconv::vulkan
