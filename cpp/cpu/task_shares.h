// How the threads of a job share its tasks: each has a run of neighbours of its own, and takes those of others when it
// is done. Jobs of a kind so meet the same part of their arrays in the same thread again, however the threads keep
// pace: a line that another core wrote last takes 200 ns to fetch, and twice that from another die.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/lines.h"

namespace vkconv::cpu {

class TaskShares {
 public:
  explicit TaskShares(std::int64_t threads, std::int64_t tasks = 0) : shares_(static_cast<std::size_t>(threads)) {
    reset(tasks);
  }

  // No thread may be in drain().
  void reset(std::int64_t tasks) {
    const auto threads = static_cast<std::int64_t>(shares_.size());
    for (std::int64_t i = 0; i < threads; ++i) {
      Share& share = shares_[static_cast<std::size_t>(i)];
      share.next = tasks * i / threads;
      share.end = tasks * (i + 1) / threads;
    }
  }

  // Calls f(task) for the tasks of `thread`, and then for those that are left of the others. Shares that are done are
  // only read, which all threads may do at once.
  template <class F>
  void drain(std::int64_t thread, F&& f) {
    for (std::size_t i = 0; i < shares_.size(); ++i) {
      Share& share = shares_[(static_cast<std::size_t>(thread) + i) % shares_.size()];
      while (share.next < share.end)
        if (const std::int64_t t = share.next++; t < share.end) f(t);
    }
  }

  // Leaves the tasks that are not begun.
  void abandon() {
    for (Share& share : shares_) share.next = share.end;
  }

 private:
  struct alignas(kLineBytes) Share {
    std::atomic<std::int64_t> next{0};
    std::int64_t end = 0;
  };
  std::vector<Share> shares_;
};

}  // namespace vkconv::cpu
