// Host memory as device memory (VK_EXT_external_memory_host), so that a device which shares the host's memory copies
// nothing. Whole pages are imported; kernels touch no byte of them but the array's.
#pragma once
#include <cstddef>
#include <optional>

#include "core/strided_array.h"
#include "vulkan/buffer.h"
#include "vulkan/raii.h"

namespace vkconv::vulkan {

class LogicalDevice;

class HostImport {
 public:
  // Nothing where the device or the driver does not do it, where the array is so small that a copy is quicker, and for
  // memory the driver refuses (pages that cannot be written).
  static std::optional<HostImport> make(const LogicalDevice& device, const StridedArray& array);

  Pointer pointer_to(const std::byte* host) const { return address_ + static_cast<std::uint64_t>(host - pages_); }

 private:
  HostImport() = default;

  const std::byte* pages_ = nullptr;
  Pointer address_ = 0;
  vk::raii::DeviceMemory memory_{nullptr};
  vk::raii::Buffer buffer_{nullptr};
};

}  // namespace vkconv::vulkan
