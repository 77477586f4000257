#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "cpu/strided_copy.h"
#include "cpu/thread_pool.h"

namespace vkconv::cpu {
namespace {

using Extents = std::vector<std::int64_t>;

// Byte strides of a dense array whose axes lie in memory in the order `axes`, slowest first.
std::array<std::int64_t, kMaxCopyAxes> dense_strides(const Extents& extent, const std::vector<int>& axes,
                                                     std::int64_t element_bytes) {
  std::array<std::int64_t, kMaxCopyAxes> stride{};
  std::int64_t next = element_bytes;
  for (auto a = axes.rbegin(); a != axes.rend(); ++a) {
    stride[*a] = next;
    next *= extent[*a];
  }
  return stride;
}

std::int64_t offset_of(std::int64_t flat, const Extents& extent, const std::array<std::int64_t, kMaxCopyAxes>& stride) {
  std::int64_t offset = 0;
  for (int a = static_cast<int>(extent.size()) - 1; a >= 0; --a) {
    offset += flat % extent[a] * stride[a];
    flat /= extent[a];
  }
  return offset;
}

// Copies between two axis orders and checks every byte against the definition; `skew` bytes misalign the source.
void check(const Extents& extent, const std::vector<int>& from_axes, const std::vector<int>& to_axes,
           std::size_t element_bytes, bool swap, std::int64_t skew) {
  const std::int64_t elements = std::accumulate(extent.begin(), extent.end(), std::int64_t{1}, std::multiplies<>());
  const auto bytes = static_cast<std::int64_t>(element_bytes);
  std::vector<std::byte> from(elements * bytes + skew), to(elements * bytes, std::byte{0xee});
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 131 + (i >> 8));
  StridedCopy c;
  c.to = to.data();
  c.from = from.data() + skew;
  c.element_bytes = element_bytes;
  c.swap_bytes = swap;
  c.axes = static_cast<int>(extent.size());
  std::copy(extent.begin(), extent.end(), c.extent.begin());
  c.from_stride = dense_strides(extent, from_axes, bytes);
  c.to_stride = dense_strides(extent, to_axes, bytes);
  run(c);
  for (std::int64_t i = 0; i < elements; ++i)
    for (std::int64_t b = 0; b < bytes; ++b)
      ASSERT_EQ(to[offset_of(i, extent, c.to_stride) + b],
                c.from[offset_of(i, extent, c.from_stride) + (swap ? bytes - 1 - b : b)])
          << "element " << i << " byte " << b;
}

TEST(StridedCopy, EveryOrderOfThreeAxes) {
  std::vector<int> from{0, 1, 2};
  do {
    for (std::size_t element : {2, 4, 8})
      for (bool swap : {false, true}) check({3, 70, 19}, from, {0, 1, 2}, element, swap, 1);
  } while (std::next_permutation(from.begin(), from.end()));
}

TEST(StridedCopy, ChannelsFirstToLastAndBack) {
  const Extents extent{2, 3, 17, 33, 50};
  check(extent, {0, 4, 1, 2, 3}, {0, 1, 2, 3, 4}, 4, false, 0);
  check(extent, {0, 1, 2, 3, 4}, {0, 4, 1, 2, 3}, 4, false, 0);
}

TEST(StridedCopy, FewAxesAndThinOnes) {
  check({1000}, {0}, {0}, 4, true, 3);
  check({1, 40000}, {0, 1}, {0, 1}, 2, false, 1);
  check({40000, 1}, {1, 0}, {0, 1}, 2, false, 0);
  check({1, 1, 1}, {2, 1, 0}, {0, 1, 2}, 8, true, 0);
}

TEST(StridedCopy, ReversedAndBroadcastSources) {
  std::vector<std::uint16_t> from(24), to(2 * 24);
  std::iota(from.begin(), from.end(), std::uint16_t{0});
  StridedCopy c;
  c.to = reinterpret_cast<std::byte*>(to.data());
  c.from = reinterpret_cast<const std::byte*>(from.data() + 23);
  c.element_bytes = 2;
  c.axes = 2;
  c.extent = {2, 24};
  c.from_stride = {0, -2};
  c.to_stride = {48, 2};
  run(c);
  for (int i = 0; i < 48; ++i) EXPECT_EQ(to[i], 23 - i % 24);
}

TEST(StridedCopy, NothingToCopy) {
  std::byte untouched{7};
  StridedCopy c;
  c.to = &untouched;
  c.axes = 2;
  c.extent = {3, 0};
  run(c);
  EXPECT_EQ(untouched, std::byte{7});
}

}  // namespace
}  // namespace vkconv::cpu
