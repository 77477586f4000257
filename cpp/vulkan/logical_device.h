// One VkDevice with its queue, pipelines and memory: what all streams of a device share.
#pragma once
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "vulkan/instance.h"
#include "vulkan/kernel.h"
#include "vulkan/memory_pool.h"
#include "vulkan/pipeline_cache.h"
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
  vk::raii::QueryPool timestamps{nullptr};  // made when first used: begin and end
};

// What lane_octets() in matrix_layout.h found out.
struct MatrixLayouts {
  std::mutex mutex;
  std::vector<std::pair<CooperativeMatrix, std::uint32_t>> octets;
};

class LogicalDevice : public std::enable_shared_from_this<LogicalDevice> {
 public:
  // Throws DeviceError or OutOfMemory. In a forked child the returned device is abandoned, not destroyed.
  static std::shared_ptr<LogicalDevice> create(const PhysicalDevice& physical);
  ~LogicalDevice();

  const Traits& traits() const { return traits_; }
  Buffer allocate(std::size_t bytes, MemoryKind kind = MemoryKind::device);
  MemoryPool& memory() { return memory_; }
  MatrixLayouts& matrix_layouts() { return matrix_layouts_; }

  // Created at first use; different pipelines are compiled in parallel.
  vk::Pipeline pipeline(const Kernel& kernel);
  vk::PipelineLayout pipeline_layout() const { return *pipeline_layout_; }

  CommandRecorder take_recorder();
  void give_recorder(CommandRecorder recorder) noexcept;
  vk::raii::CommandBuffer make_command_buffer(const CommandRecorder& recorder);
  vk::raii::QueryPool make_timestamps();
  // Between two timestamps of the queue, whose counters wrap around.
  double seconds_between(std::uint64_t begin, std::uint64_t end) const;

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
  void save_pipeline_cache_if_due();
  void save_pipeline_cache() noexcept;
  template <class F>
  decltype(auto) call(const char* what, F&& f);

  const Traits traits_;
  std::uint32_t queue_family_ = 0;
  std::uint64_t timestamp_mask_ = 0;
  vk::raii::Device device_;
  vk::raii::Queue queue_{nullptr};
  vk::raii::Semaphore timeline_{nullptr};
  vk::raii::PipelineLayout pipeline_layout_{nullptr};
  vk::raii::PipelineCache pipeline_cache_{nullptr};
  MemoryPool memory_;
  MatrixLayouts matrix_layouts_;
  std::atomic<bool> lost_{false};

  std::mutex queue_mutex_;
  std::uint64_t submitted_ = 0;

  std::mutex pipelines_mutex_;
  std::map<Kernel, PipelineEntry> pipelines_;

  PipelineCacheFile cache_file_;
  std::mutex cache_mutex_;
  std::atomic<bool> cache_is_stale_{false};  // pipelines were created since it was saved
  std::atomic<std::size_t> cache_bytes_{0};  // on disk
  std::chrono::steady_clock::time_point cache_saved_;

  std::mutex recorders_mutex_;
  std::vector<CommandRecorder> recorders_;
};

}  // namespace vkconv::vulkan
