#include "core/fork_mutex.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace vkconv {
namespace {

// Runs in a forked child, where an alarm ends a hang. True when the check returned true.
template <class Check>
bool in_child(Check&& check) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(600);
    _exit(check() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Threads write two values under an inner lock, some of them while they hold the outer one, and make inner locks there.
TEST(ForkMutex, IsFreeInTheChildAndWhatItGuardsIsWhole) {
  ForkMutex inner;  // made before the outer one: the level decides
  ForkMutex outer(ForkMutex::Level::outer);
  std::int64_t first = 0, second = 0;
  std::atomic<bool> stop{false};
  const auto write = [&] {
    std::lock_guard lock(inner);
    ++first;
    std::this_thread::yield();
    ++second;
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      while (!stop) write();
    });
  threads.emplace_back([&] {
    while (!stop) {
      std::lock_guard lock(outer);
      write();
      ForkMutex made;
      std::lock_guard lock_made(made);
    }
  });
  for (int i = 0; i < 200; ++i)
    EXPECT_TRUE(in_child([&] {
      std::lock_guard lock_outer(outer);
      std::lock_guard lock(inner);
      return first == second && std::make_unique<ForkMutex>() != nullptr;
    })) << i;
  stop = true;
  for (std::thread& t : threads) t.join();
}

}  // namespace
}  // namespace vkconv
