#include "cpu/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/error.h"
#include "cpu/affinity.h"

namespace vkconv::cpu {
namespace {

// Every task exactly once.
void expect_each_once(ThreadPool& pool, std::int64_t tasks) {
  std::vector<std::atomic<int>> calls(static_cast<std::size_t>(tasks));
  pool.run(tasks, [&](std::int64_t t) { ++calls[static_cast<std::size_t>(t)]; });
  for (auto& c : calls) ASSERT_EQ(c, 1);
}

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (int threads : {1, 2, 3, 5, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (std::int64_t tasks : {0, 1, 2, 3, 17, 1000}) expect_each_once(pool, tasks);
  }
}

TEST(TaskShares, AThreadTakesItsOwnTasksFirst) {
  TaskShares shares(3, 8);
  std::vector<std::int64_t> taken;
  const auto take = [&](std::int64_t task) { taken.push_back(task); };
  shares.drain(1, take);
  EXPECT_EQ(taken, (std::vector<std::int64_t>{2, 3, 4, 5, 6, 7, 0, 1}));
  taken.clear();
  shares.drain(0, take);
  EXPECT_TRUE(taken.empty());
  shares.reset(2);  // fewer than threads
  shares.drain(2, take);
  EXPECT_EQ(taken, (std::vector<std::int64_t>{1, 0}));
  taken.clear();
  shares.reset(9);
  shares.drain(0, [&](std::int64_t task) {
    take(task);
    if (task == 1) shares.abandon();
  });
  EXPECT_EQ(taken, (std::vector<std::int64_t>{0, 1}));
}

// Short jobs one after another: a worker that wakes late must not touch the next job's state.
TEST(ThreadPool, BackToBackJobs) {
  ThreadPool pool(4);
  for (int job = 0; job < 20000; ++job) {
    std::atomic<int> done{0};
    pool.run(3, [&](std::int64_t) { ++done; });
    ASSERT_EQ(done, 3);
  }
}

TEST(ThreadPool, WorkersWakeFromSleep) {
  ThreadPool pool(3);
  for (int round = 0; round < 5; ++round) {
    usleep(3000);  // longer than workers spin
    expect_each_once(pool, 64);
  }
}

TEST(Affinity, LeavesAProcessorAndMayComeBack) {
  cpu_set_t before, after;
  CPU_ZERO(&before);
  CPU_ZERO(&after);
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  if (CPU_COUNT(&before) < 2) GTEST_SKIP() << "one processor";
  for (int i = 0; i < 3; ++i) {
    // The kernel may move the thread again before it is asked, but not often.
    int moved = 0;
    for (int attempt = 0; attempt < 20; ++attempt) {
      const int processor = sched_getcpu();
      leave_processor(processor);
      moved += sched_getcpu() != processor;
    }
    EXPECT_GT(moved, 10);
  }
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(ThreadPool, NestedCallsRunInTheTask) {
  ThreadPool pool(3);
  std::atomic<std::int64_t> sum{0};
  pool.run(8, [&](std::int64_t outer) {
    pool.run(
        8, [&](std::int64_t inner) { pool.run(2, [&](std::int64_t leaf) { sum += outer * 16 + inner * 2 + leaf; }); });
  });
  EXPECT_EQ(sum, 127 * 128 / 2);
}

TEST(ThreadPool, RethrowsAndStaysUsable) {
  for (int threads : {1, 4}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 50; ++round) {
      EXPECT_THROW(pool.run(100,
                            [](std::int64_t t) {
                              if (t % 10 == 3) throw std::runtime_error("task");
                            }),
                   std::runtime_error);
      expect_each_once(pool, 20);
    }
  }
}

TEST(ThreadPool, NestedExceptionReachesTheCaller) {
  ThreadPool pool(3);
  EXPECT_THROW(pool.run(4, [&](std::int64_t) { pool.run(4, [](std::int64_t) { throw std::logic_error("inner"); }); }),
               std::logic_error);
  expect_each_once(pool, 20);
}

TEST(ThreadPool, ManyCallers) {
  ThreadPool pool(3);
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int c = 0; c < 8; ++c)
    callers.emplace_back([&, c] {
      for (int job = 0; job < 300; ++job) {
        const std::int64_t tasks = 1 + (c * 31 + job) % 40;
        std::atomic<std::int64_t> sum{0};
        pool.run(tasks, [&](std::int64_t t) { sum += t + 1; });
        wrong += sum != tasks * (tasks + 1) / 2;
      }
    });
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ThreadPool, ConstructionAndDestruction) {
  for (int round = 0; round < 200; ++round) {
    ThreadPool pool(1 + round % 4);
    if (round % 3) expect_each_once(pool, round % 7);
  }
}

TEST(GlobalPool, FollowsSetNumThreads) {
  const int before = num_threads();
  for (int threads : {1, 3, 2, 5}) {
    set_num_threads(threads);
    EXPECT_EQ(num_threads(), threads);
    EXPECT_EQ(thread_pool().size(), std::min(threads, usable_processors()));
    expect_each_once(thread_pool(), 33);
  }
  set_num_threads(before);
}

TEST(GlobalPool, ReplacedWhileInUse) {
  const int before = num_threads();
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::thread user([&] {
    while (!stop) {
      std::atomic<int> done{0};
      thread_pool().run(16, [&](std::int64_t) { ++done; });
      wrong += done != 16;
    }
  });
  for (int i = 0; i < 20; ++i) set_num_threads(1 + i % 3);
  stop = true;
  user.join();
  EXPECT_EQ(wrong, 0);
  set_num_threads(before);
}

// The workers do not exist in a child process; its first job makes new ones.
TEST(GlobalPool, WorksAfterFork) {
  const int before = num_threads();
  set_num_threads(3);
  const int size = std::min(3, usable_processors());
  expect_each_once(thread_pool(), 50);
  const pid_t child = fork();
  if (child == 0) {
    alarm(600);  // a lost job ends the child instead of hanging the test
    std::atomic<std::int64_t> sum{0};
    for (int job = 0; job < 20; ++job) thread_pool().run(50, [&](std::int64_t t) { sum += t; });
    _exit(sum == 20 * 49 * 50 / 2 && thread_pool().size() == size ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  expect_each_once(thread_pool(), 50);
  set_num_threads(before);
}

// A fork from inside a task: the child is a task of a job whose workers are gone.
TEST(GlobalPool, WorksAfterForkInATask) {
  const int before = num_threads();
  set_num_threads(3);
  std::atomic<int> failures{0};
  thread_pool().run(3, [&](std::int64_t) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(600);
      std::atomic<int> done{0};
      thread_pool().run(9, [&](std::int64_t) { ++done; });
      _exit(done == 9 ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    failures += !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  });
  EXPECT_EQ(failures, 0);
  set_num_threads(before);
}

TEST(QuotaProcessors, OfBothVersionsOfCgroups) {
  namespace fs = std::filesystem;
  const fs::path root = fs::path(testing::TempDir()) / ("vkconv_cgroups_" + std::to_string(getpid()));
  fs::create_directories(root / "cpu");
  const auto write = [&](const char* name, const char* text) { std::ofstream(root / name) << text << "\n"; };
  EXPECT_EQ(quota_processors(root), kNoQuota);
  for (const auto& [quota, processors] :
       {std::pair{"-1", kNoQuota}, {"250000", 3}, {"240000", 2}, {"10000", 1}, {"nonsense", kNoQuota}}) {
    write("cpu/cpu.cfs_quota_us", quota);
    write("cpu/cpu.cfs_period_us", "100000");
    EXPECT_EQ(quota_processors(root), processors) << quota;
  }
  write("cpu/cpu.cfs_quota_us", "100000");
  for (const auto& [quota, processors] :
       {std::pair{"max 100000", kNoQuota}, {"400000 100000", 4}, {"1 100000", 1}, {"100000 0", kNoQuota}}) {
    write("cpu.max", quota);
    EXPECT_EQ(quota_processors(root), processors) << quota;
  }
  fs::remove_all(root);
}

TEST(DefaultNumThreads, ReadsTheEnvironment) {
  const char* set = std::getenv("VKCONV_NUM_THREADS");
  const std::string before = set ? set : "";
  setenv("VKCONV_NUM_THREADS", "7", 1);
  EXPECT_EQ(default_num_threads(), 7);
  setenv("VKCONV_NUM_THREADS", "", 1);
  EXPECT_EQ(default_num_threads(), usable_processors());
  for (const char* nonsense : {"0", "-3", "many", "4 threads", "99999999999"}) {
    setenv("VKCONV_NUM_THREADS", nonsense, 1);
    EXPECT_THROW(default_num_threads(), ProblemError) << nonsense;
  }
  if (set)
    setenv("VKCONV_NUM_THREADS", before.c_str(), 1);
  else
    unsetenv("VKCONV_NUM_THREADS");
}

}  // namespace
}  // namespace vkconv::cpu
