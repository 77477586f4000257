// One VkDevice with its queue, pipelines and memory: what all streams of a device share.
#pragma once
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "vulkan/instance.h"
#include "vulkan/matrix_layout.h"
#include "vulkan/memory_pool.h"
#include "vulkan/pipelines.h"
#include "vulkan/raii.h"

namespace vkconv::vulkan {

// What a shader is told besides its specialization constants and parameters; see glsl/dispatch.glsl.
struct PushConstants {
  std::uint32_t groups_x = 1, groups_y = 1;  // of the whole dispatch, however it is cut
};

// Tells kernels where their parameters are: one dynamic uniform buffer.
struct ParamsSet {
  vk::raii::DescriptorPool pool{nullptr};
  vk::raii::DescriptorSet set{nullptr};
};

// Recycled between streams.
struct CommandRecorder {
  vk::raii::CommandPool pool{nullptr};
  std::vector<vk::raii::CommandBuffer> buffers;
  std::vector<ParamsSet> params;
  vk::raii::QueryPool timestamps{nullptr};  // made when first used: begin and end
};

class LogicalDevice : public std::enable_shared_from_this<LogicalDevice> {
 public:
  // Throws DeviceError or OutOfMemory. In a forked child the returned device is abandoned, not destroyed.
  static std::shared_ptr<LogicalDevice> create(const PhysicalDevice& physical);
  ~LogicalDevice();

  const Traits& traits() const { return traits_; }
  const vk::raii::Device& handle() const { return device_; }
  const vk::PhysicalDeviceMemoryProperties& memory_properties() const { return memory_properties_; }
  Buffer allocate(std::size_t bytes, MemoryKind kind = MemoryKind::device);
  MemoryPool& memory() { return memory_; }
  MatrixLayouts& matrix_layouts() { return matrix_layouts_; }

  PipelinePtr pipeline(const Kernel& kernel);
  Pipelines& pipelines() { return pipelines_; }
  vk::PipelineLayout pipeline_layout() const { return *pipeline_layout_; }

  CommandRecorder take_recorder();
  void give_recorder(CommandRecorder recorder) noexcept;
  vk::raii::CommandBuffer make_command_buffer(const CommandRecorder& recorder);
  ParamsSet make_params_set();
  void set_params_buffer(const ParamsSet& set, vk::Buffer buffer);
  vk::raii::QueryPool make_timestamps();
  // Between the two timestamps of make_timestamps(), once the work has ended.
  double seconds_between(const vk::raii::QueryPool& timestamps);

  // Submits and returns the number to wait for. Work of all streams runs in the order of its numbers.
  std::uint64_t submit(vk::CommandBuffer commands);
  std::uint64_t submits() const { return submitted_; }  // so far, the last number
  std::uint64_t completed();                            // the last number whose work has ended
  void wait(std::uint64_t number);
  void wait_interruptibly(std::uint64_t number);
  void wait_idle() noexcept;

  // Set by the first call that reports it. open_device() replaces a lost device.
  bool lost() const { return lost_; }
  void set_lost() { lost_ = true; }

 private:
  explicit LogicalDevice(const PhysicalDevice& physical);
  vk::raii::Device create_device(const PhysicalDevice& physical);
  template <class F>
  decltype(auto) call(const char* what, F&& f);
  bool wait_for(std::uint64_t number, std::chrono::nanoseconds limit);  // false: the time is over

  const Traits traits_;
  const vk::PhysicalDeviceMemoryProperties memory_properties_;
  std::uint32_t queue_family_ = 0;
  std::uint64_t timestamp_mask_ = 0;
  vk::raii::Device device_;
  vk::raii::Queue queue_{nullptr};
  vk::raii::Semaphore timeline_{nullptr};
  vk::raii::DescriptorSetLayout params_layout_;
  vk::raii::PipelineLayout pipeline_layout_;
  Pipelines pipelines_;
  MemoryPool memory_;
  MatrixLayouts matrix_layouts_;
  std::atomic<bool> lost_{false};

  std::mutex queue_mutex_;
  std::atomic<std::uint64_t> submitted_{0};

  std::mutex recorders_mutex_;
  std::vector<CommandRecorder> recorders_;
};

}  // namespace vkconv::vulkan
