#include "vulkan/host_import.h"

#include "vulkan/logical_device.h"

namespace vkconv::vulkan {
namespace {

// Pinning pages takes as long as copying a few hundred kilobytes.
constexpr std::size_t kLeastBytes = 256 << 10;

constexpr auto kHandleType = vk::ExternalMemoryHandleTypeFlagBits::eHostAllocationEXT;

// A type for the pages that the host and the device see alike.
std::optional<std::uint32_t> choose_type(const vk::PhysicalDeviceMemoryProperties& memory, std::uint32_t allowed) {
  using Property = vk::MemoryPropertyFlagBits;
  for (const vk::MemoryPropertyFlags wanted :
       {Property::eHostCoherent | Property::eHostCached, vk::MemoryPropertyFlags(Property::eHostCoherent)})
    for (std::uint32_t i = 0; i < memory.memoryTypeCount; ++i)
      if (allowed >> i & 1 && (memory.memoryTypes[i].propertyFlags & wanted) == wanted) return i;
  return std::nullopt;
}

}  // namespace

std::optional<HostImport> HostImport::make(const LogicalDevice& device, const StridedArray& array) {
  const Traits& traits = device.traits();
  if (!traits.unified_memory || !traits.features.external_memory_host || array.bytes() < kLeastBytes) return {};
  const Span span = span_of(array);
  const auto element = static_cast<std::int64_t>(array.element_bytes);
  const auto page = traits.limits.host_import_alignment_bytes;
  const auto first = reinterpret_cast<std::uintptr_t>(array.data + span.lo * element) / page * page;
  const auto last = reinterpret_cast<std::uintptr_t>(array.data + (span.hi + 1) * element);
  const std::uint64_t bytes = (last - first + page - 1) / page * page;
  if (bytes > traits.limits.allocation_bytes || bytes > 2 * array.bytes()) return {};  // mostly gaps
  try {
    HostImport made;
    made.pages_ = reinterpret_cast<const std::byte*>(first);
    void* pages = reinterpret_cast<void*>(first);
    const vk::ExternalMemoryBufferCreateInfo external(kHandleType);
    vk::BufferCreateInfo info({}, bytes,
                              vk::BufferUsageFlagBits::eStorageBuffer | vk::BufferUsageFlagBits::eShaderDeviceAddress);
    made.buffer_ = vk::raii::Buffer(device.handle(), info.setPNext(&external));
    const vk::MemoryRequirements needed = made.buffer_.getMemoryRequirements();
    const auto allowed = device.handle().getMemoryHostPointerPropertiesEXT(kHandleType, pages).memoryTypeBits;
    const auto type = choose_type(device.memory_properties(), allowed & needed.memoryTypeBits);
    if (!type || needed.size > bytes) return {};
    const vk::ImportMemoryHostPointerInfoEXT import(kHandleType, pages);
    vk::MemoryAllocateFlagsInfo flags(vk::MemoryAllocateFlagBits::eDeviceAddress);
    flags.setPNext(&import);
    made.memory_ = vk::raii::DeviceMemory(device.handle(), vk::MemoryAllocateInfo(bytes, *type).setPNext(&flags));
    made.buffer_.bindMemory(*made.memory_, 0);
    made.address_ = device.handle().getBufferAddress({*made.buffer_});
    return made;
  } catch (const vk::SystemError&) {  // the array is copied instead; a lost device shows there
    return {};
  }
}

}  // namespace vkconv::vulkan
