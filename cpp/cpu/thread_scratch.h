// Memory of the calling thread, kept between tasks so that it stays in this core's cache. A task takes it away, since
// check_job() may run another in the same thread.
#pragma once
#include <cstddef>
#include <utility>

#include "cpu/memory.h"

namespace vkconv::cpu {

class ThreadScratch {
 public:
  explicit ThreadScratch(std::size_t bytes) : buffer_(std::move(kept)) { buffer_.reserve(bytes); }
  ~ThreadScratch() { kept = std::move(buffer_); }
  ThreadScratch(const ThreadScratch&) = delete;
  std::byte* data() const { return buffer_.pointer(); }

 private:
  static inline thread_local Buffer kept;
  Buffer buffer_;
};

}  // namespace vkconv::cpu
