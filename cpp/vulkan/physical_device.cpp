#include <algorithm>
#include <cstring>
#include <set>

#include "vulkan/cooperative_matrix.h"
#include "vulkan/description.h"
#include "vulkan/instance.h"

namespace vkconv::vulkan {
namespace {

DeviceType device_type(vk::PhysicalDeviceType t) {
  switch (t) {
    case vk::PhysicalDeviceType::eDiscreteGpu:
      return DeviceType::discrete;
    case vk::PhysicalDeviceType::eIntegratedGpu:
      return DeviceType::integrated;
    case vk::PhysicalDeviceType::eVirtualGpu:
      return DeviceType::virtual_gpu;
    case vk::PhysicalDeviceType::eCpu:
      return DeviceType::software;
    default:
      return DeviceType::other;
  }
}

std::array<std::uint32_t, 3> array3(const vk::ArrayWrapper1D<uint32_t, 3>& a) { return {a[0], a[1], a[2]}; }

void read_limits(const vk::raii::PhysicalDevice& device, Traits& traits) {
  const auto chain = device.getProperties2<vk::PhysicalDeviceProperties2, vk::PhysicalDeviceVulkan11Properties,
                                           vk::PhysicalDeviceVulkan12Properties>();
  const auto& properties = chain.get<vk::PhysicalDeviceProperties2>().properties;
  const auto& v11 = chain.get<vk::PhysicalDeviceVulkan11Properties>();
  const auto& v12 = chain.get<vk::PhysicalDeviceVulkan12Properties>();
  traits.driver = std::string(v12.driverName.data()) + " " + v12.driverInfo.data();
  const bool timestamps = properties.limits.timestampComputeAndGraphics;
  traits.timestamp_seconds = timestamps ? properties.limits.timestampPeriod * 1e-9 : 0;
  Limits& l = traits.limits;
  l.shared_memory_bytes = properties.limits.maxComputeSharedMemorySize;
  l.workgroup_invocations = properties.limits.maxComputeWorkGroupInvocations;
  l.workgroup_size = array3(properties.limits.maxComputeWorkGroupSize);
  l.workgroup_count = array3(properties.limits.maxComputeWorkGroupCount);
  l.subgroup_size = l.min_subgroup_size = l.max_subgroup_size = v11.subgroupSize;
  l.storage_buffer_range_bytes = properties.limits.maxStorageBufferRange;
  l.allocation_bytes = v11.maxMemoryAllocationSize;
  const auto operations = v11.subgroupSupportedOperations;
  const bool in_compute = static_cast<bool>(v11.subgroupSupportedStages & vk::ShaderStageFlagBits::eCompute);
  traits.features.subgroup_arithmetic = in_compute && (operations & vk::SubgroupFeatureFlagBits::eArithmetic);
  traits.features.subgroup_shuffle = in_compute && (operations & vk::SubgroupFeatureFlagBits::eShuffle);
}

// Subgroup size control is core in 1.3 and an extension before.
void read_subgroup_control(const vk::raii::PhysicalDevice& device, bool available, Traits& traits) {
  if (!available) return;
  const auto features =
      device.getFeatures2<vk::PhysicalDeviceFeatures2, vk::PhysicalDeviceSubgroupSizeControlFeatures>()
          .get<vk::PhysicalDeviceSubgroupSizeControlFeatures>();
  const auto sizes =
      device.getProperties2<vk::PhysicalDeviceProperties2, vk::PhysicalDeviceSubgroupSizeControlProperties>()
          .get<vk::PhysicalDeviceSubgroupSizeControlProperties>();
  const bool in_compute = static_cast<bool>(sizes.requiredSubgroupSizeStages & vk::ShaderStageFlagBits::eCompute);
  traits.features.subgroup_size_control = features.subgroupSizeControl && in_compute;
  traits.features.full_subgroups = features.computeFullSubgroups;
  if (!traits.features.subgroup_size_control) return;
  traits.limits.min_subgroup_size = sizes.minSubgroupSize;
  traits.limits.max_subgroup_size = sizes.maxSubgroupSize;
}

void read_memory(const vk::raii::PhysicalDevice& device, Traits& traits) {
  using Property = vk::MemoryPropertyFlagBits;
  const auto memory = device.getMemoryProperties();
  const auto mappable = Property::eDeviceLocal | Property::eHostVisible | Property::eHostCoherent;
  std::uint64_t largest = 0, largest_mappable = 0;
  for (std::uint32_t i = 0; i < memory.memoryTypeCount; ++i) {
    const vk::MemoryType& type = memory.memoryTypes[i];
    const std::uint64_t bytes = memory.memoryHeaps[type.heapIndex].size;
    if (type.propertyFlags & Property::eDeviceLocal) largest = std::max(largest, bytes);
    if ((type.propertyFlags & mappable) == mappable) largest_mappable = std::max(largest_mappable, bytes);
  }
  traits.limits.memory_bytes = largest;
  // A discrete device may offer all of its memory to the host as well, but across its bus.
  traits.unified_memory = largest_mappable == largest && traits.type != DeviceType::discrete;
}

// Empty when every kernel can run.
std::string missing_feature(const vk::raii::PhysicalDevice& device, Traits& traits) {
  const auto chain = device.getFeatures2<vk::PhysicalDeviceFeatures2, vk::PhysicalDeviceVulkan11Features,
                                         vk::PhysicalDeviceVulkan12Features>();
  const auto& core = chain.get<vk::PhysicalDeviceFeatures2>().features;
  const auto& v11 = chain.get<vk::PhysicalDeviceVulkan11Features>();
  const auto& v12 = chain.get<vk::PhysicalDeviceVulkan12Features>();
  Features& f = traits.features;
  f.float16 = v12.shaderFloat16;
  f.float64 = core.shaderFloat64;
  f.int16 = core.shaderInt16;
  f.memory_model = v12.vulkanMemoryModel && v12.vulkanMemoryModelDeviceScope;
  const std::pair<vk::Bool32, const char*> required[] = {{v12.bufferDeviceAddress, "bufferDeviceAddress"},
                                                         {v12.timelineSemaphore, "timelineSemaphore"},
                                                         {v12.scalarBlockLayout, "scalarBlockLayout"},
                                                         {v11.storageBuffer16BitAccess, "storageBuffer16BitAccess"},
                                                         {core.shaderInt64, "shaderInt64"}};
  for (const auto& [present, name] : required)
    if (!present) return std::string("the driver lacks ") + name;
  return {};
}

bool has_compute_queue(const vk::raii::PhysicalDevice& device) {
  const auto families = device.getQueueFamilyProperties();
  return std::any_of(families.begin(), families.end(),
                     [](const auto& f) { return static_cast<bool>(f.queueFlags & vk::QueueFlagBits::eCompute); });
}

}  // namespace

// Of a middling device of its type: flops a second in f32, f16 and f64, bytes a second of memory, seconds of a launch.
Rates estimated_rates(DeviceType type) {
  switch (type) {
    case DeviceType::discrete:
      return {10e12, 20e12, 0.3e12, 400e9, 3e-6};
    case DeviceType::integrated:
      return {1e12, 2e12, 0.05e12, 50e9, 5e-6};
    case DeviceType::virtual_gpu:
      return {5e12, 10e12, 0.1e12, 200e9, 5e-6};
    case DeviceType::software:
      return {20e9, 10e9, 5e9, 8e9, 10e-6};
    case DeviceType::other:
      break;
  }
  return {};
}

DeviceInfo describe(const vk::raii::Instance& instance, const vk::raii::PhysicalDevice& device) {
  DeviceInfo info;
  Traits& traits = info.traits;
  const auto properties = device.getProperties();
  traits.name = properties.deviceName.data();
  traits.type = device_type(properties.deviceType);
  traits.vendor_id = properties.vendorID;
  traits.device_id = properties.deviceID;
  traits.api_version = properties.apiVersion;
  traits.rates = known_rates(traits);
  read_memory(device, traits);
  if (properties.apiVersion < VK_API_VERSION_1_2) {
    info.unusable = "the driver offers Vulkan " + std::to_string(VK_API_VERSION_MAJOR(properties.apiVersion)) + "." +
                    std::to_string(VK_API_VERSION_MINOR(properties.apiVersion)) + ", wanted 1.2";
    return info;
  }
  std::set<std::string> extensions;
  for (const auto& e : device.enumerateDeviceExtensionProperties()) extensions.insert(e.extensionName.data());
  read_limits(device, traits);
  read_subgroup_control(
      device,
      properties.apiVersion >= VK_API_VERSION_1_3 || extensions.contains(VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME),
      traits);
  traits.features.external_memory_host = extensions.contains(VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
  traits.features.memory_budget = extensions.contains(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  if (traits.features.external_memory_host)
    traits.limits.host_import_alignment_bytes =
        device.getProperties2<vk::PhysicalDeviceProperties2, vk::PhysicalDeviceExternalMemoryHostPropertiesEXT>()
            .get<vk::PhysicalDeviceExternalMemoryHostPropertiesEXT>()
            .minImportedHostPointerAlignment;
  read_matrix_features(instance, device, extensions, traits);
  info.unusable = missing_feature(device, traits);
  if (!has_compute_queue(device)) info.unusable = "the device has no compute queue";
  return info;
}

}  // namespace vkconv::vulkan
