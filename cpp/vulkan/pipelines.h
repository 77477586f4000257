// Compiled kernels of one device: created at first use, in parallel, the least recently used dropped beyond a bound
// (a pipeline of a software device is megabytes of machine code), and kept on disk between processes.
#pragma once
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>

#include "core/lru_cache.h"
#include "vulkan/kernel.h"
#include "vulkan/pipeline_cache.h"
#include "vulkan/raii.h"
#include "vulkan/traits.h"

namespace vkconv::vulkan {

using PipelinePtr = std::shared_ptr<const vk::raii::Pipeline>;

class Pipelines {
 public:
  Pipelines(const vk::raii::PhysicalDevice& physical, const vk::raii::Device& device, vk::PipelineLayout layout,
            const Traits& traits);

  // Work in flight holds what it uses.
  PipelinePtr get(const Kernel& kernel);
  std::size_t size() const { return entries_.info().size; }
  void set_capacity(std::size_t capacity) { entries_.set_capacity(capacity); }

  void save_if_due();  // to disk, at most once a second
  void save() noexcept;

 private:
  struct Entry {
    std::mutex mutex;
    PipelinePtr pipeline;
  };

  std::shared_ptr<Entry> find(const Kernel& kernel);
  vk::raii::Pipeline create(const Kernel& kernel) const;

  const vk::raii::Device& device_;
  const vk::PipelineLayout layout_;
  const bool full_subgroups_, packs_nearest_;

  LruCache<Kernel, std::shared_ptr<Entry>> entries_;
  PipelineCacheFile file_;
  vk::raii::PipelineCache cache_{nullptr};
  std::mutex save_mutex_;
  std::atomic<bool> stale_{false};          // pipelines were created since it was saved
  std::atomic<std::size_t> file_bytes_{0};  // on disk
  std::chrono::steady_clock::time_point saved_;
};

}  // namespace vkconv::vulkan
