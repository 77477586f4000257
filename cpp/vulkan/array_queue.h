// The work on device arrays of one Vulkan device. Calls of all threads record into one batch, which is submitted when
// it is worth a submit, when something waits for it, or when it holds much memory. What one call records sees the
// effects of every earlier call, so memory freed by its owner serves later calls at once.
#pragma once
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>

#include "core/backend.h"
#include "core/interruption.h"
#include "vulkan/stream.h"

namespace vkconv::vulkan {

class ArrayQueue {
 public:
  explicit ArrayQueue(std::shared_ptr<LogicalDevice> device);
  const std::shared_ptr<LogicalDevice>& device() const { return device_; }

  // Calls f(Stream&), which records, and waits where the device is far behind.
  template <class F>
  void record(F&& f) {
    {
      const Interruptible by_nothing(nullptr);
      std::lock_guard lock(mutex_);
      require_device();
      f(begin_batch());
      end_batch_if_due();
    }
    wait_for_room();
  }
  // Submits what the stream has recorded, and keeps it until the work has ended.
  void adopt(Stream stream);
  void flush();  // submits what is recorded
  void wait();   // submits and waits for everything; throws what the device reports

  // Memory for what is recorded from now on: earlier work may still use it. Waits when memory is short.
  Buffer allocate(std::size_t bytes);
  // Memory that nothing uses, which the host may write.
  Buffer allocate_unused(std::size_t bytes);
  // Recorded work may still use the buffer.
  void release(Buffer buffer) noexcept;
  // Gives the pool what ended work has released.
  void collect();

 private:
  struct Batch {
    std::uint64_t index;
    std::uint64_t submitted;  // the number to wait for
    Stream stream;
  };
  struct Released {
    Buffer buffer;
    std::uint64_t batch;  // the last that may use it
  };

  void require_device() const;
  Stream& begin_batch();
  void end_batch_if_due();
  void end_batch();
  void wait_for_room();
  void push(Stream stream);
  void retire();  // batches that have ended
  void give_to_pool(std::uint64_t ended_batch);
  Buffer take_released(std::size_t bytes);

  const std::shared_ptr<LogicalDevice> device_;
  std::mutex mutex_;
  std::unique_ptr<Stream> batch_;        // being recorded; null when empty
  std::deque<Batch> in_flight_;          // oldest first
  std::uint64_t last_ = 0;               // number of the last submit
  std::atomic<std::uint64_t> index_{1};  // of the batch that is or will be recorded

  std::mutex released_mutex_;
  std::multimap<std::size_t, Released> released_;  // by size
};

// An array's memory, given back to its queue.
class DeviceMemory final : public ArrayMemory {
 public:
  DeviceMemory(std::shared_ptr<ArrayQueue> queue, Buffer buffer)
      : queue_(std::move(queue)), buffer_(std::move(buffer)) {}
  ~DeviceMemory() override { queue_->release(std::move(buffer_)); }
  std::byte* address() const override;
  std::byte* host() const override { return buffer_.mapped(); }
  const ArrayQueue* queue() const { return queue_.get(); }
  const Buffer& buffer() const { return buffer_; }

 private:
  std::shared_ptr<ArrayQueue> queue_;
  Buffer buffer_;
};

// The queue of the i-th device, which replaces a lost device as open_device() does.
std::shared_ptr<ArrayQueue> open_queue(int index);

}  // namespace vkconv::vulkan
