#include "vulkan/array_queue.h"

#include <algorithm>
#include <new>

#include "vulkan/instance.h"
#include "vulkan/logical_device.h"

namespace vkconv::vulkan {
namespace {

// A batch is submitted when the device has this much to do, which hides the recording of the next one, or at so many
// commands or bytes of uploads.
constexpr double kBatchSeconds = 0.01;
constexpr std::uint64_t kBatchCommands = 512;
constexpr std::size_t kBatchBytes = std::size_t{64} << 20;
// Recording stops for the device at so many batches.
constexpr std::size_t kMaxBatches = 8;

}  // namespace

ArrayQueue::ArrayQueue(std::shared_ptr<LogicalDevice> device) : device_(std::move(device)) {}

void ArrayQueue::require_device() const {
  require_not_forked();
  if (device_->lost()) throw DeviceError("the Vulkan device was lost, and with it the arrays in its memory");
}

Stream& ArrayQueue::begin_batch() {
  if (!batch_) batch_ = std::make_unique<Stream>(device_);
  return *batch_;
}

void ArrayQueue::end_batch_if_due() {
  if (batch_->unsubmitted_seconds() >= kBatchSeconds || batch_->recorded() >= kBatchCommands ||
      batch_->kept_bytes() >= kBatchBytes)
    end_batch();
}

void ArrayQueue::end_batch() {
  if (!batch_) return;
  batch_->submit();  // a batch that is short of memory for this stays, as earlier calls count on it
  const std::unique_ptr<Stream> ended = std::move(batch_);
  push(std::move(*ended));
  retire();
}

void ArrayQueue::wait_for_room() {
  for (;;) {
    std::uint64_t first = 0;
    {
      std::lock_guard lock(mutex_);
      if (in_flight_.size() > kMaxBatches) retire();
      if (in_flight_.size() <= kMaxBatches) return;
      first = in_flight_.front().submitted;
    }
    device_->wait_interruptibly(first);
  }
}

void ArrayQueue::adopt(Stream stream) {
  std::lock_guard lock(mutex_);
  end_batch();
  push(std::move(stream));
  retire();
}

void ArrayQueue::push(Stream stream) {
  const std::uint64_t number = stream.submit();  // 0 when nothing was recorded
  last_ = std::max(last_, number);
  in_flight_.push_back({index_++, number, std::move(stream)});
}

void ArrayQueue::flush() {
  std::lock_guard lock(mutex_);
  require_device();
  end_batch();
}

void ArrayQueue::wait() {
  std::uint64_t last = 0;
  {
    std::lock_guard lock(mutex_);
    require_device();
    end_batch();
    if (!in_flight_.empty()) last = last_;
  }
  if (last > 0) device_->wait_interruptibly(last);  // others record meanwhile
  collect();
}

void ArrayQueue::retire() {
  if (!in_flight_.empty()) {
    const std::uint64_t completed = device_->completed();
    while (!in_flight_.empty() && in_flight_.front().submitted <= completed) in_flight_.pop_front();
  }
  // The last batch that has ended: the coming one counts while nothing is recorded into it.
  give_to_pool(!in_flight_.empty() ? in_flight_.front().index - 1 : batch_ ? index_ - 1 : index_.load());
}

void ArrayQueue::collect() {
  std::lock_guard lock(mutex_);
  retire();
}

Buffer ArrayQueue::allocate(std::size_t bytes) {
  if (Buffer reused = take_released(bytes); reused.pointer()) return reused;
  return allocate_unused(bytes);
}

Buffer ArrayQueue::allocate_unused(std::size_t bytes) {
  try {
    return device_->allocate(bytes);
  } catch (const OutOfMemory&) {
    wait();
    device_->memory().trim();
    return device_->allocate(bytes);
  }
}

// Best fit; a quarter more than wanted is not wasted.
Buffer ArrayQueue::take_released(std::size_t bytes) {
  std::lock_guard lock(released_mutex_);
  const auto it = released_.lower_bound(bytes);
  if (it == released_.end() || it->first > bytes + bytes / 4 + kBufferAlignmentBytes) return {};
  Buffer buffer = std::move(it->second.buffer);
  released_.erase(it);
  return buffer;
}

void ArrayQueue::release(Buffer buffer) noexcept {
  if (!buffer.pointer() || forked()) return;
  const std::size_t bytes = buffer.size_bytes();
  Released released{std::move(buffer), index_};
  try {
    std::lock_guard lock(released_mutex_);
    released_.emplace(bytes, std::move(released));
  } catch (const std::bad_alloc&) {
    const Interruptible by_nothing(nullptr);
    try {
      wait();
    } catch (const std::exception&) {  // lost: nothing uses it any more
    }
  }
}

void ArrayQueue::give_to_pool(std::uint64_t ended_batch) {
  std::lock_guard lock(released_mutex_);
  std::erase_if(released_, [&](const auto& entry) { return entry.second.batch <= ended_batch; });
}

std::byte* DeviceMemory::address() const { return reinterpret_cast<std::byte*>(buffer_.pointer()); }

}  // namespace vkconv::vulkan
