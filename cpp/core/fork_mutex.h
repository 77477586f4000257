// A mutex that a forked child finds free, and what it guards whole: fork() waits for the thread that holds one.
#pragma once
#include <mutex>

namespace vkconv {

// While an inner one is held, for short sections, no other is taken. While an outer one is held, inner ones may be,
// and outer ones that were made later.
class ForkMutex {
 public:
  enum class Level { outer, inner };

  explicit ForkMutex(Level level = Level::inner);
  ~ForkMutex();
  ForkMutex(const ForkMutex&) = delete;

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
  const Level level_;
};

}  // namespace vkconv
