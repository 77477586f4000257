#include "vulkan/logical_device.h"

#include <algorithm>
#include <optional>

#include "core/interruption.h"
#include "vulkan/cooperative_matrix.h"

namespace vkconv::vulkan {
namespace {

// Polling sees the end of short work about 30 us before a wait in the driver returns.
constexpr auto kPollTime = std::chrono::microseconds(200);

// A family that computes and does not draw runs beside graphics; else the first that computes.
std::uint32_t compute_family(const vk::raii::PhysicalDevice& physical) {
  const auto families = physical.getQueueFamilyProperties();
  std::optional<std::uint32_t> first;
  for (std::uint32_t i = 0; i < families.size(); ++i) {
    const auto flags = families[i].queueFlags;
    if (!(flags & vk::QueueFlagBits::eCompute)) continue;
    if (!(flags & vk::QueueFlagBits::eGraphics)) return i;
    if (!first) first = i;
  }
  return first.value_or(0);
}

constexpr auto kParamsDescriptor = vk::DescriptorType::eUniformBufferDynamic;

vk::raii::DescriptorSetLayout make_params_layout(const vk::raii::Device& device) {
  const vk::DescriptorSetLayoutBinding params(0, kParamsDescriptor, 1, vk::ShaderStageFlagBits::eCompute);
  return {device, vk::DescriptorSetLayoutCreateInfo({}, params)};
}

vk::raii::PipelineLayout make_layout(const vk::raii::Device& device, vk::DescriptorSetLayout params) {
  const vk::PushConstantRange push(vk::ShaderStageFlagBits::eCompute, 0, sizeof(PushConstants));
  return {device, vk::PipelineLayoutCreateInfo({}, params, push)};
}

}  // namespace

std::shared_ptr<LogicalDevice> LogicalDevice::create(const PhysicalDevice& physical) {
  require_not_forked();
  return vulkan_call("create the device", [&] {
    return std::shared_ptr<LogicalDevice>(new LogicalDevice(physical), [](LogicalDevice* device) {
      if (!forked()) delete device;
    });
  });
}

LogicalDevice::LogicalDevice(const PhysicalDevice& physical)
    : traits_(physical.info.traits),
      memory_properties_(physical.handle.getMemoryProperties()),
      queue_family_(compute_family(physical.handle)),
      device_(create_device(physical)),
      params_layout_(make_params_layout(device_)),
      pipeline_layout_(make_layout(device_, *params_layout_)),
      pipelines_(physical.handle, device_, *pipeline_layout_, traits_),
      memory_(physical.handle, device_, traits_) {
  queue_ = device_.getQueue(queue_family_, 0);
  const std::uint32_t bits = physical.handle.getQueueFamilyProperties()[queue_family_].timestampValidBits;
  timestamp_mask_ = bits >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
  const vk::SemaphoreTypeCreateInfo timeline(vk::SemaphoreType::eTimeline, 0);
  timeline_ = vk::raii::Semaphore(device_, vk::SemaphoreCreateInfo().setPNext(&timeline));
}

LogicalDevice::~LogicalDevice() {
  pipelines_.save();
  wait_idle();
}

void LogicalDevice::wait_idle() noexcept try {
  std::lock_guard lock(queue_mutex_);
  device_.waitIdle();
} catch (const std::exception&) {  // lost: nothing runs any more
}

vk::raii::Device LogicalDevice::create_device(const PhysicalDevice& physical) {
  const Features& f = traits_.features;
  std::vector<const char*> extensions;
  vk::PhysicalDeviceVulkan11Features v11;
  vk::PhysicalDeviceVulkan12Features v12;
  vk::PhysicalDeviceSubgroupSizeControlFeatures subgroups(f.subgroup_size_control, f.full_subgroups);
  CooperativeMatrixFeatures matrix;
  BFloat16Features bfloat16;
  vk::PhysicalDeviceFeatures2 features;
  features.pNext = &v11;
  v11.pNext = &v12;
  void** end = &v12.pNext;
  v11.storageBuffer16BitAccess = VK_TRUE;
  v12.bufferDeviceAddress = v12.timelineSemaphore = v12.scalarBlockLayout = VK_TRUE;
  v12.shaderFloat16 = f.float16;
  v12.vulkanMemoryModel = v12.vulkanMemoryModelDeviceScope = f.memory_model;
  features.features.shaderInt64 = VK_TRUE;
  features.features.shaderInt16 = f.int16;
  features.features.shaderFloat64 = f.float64;
  if (f.subgroup_size_control) {
    if (traits_.api_version < VK_API_VERSION_1_3) extensions.push_back(VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
    *end = &subgroups;
    end = &subgroups.pNext;
  }
  if (!traits_.cooperative_matrices.empty()) {
    extensions.push_back(kCooperativeMatrixExtension);
    matrix.cooperative_matrix = VK_TRUE;
    *end = &matrix;
    end = &matrix.next;
  }
  if (f.bfloat16) {
    extensions.push_back(kBFloat16Extension);
    bfloat16.bfloat16_type = VK_TRUE;
    const auto& shapes = traits_.cooperative_matrices;
    bfloat16.cooperative_matrix =
        std::any_of(shapes.begin(), shapes.end(), [](const auto& s) { return s.operand == DType::bf16; });
    *end = &bfloat16;
  }
  if (f.external_memory_host) extensions.push_back(VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
  if (f.memory_budget) extensions.push_back(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  for (const auto& e : physical.handle.enumerateDeviceExtensionProperties())
    if (std::string_view(e.extensionName) == "VK_KHR_portability_subset")  // must be enabled where it is offered
      extensions.push_back("VK_KHR_portability_subset");
  const float priority = 1;
  const vk::DeviceQueueCreateInfo queue({}, queue_family_, 1, &priority);
  return {physical.handle, vk::DeviceCreateInfo({}, queue, {}, extensions).setPNext(&features)};
}

template <class F>
decltype(auto) LogicalDevice::call(const char* what, F&& f) {
  require_not_forked();
  try {
    return vulkan_call(what, std::forward<F>(f));
  } catch (const DeviceLost&) {
    set_lost();
    throw;
  }
}

Buffer LogicalDevice::allocate(std::size_t bytes, MemoryKind kind) {
  return memory_.allocate(std::shared_ptr<MemoryPool>(shared_from_this(), &memory_), bytes, kind);
}

PipelinePtr LogicalDevice::pipeline(const Kernel& kernel) {
  return call("create a pipeline", [&] { return pipelines_.get(kernel); });
}

CommandRecorder LogicalDevice::take_recorder() {
  {
    std::lock_guard lock(recorders_mutex_);
    if (!recorders_.empty()) {
      CommandRecorder recorder = std::move(recorders_.back());
      recorders_.pop_back();
      return recorder;
    }
  }
  return call("create a command pool", [&] {
    CommandRecorder recorder;
    recorder.pool = vk::raii::CommandPool(
        device_, vk::CommandPoolCreateInfo(vk::CommandPoolCreateFlagBits::eTransient, queue_family_));
    return recorder;
  });
}

// The recorder's work has ended.
void LogicalDevice::give_recorder(CommandRecorder recorder) noexcept {
  try {
    recorder.pool.reset();
    std::lock_guard lock(recorders_mutex_);
    recorders_.push_back(std::move(recorder));
  } catch (...) {  // it is destroyed instead
  }
}

vk::raii::CommandBuffer LogicalDevice::make_command_buffer(const CommandRecorder& recorder) {
  return call("create a command buffer", [&] {
    const vk::CommandBufferAllocateInfo info(*recorder.pool, vk::CommandBufferLevel::ePrimary, 1);
    return std::move(vk::raii::CommandBuffers(device_, info).front());
  });
}

ParamsSet LogicalDevice::make_params_set() {
  return call("create a descriptor set", [&] {
    ParamsSet made;
    const vk::DescriptorPoolSize one(kParamsDescriptor, 1);
    const auto freed_one_by_one = vk::DescriptorPoolCreateFlagBits::eFreeDescriptorSet;
    made.pool = vk::raii::DescriptorPool(device_, vk::DescriptorPoolCreateInfo(freed_one_by_one, 1, one));
    made.set = std::move(
        vk::raii::DescriptorSets(device_, vk::DescriptorSetAllocateInfo(*made.pool, *params_layout_)).front());
    return made;
  });
}

void LogicalDevice::set_params_buffer(const ParamsSet& set, vk::Buffer buffer) {
  const vk::DescriptorBufferInfo info(buffer, 0, kMaxParamsBytes);
  device_.updateDescriptorSets(vk::WriteDescriptorSet(*set.set, 0, 0, kParamsDescriptor, {}, info), {});
}

vk::raii::QueryPool LogicalDevice::make_timestamps() {
  return call("create timestamps",
              [&] { return vk::raii::QueryPool(device_, vk::QueryPoolCreateInfo({}, vk::QueryType::eTimestamp, 2)); });
}

double LogicalDevice::seconds_between(const vk::raii::QueryPool& timestamps) {
  return call("read timestamps", [&] {
    const auto [result, ticks] = timestamps.getResults<std::uint64_t>(
        0, 2, 2 * sizeof(std::uint64_t), sizeof(std::uint64_t), vk::QueryResultFlagBits::e64);
    if (result != vk::Result::eSuccess) return 0.0;
    return static_cast<double>((ticks[1] - ticks[0]) & timestamp_mask_) * traits_.timestamp_seconds;  // may wrap around
  });
}

std::uint64_t LogicalDevice::submit(vk::CommandBuffer commands) {
  return call("submit", [&] {
    std::lock_guard lock(queue_mutex_);
    const std::uint64_t number = submitted_ + 1;
    const vk::TimelineSemaphoreSubmitInfo values({}, number);
    queue_.submit(vk::SubmitInfo({}, {}, commands, *timeline_).setPNext(&values));
    submitted_ = number;
    return number;
  });
}

std::uint64_t LogicalDevice::completed() {
  return call("ask the device", [&] { return timeline_.getCounterValue(); });
}

// Work that cannot be waited for may go on writing memory that its owner frees: whatever the reason, the device is
// not used again.
bool LogicalDevice::wait_for(std::uint64_t number, std::chrono::nanoseconds limit) try {
  return call("wait for the device", [&] {
    if (traits_.type != DeviceType::software) {  // there it would take the processor from the work
      const auto deadline = std::chrono::steady_clock::now() + kPollTime;
      do {
        if (timeline_.getCounterValue() >= number) return true;
      } while (std::chrono::steady_clock::now() < deadline);
    }
    const vk::SemaphoreWaitInfo info({}, *timeline_, number);
    return device_.waitSemaphores(info, static_cast<std::uint64_t>(limit.count())) == vk::Result::eSuccess;
  });
} catch (const DeviceLost&) {
  throw;
} catch (const Error& e) {
  set_lost();
  throw DeviceLost(std::string("the Vulkan device is given up: ") + e.what());
}

void LogicalDevice::wait(std::uint64_t number) {
  pipelines_.save_if_due();  // while the device works
  while (!wait_for(number, std::chrono::hours(1))) continue;
}

void LogicalDevice::wait_interruptibly(std::uint64_t number) {
  if (!interruptible()) return wait(number);
  pipelines_.save_if_due();
  do check_interruption();
  while (!wait_for(number, kInterruptionPeriod));
}

}  // namespace vkconv::vulkan
