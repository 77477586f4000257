#if VKCONV_VULKAN
#include "vulkan_faults.h"

#include <atomic>
#include <string_view>

namespace vkconv::vulkan {
namespace {

using InstanceTable = std::remove_cvref_t<decltype(*std::declval<vk::raii::PhysicalDevice>().getDispatcher())>;
using DeviceTable = std::remove_cvref_t<decltype(*std::declval<vk::raii::Device>().getDispatcher())>;

constexpr std::int64_t kNever = -1;

std::atomic<std::int64_t> failing{kNever}, calls{0};
std::atomic<VkResult> result_now{VK_SUCCESS};
std::atomic<const char*> failed{nullptr};

// What the call of `name` returns instead of being made, or VK_SUCCESS.
VkResult due(const char* name, bool tells_of_loss) {
  const VkResult result = result_now;
  if (failing == kNever || (result == VK_ERROR_DEVICE_LOST && !tells_of_loss)) return VK_SUCCESS;
  const std::int64_t n = calls++;
  if (n == failing) failed = name;
  return n == failing || (n > failing && result == VK_ERROR_DEVICE_LOST) ? result : VK_SUCCESS;
}

// The function of a table behind `kMember`, which may fail.
template <auto kMember>
struct Faulty;
template <class Table, class... A, VkResult (VKAPI_PTR* Table::*kMember)(A...)>
struct Faulty<kMember> {
  static inline VkResult(VKAPI_PTR* real)(A...) = nullptr;
  static inline const char* name = "";
  static inline bool tells_of_loss = false;

  static VKAPI_ATTR VkResult VKAPI_CALL call(A... arguments) {
    const VkResult result = due(name, tells_of_loss);
    return result == VK_SUCCESS ? real(arguments...) : result;
  }
};

struct Rule {
  std::string_view name;
  PFN_vkVoidFunction (*replace)(PFN_vkVoidFunction real);  // remembers the function and returns the one that may fail
};

template <auto kMember, bool kTellsOfLoss = false>
Rule rule(const char* name) {
  using F = Faulty<kMember>;
  F::name = name;
  F::tells_of_loss = kTellsOfLoss;
  return {name, [](PFN_vkVoidFunction real) {
            F::real = reinterpret_cast<decltype(F::real)>(real);
            return reinterpret_cast<PFN_vkVoidFunction>(&F::call);
          }};
}

const std::vector<Rule>& rules() {
  using T = DeviceTable;
  static const std::vector<Rule> all{
      rule<&T::vkAllocateMemory>("vkAllocateMemory"),
      rule<&T::vkMapMemory>("vkMapMemory"),
      rule<&T::vkBindBufferMemory>("vkBindBufferMemory"),
      rule<&T::vkGetMemoryHostPointerPropertiesEXT>("vkGetMemoryHostPointerPropertiesEXT"),
      rule<&T::vkCreateBuffer>("vkCreateBuffer"),
      rule<&T::vkCreateSemaphore>("vkCreateSemaphore"),
      rule<&T::vkCreateQueryPool>("vkCreateQueryPool"),
      rule<&T::vkCreateShaderModule>("vkCreateShaderModule"),
      rule<&T::vkCreatePipelineLayout>("vkCreatePipelineLayout"),
      rule<&T::vkCreatePipelineCache>("vkCreatePipelineCache"),
      rule<&T::vkCreateComputePipelines>("vkCreateComputePipelines"),
      rule<&T::vkGetPipelineCacheData>("vkGetPipelineCacheData"),
      rule<&T::vkCreateCommandPool>("vkCreateCommandPool"),
      rule<&T::vkResetCommandPool>("vkResetCommandPool"),
      rule<&T::vkAllocateCommandBuffers>("vkAllocateCommandBuffers"),
      rule<&T::vkBeginCommandBuffer>("vkBeginCommandBuffer"),
      rule<&T::vkEndCommandBuffer>("vkEndCommandBuffer"),
      rule<&T::vkQueueSubmit, true>("vkQueueSubmit"),
      rule<&T::vkWaitSemaphores, true>("vkWaitSemaphores"),
      rule<&T::vkGetSemaphoreCounterValue, true>("vkGetSemaphoreCounterValue"),
      rule<&T::vkGetQueryPoolResults, true>("vkGetQueryPoolResults"),
  };
  return all;
}

PFN_vkGetDeviceProcAddr real_address = nullptr;

PFN_vkVoidFunction VKAPI_CALL address(VkDevice device, const char* name) {
  const PFN_vkVoidFunction real = real_address(device, name);
  for (const Rule& r : rules())
    if (real && r.name == name) return r.replace(real);
  return real;
}

using CreateDevice = Faulty<&InstanceTable::vkCreateDevice>;

}  // namespace

VulkanFaults::VulkanFaults(const PhysicalDevice& physical)
    : table_(const_cast<Table&>(*physical.handle.getDispatcher())) {
  real_address = std::exchange(table_.vkGetDeviceProcAddr, &address);
  CreateDevice::name = "vkCreateDevice";
  CreateDevice::real = std::exchange(table_.vkCreateDevice, &CreateDevice::call);
}

VulkanFaults::~VulkanFaults() {
  disarm();
  table_.vkGetDeviceProcAddr = real_address;
  table_.vkCreateDevice = CreateDevice::real;
}

void VulkanFaults::arm(std::int64_t n, vk::Result result) {
  calls = 0;
  failed = nullptr;
  result_now = static_cast<VkResult>(result);
  failing = n;
}

std::string VulkanFaults::disarm() {
  failing = kNever;
  const char* name = failed;
  return name ? name : "";
}

}  // namespace vkconv::vulkan
#endif
