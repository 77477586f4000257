// One VkDevice with its queue, pipelines and memory: what all streams of a device share.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "vulkan/instance.h"
#include "vulkan/kernel.h"
#include "vulkan/memory_pool.h"
#include "vulkan/raii.h"

namespace vkconv::vulkan {

// What a shader is told besides its specialization constants; see glsl/dispatch.glsl.
struct PushConstants {
  Pointer params = 0;
  std::uint32_t groups_x = 1, groups_y = 1;  // of the whole dispatch, however it is cut
};

// Recycled between streams.
struct CommandRecorder {
  vk::raii::CommandPool pool{nullptr};
  std::vector<vk::raii::CommandBuffer> buffers;
};

class LogicalDevice : public std::enable_shared_from_this<LogicalDevice> {
 public:
  // Throws DeviceError or OutOfMemory. In a forked child the returned device is abandoned, not destroyed.
  static std::shared_ptr<LogicalDevice> create(const PhysicalDevice& physical);
  ~LogicalDevice();

  const Traits& traits() const { return traits_; }
  Buffer allocate(std::size_t bytes, MemoryKind kind = MemoryKind::device);
  MemoryPool& memory() { return memory_; }

  // Created at first use; different pipelines are compiled in parallel.
  vk::Pipeline pipeline(const Kernel& kernel);
  vk::PipelineLayout pipeline_layout() const { return *pipeline_layout_; }

  CommandRecorder take_recorder();
  void give_recorder(CommandRecorder recorder) noexcept;
  vk::raii::CommandBuffer make_command_buffer(const CommandRecorder& recorder);

  // Submits and returns the number to wait for. Work of all streams runs in the order of its numbers.
  std::uint64_t submit(vk::CommandBuffer commands);
  void wait(std::uint64_t number);

  // Set by the first call that reports it. open_device() replaces a lost device.
  bool lost() const { return lost_; }
  void set_lost() { lost_ = true; }

 private:
  struct PipelineEntry {
    std::mutex mutex;
    vk::raii::Pipeline pipeline{nullptr};
  };

  explicit LogicalDevice(const PhysicalDevice& physical);
  vk::raii::Device create_device(const PhysicalDevice& physical);
  vk::raii::Pipeline create_pipeline(const Kernel& kernel);
  template <class F>
  decltype(auto) call(const char* what, F&& f);

  const Traits traits_;
  std::uint32_t queue_family_ = 0;
  vk::raii::Device device_;
  vk::raii::Queue queue_{nullptr};
  vk::raii::Semaphore timeline_{nullptr};
  vk::raii::PipelineLayout pipeline_layout_{nullptr};
  vk::raii::PipelineCache pipeline_cache_{nullptr};
  MemoryPool memory_;
  std::atomic<bool> lost_{false};

  std::mutex queue_mutex_;
  std::uint64_t submitted_ = 0;

  std::mutex pipelines_mutex_;
  std::map<Kernel, PipelineEntry> pipelines_;

  std::mutex recorders_mutex_;
  std::vector<CommandRecorder> recorders_;
};

}  // namespace vkconv::vulkan
