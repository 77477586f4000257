// Host memory that runs out anywhere in a call on the CPU: an exception, nothing leaked, and the next call is right.
#include <gtest/gtest.h>

#include <optional>

#include "cpu/backend.h"
#include "cpu/memory.h"
#include "cpu/thread_pool.h"
#include "fault_calls.h"
#include "host_faults.h"

namespace vkconv::cpu {
namespace {

using tools::HostFaults;
using tools::Shortage;

constexpr std::int64_t kMostAllocations = 20'000;

// What the call gives, or nothing when it ran out of memory.
std::optional<std::vector<double>> attempt(const tools::Call& call) try {
  return call.run();
} catch (const OutOfMemory&) {
  return std::nullopt;
} catch (const std::bad_alloc&) {
  return std::nullopt;
}

void expect_survival(const char* name, Backend& backend, const tools::Call& call, Shortage shortage) {
  const std::vector<double> expected = call.run();
  const std::size_t used = pool_info().used_bytes;
  bool fired = true;
  for (std::int64_t n = 0; fired && n < kMostAllocations; ++n) {
    backend.clear_cache();
    trim_pool();
    std::optional<std::vector<double>> got;
    {
      const HostFaults faults(n, shortage);
      got = attempt(call);
      fired = faults.fired();
    }
    ASSERT_TRUE(fired || got) << name << ": no allocation failed, and yet the call did";
    ASSERT_EQ(got.value_or(expected), expected) << name << " after allocation " << n << " failed";
    ASSERT_EQ(pool_info().used_bytes, used) << name << " leaks when allocation " << n << " fails";
    ASSERT_EQ(call.run(), expected) << name << ", the call after allocation " << n << " failed";
  }
  EXPECT_FALSE(fired);
}

// With one thread: each keeps scratch memory of its own from the first time that it takes part.
TEST(HostFaults, EveryAllocationOfACall) {
  const auto backend = make_backend();
  const int threads = num_threads();
  set_num_threads(1);
  for (const tools::FaultCall& c : tools::kFaultCalls) {
    const tools::Call call(c, *backend);
    for (const Shortage shortage : {Shortage::once, Shortage::from_then_on})
      expect_survival(c.problem, *backend, call, shortage);
  }
  set_num_threads(threads);
}

TEST(HostFaults, AllocationsInWorkers) {
  const auto backend = make_backend();
  for (const tools::FaultCall& c : tools::kFaultCalls) {
    const tools::Call call(c, *backend);
    const std::vector<double> expected = call.run();
    for (std::int64_t n = 0; n < 200; n += 7) {
      backend->clear_cache();
      trim_pool();
      std::optional<std::vector<double>> got;
      {
        const HostFaults faults(n, Shortage::from_then_on);
        got = attempt(call);
      }
      ASSERT_EQ(got.value_or(expected), expected) << c.problem << " after allocation " << n << " failed";
      ASSERT_EQ(call.run(), expected) << c.problem << ", the call after allocation " << n << " failed";
    }
  }
}

TEST(HostFaults, APoolGetsTheThreadsThereAre) {
  for (std::int64_t n = 0; n < 12; ++n) {
    std::optional<ThreadPool> pool;
    try {
      const HostFaults faults(n, Shortage::from_then_on);
      pool.emplace(6);
    } catch (const std::bad_alloc&) {
      continue;
    }
    EXPECT_LE(pool->size(), 6);
    std::atomic<int> done{0};
    pool->run(40, [&](std::int64_t) { ++done; });
    EXPECT_EQ(done, 40);
  }
}

}  // namespace
}  // namespace vkconv::cpu
