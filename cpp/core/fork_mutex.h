// A mutex that a forked child finds free, and what it guards whole: fork() waits for the thread that holds one. For
// short sections that take no other lock.
#pragma once
#include <mutex>

namespace vkconv {

class ForkMutex {
 public:
  ForkMutex();
  ~ForkMutex();
  ForkMutex(const ForkMutex&) = delete;

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

}  // namespace vkconv
