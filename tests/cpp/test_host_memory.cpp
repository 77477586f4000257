#include "cpu/memory.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace vkconv::cpu {
namespace {

constexpr std::size_t kPart = kPoolLimitBytes / 8;  // blocks of parts are never touched: they are addresses only

void take_and_give(std::size_t bytes) { const Buffer buffer(bytes); }

// Under AddressSanitizer no block is kept.
bool keeps_blocks() {
  trim_pool();
  take_and_give(kPart);
  return pool_info().cached_bytes > 0;
}

TEST(HostMemory, BlocksOfASizeAreReused) {
  if (!keeps_blocks()) GTEST_SKIP();
  const std::size_t cached = pool_info().cached_bytes;
  {
    const Buffer again(kPart);
    EXPECT_EQ(pool_info().cached_bytes, cached - again.capacity_bytes());
    const Buffer other(kPart);
    EXPECT_NE(other.pointer(), again.pointer());
  }
  EXPECT_EQ(pool_info().cached_bytes, 2 * cached);
  trim_pool();
  EXPECT_EQ(pool_info().cached_bytes, 0u);
}

// Sizes change for good, and what is kept follows.
TEST(HostMemory, BlocksUnusedTheLongestMakeRoom) {
  if (!keeps_blocks()) GTEST_SKIP();
  std::vector<Buffer> old;
  for (int i = 0; i < 8; ++i) old.emplace_back(kPart);
  old.clear();
  EXPECT_EQ(pool_info().cached_bytes, kPoolLimitBytes);
  take_and_give(kPart / 2);
  EXPECT_EQ(pool_info().cached_bytes, 7 * kPart + kPart / 2);
  {
    const Buffer reused(kPart / 2);
    EXPECT_EQ(pool_info().cached_bytes, 7 * kPart);
  }
  take_and_give(kPoolLimitBytes + kPart);  // never kept
  EXPECT_EQ(pool_info().cached_bytes, 7 * kPart + kPart / 2);
  trim_pool();
}

}  // namespace
}  // namespace vkconv::cpu
