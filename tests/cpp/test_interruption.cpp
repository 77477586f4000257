#include "core/interruption.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>

#include "cpu/job.h"
#include "cpu/thread_pool.h"

namespace vkconv {
namespace {

struct Ended : std::runtime_error {
  Ended() : std::runtime_error("ended"), alive(std::make_shared<int>()) { last = alive; }
  std::shared_ptr<int> alive;
  static inline std::weak_ptr<int> last;
};

void end() { throw Ended(); }

std::atomic<int> checks{0};
void count() { ++checks; }

// Work of one thread until the check has been called.
void ask_for(std::chrono::milliseconds time) {
  for (const auto begin = std::chrono::steady_clock::now(); std::chrono::steady_clock::now() - begin < time;)
    check_interruption();
}

TEST(Interruption, IsAskedForOnceInAPeriod) {
  checks = 0;
  const Interruptible by(&count);
  check_interruption();
  EXPECT_EQ(checks, 0);
  const auto begin = std::chrono::steady_clock::now();
  ask_for(4 * kInterruptionPeriod);
  const auto periods = (std::chrono::steady_clock::now() - begin) / kInterruptionPeriod;
  EXPECT_GE(checks, 1);
  EXPECT_LE(checks, periods);
}

TEST(Interruption, IsAskedForBetweenScopesOfNothing) {
  checks = 0;
  const Interruptible by(&count);
  for (const auto begin = std::chrono::steady_clock::now();
       std::chrono::steady_clock::now() - begin < 4 * kInterruptionPeriod;) {
    { const Interruptible by_nothing(nullptr); }
    check_interruption();
  }
  EXPECT_GE(checks, 1);
}

TEST(Interruption, EndsWithItsScopeAndIsOfOneThread) {
  EXPECT_FALSE(interruptible());
  {
    const Interruptible by(&end);
    EXPECT_TRUE(interruptible());
    std::thread([] { EXPECT_FALSE(interruptible()); }).join();
    {
      const Interruptible by_nothing(nullptr);
      EXPECT_FALSE(interruptible());
      EXPECT_NO_THROW(ask_for(2 * kInterruptionPeriod));
    }
    EXPECT_TRUE(interruptible());
    EXPECT_THROW(ask_for(4 * kInterruptionPeriod), Ended);
  }
  EXPECT_FALSE(interruptible());
}

TEST(Interruption, EndsAJobOfManyTasks) {
  for (int threads : {1, 3}) {
    cpu::ThreadPool pool(threads);
    std::atomic<int> tasks{0};
    {
      const Interruptible by(&end);
      EXPECT_THROW(pool.run(1000000,
                            [&](std::int64_t) {
                              ++tasks;
                              std::this_thread::sleep_for(std::chrono::milliseconds(2));
                            }),
                   Ended);
    }
    EXPECT_LT(tasks, 1000000);
    EXPECT_TRUE(Ended::last.expired()) << "the pool keeps the exception, and what it refers to";
    tasks = 0;
    pool.run(100, [&](std::int64_t) { ++tasks; });
    EXPECT_EQ(tasks, 100);
  }
}

// Every task asks: that of the caller is interrupted, the others hear of it.
TEST(Interruption, EndsLongTasksOfAllThreads) {
  cpu::ThreadPool pool(3);
  std::atomic<int> inside{0};
  const Interruptible by(&end);
  EXPECT_THROW(pool.run(3,
                        [&](std::int64_t) {
                          for (++inside;;) cpu::check_job();
                        }),
               Ended);
  EXPECT_GE(inside, 1);
}

std::atomic<int> nested{0};

// What an interruption runs may be a call that uses the same pool.
TEST(Interruption, MayUseThePoolMeanwhile) {
  nested = 0;
  const Interruptible by([] { cpu::thread_pool().run(10, [](std::int64_t) { ++nested; }); });
  std::atomic<int> tasks{0};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  cpu::thread_pool().run(100, [&](std::int64_t) {
    ++tasks;
    do {  // until one was interrupted, on however many cores
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      cpu::check_job();
    } while (nested == 0 && std::chrono::steady_clock::now() < deadline);
  });
  EXPECT_EQ(tasks, 100);
  EXPECT_GE(nested, 10);
  EXPECT_EQ(nested % 10, 0);
}

}  // namespace
}  // namespace vkconv
