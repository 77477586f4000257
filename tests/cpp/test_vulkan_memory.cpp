// Memory of a Vulkan device: the pool, host memory that is imported, and arrays that do not fit.
#if VKCONV_VULKAN
#include <cstring>
#include <random>

#include "harness.h"
#include "vulkan_test.h"

namespace vkconv::vulkan {
namespace {

class VulkanMemory : public VulkanTest {};

TEST_F(VulkanMemory, PoolReusesAndReturnsMemory) {
  MemoryPool& pool = device_->memory();
  pool.trim();
  const MemoryInfo before = pool.info();
  {
    const Buffer a = device_->allocate(1000);
    EXPECT_EQ(a.pointer() % kBufferAlignmentBytes, 0u);
    EXPECT_EQ(pool.info().used_bytes, before.used_bytes + 1024);
    Pointer first;
    {
      const Buffer b = device_->allocate(5000);
      first = b.pointer();
    }
    const Buffer again = device_->allocate(4000);
    EXPECT_EQ(again.pointer(), first);
    const Buffer large = device_->allocate(std::size_t{80} << 20);
    EXPECT_GE(pool.info().peak_used_bytes, before.used_bytes + (std::size_t{80} << 20));
  }
  EXPECT_EQ(pool.info().used_bytes, before.used_bytes);
  EXPECT_GT(pool.info().reserved_bytes, before.reserved_bytes);
  pool.trim();
  EXPECT_EQ(pool.info().reserved_bytes, before.reserved_bytes);
}

TEST_F(VulkanMemory, WhatWasUnusedLongestIsReleased) {
  constexpr std::size_t kOld = std::size_t{240} << 20, kNew = std::size_t{160} << 20;
  MemoryPool& pool = device_->memory();
  pool.trim();
  const MemoryInfo before = pool.info();
  if (before.budget_bytes < 4 * (kOld + kNew)) GTEST_SKIP() << "too little memory";
  { const Buffer first = device_->allocate(kOld), second = device_->allocate(kOld); }
  for (int i = 0; i < 3; ++i) const Buffer recent = device_->allocate(kNew);
  // One of the old blocks is gone, the recent one is kept.
  EXPECT_NEAR(double(pool.info().reserved_bytes - before.reserved_bytes), double(kOld + kNew), 16e6);
  pool.trim();
}

TEST_F(VulkanMemory, PoolMergesFreeRanges) {
  MemoryPool& pool = device_->memory();
  pool.trim();
  std::mt19937 random(3);
  std::vector<Buffer> live;
  for (int round = 0; round < 2000; ++round) {
    if (!live.empty() && random() % 2) {
      std::swap(live[random() % live.size()], live.back());
      live.pop_back();
    } else {
      live.push_back(device_->allocate(1 + random() % 300'000));
      const Buffer& made = live.back();
      for (std::size_t i = 0; i + 1 < live.size(); ++i)
        ASSERT_TRUE(made.pointer() + made.size_bytes() <= live[i].pointer() ||
                    live[i].pointer() + live[i].size_bytes() <= made.pointer());
    }
  }
  live.clear();
  const Buffer half = device_->allocate(std::size_t{30} << 20), other = device_->allocate(std::size_t{30} << 20);
  EXPECT_LE(pool.info().reserved_bytes, std::uint64_t{260} << 20);
}

TEST_F(VulkanMemory, OutOfMemoryLeavesTheDeviceWorking) {
  const Limits& limits = device_->traits().limits;
  EXPECT_THROW(device_->allocate(limits.allocation_bytes), OutOfMemory);
  EXPECT_THROW(device_->allocate(~std::size_t{0}), OutOfMemory);
  EXPECT_GT(device_->allocate(1 << 20).pointer(), 0u);
  EXPECT_FALSE(device_->lost());
}

// Arrays that do not fit together, and arrays beyond the largest allocation.
TEST_F(VulkanMemory, ShortMemoryComputesInParts) {
  Planner<cpu::Device> cpu(registry<cpu::Device>(), cpu::host_traits());
  const auto backend = make_backend(0);
  MemoryPool& pool = device_->memory();
  // Each takes two arrays of about 190 KB, too small to be imported.
  for (const char* text : {"fwd_f32_n3c4o4_i80x50_k3x3_p1x1_bias", "fwd_f32_n1c4o8_i240x50_k3x3_s2x1_p1x1",
                           "igrad_f32_n1c4o8g2_i240x50_k3x3_s2x1_p1x1_flip", "wgrad_f32_n1c6o6_i90x88_k3x3_p1x1",
                           "wgrad_f32_n1c6o6g3_i90x88_k3x2_p1x1"}) {
    const ConvProblem p = parse_problem(text);
    const tools::Arrays arrays = tools::make_arrays(p, tools::Data::small_integers);
    const std::vector<double> expected = tools::run_cpu(p, arrays, cpu, "reference");
    backend->synchronize();
    pool.trim();
    ASSERT_EQ(pool.info().reserved_bytes, 0u);
    pool.set_budget(300 << 10);
    pool.reset_peak();
    EXPECT_NO_THROW(EXPECT_EQ(run_backend(*backend, p, arrays, ""), expected)) << text;
    EXPECT_LE(pool.info().peak_used_bytes, pool.info().budget_bytes) << text;
    pool.trim();
    pool.set_budget(0);
    EXPECT_THROW(run_backend(*backend, p, arrays, ""), OutOfMemory) << text;
    pool.set_budget(~std::uint64_t{0});
  }
  EXPECT_FALSE(device_->lost());
}

// A device that shares the host's memory reads and writes large arrays where they are.
TEST_F(VulkanMemory, LargeHostArraysAreImported) {
  const Traits& traits = device_->traits();
  if (!traits.unified_memory || !traits.features.external_memory_host) GTEST_SKIP() << "the device imports nothing";
  const ConvProblem p = parse_problem("fwd_f32_n2c8o8_i200x150_k3x3_p1x1_relu");
  Planner<cpu::Device> cpu(registry<cpu::Device>(), cpu::host_traits());
  const auto backend = make_backend(0);
  const tools::Arrays arrays = tools::make_arrays(p, tools::Data::small_integers);
  device_->memory().reset_peak();
  const std::uint64_t before = device_->memory().info().used_bytes;
  const auto got = run_backend(*backend, p, arrays, "reference");
  EXPECT_EQ(got, tools::run_cpu(p, arrays, cpu, "reference"));
  EXPECT_LE(device_->memory().info().peak_used_bytes, before + (64 << 10));
}

TEST_F(VulkanMemory, ImportedArraysMayHaveAnyStridesAndAddress) {
  const ConvProblem p = parse_problem("fwd_f32_n2c5o3_i150x99_k3x3_p1x1");
  Planner<cpu::Device> cpu(registry<cpu::Device>(), cpu::host_traits());
  const auto backend = make_backend(0);
  tools::HostOperands host(p, tools::make_arrays(p, tools::Data::small_integers));
  View<std::byte*>&x = host.operands.input, &y = host.operands.output;
  x = x.sliced(0, 1, -1, p.dtype).sliced(2, 149, -1, p.dtype);
  y = y.sliced(3, 98, -1, p.dtype);
  std::vector<double> results[2];
  for (int i = 0; i < 2; ++i) {
    std::memset(host.written, 0xff, host.output.size());
    if (i == 0) {
      backend->execute({p, "reference"}, {host.operands});
    } else {
      cpu::Device::Stream stream;
      cpu.plan({p, "reference"})->execute(stream, host.operands, nullptr);
    }
    results[i] = host.result(p);
  }
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace vkconv::vulkan
#endif
