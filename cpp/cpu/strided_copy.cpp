#include "cpu/strided_copy.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>

#include "core/checked.h"
#include "cpu/thread_pool.h"

namespace vkconv::cpu {
namespace {

// A block of this many elements along the axis dense in `to` and the axis dense in `from`: one cache line of the first
// for each step of the second, all of which stay in L1.
constexpr std::int64_t kInnerBlock = 16, kOuterBlock = 64;
constexpr std::int64_t kElementsPerTask = 16 << 10;

template <std::size_t kBytes>
struct UnsignedOf;
template <>
struct UnsignedOf<2> {
  using type = std::uint16_t;
};
template <>
struct UnsignedOf<4> {
  using type = std::uint32_t;
};
template <>
struct UnsignedOf<8> {
  using type = std::uint64_t;
};

std::uint16_t swapped(std::uint16_t v) { return __builtin_bswap16(v); }
std::uint32_t swapped(std::uint32_t v) { return __builtin_bswap32(v); }
std::uint64_t swapped(std::uint64_t v) { return __builtin_bswap64(v); }

// The two axes a task loops over, and how the others are cut into tasks.
struct Loops {
  int inner = 0, outer = 1;  // dense in `to`; dense in `from`, or the longest other axis
  std::int64_t outer_chunk = 1, chunks = 1, tasks = 1;
};

std::int64_t elements(const StridedCopy& c) {
  return std::accumulate(c.extent.begin(), c.extent.begin() + c.axes, std::int64_t{1}, std::multiplies<>());
}

int densest(const std::array<std::int64_t, kMaxCopyAxes>& stride, const StridedCopy& c, int except) {
  int best = -1;
  for (int a = 0; a < c.axes; ++a) {
    if (a == except || c.extent[a] == 1) continue;
    if (best < 0 || std::abs(stride[a]) < std::abs(stride[best])) best = a;
  }
  return best;
}

Loops plan_loops(const StridedCopy& c) {
  Loops l;
  l.inner = std::max(densest(c.to_stride, c, -1), 0);
  l.outer = densest(c.from_stride, c, l.inner);
  if (l.outer < 0) l.outer = l.inner == 0 ? 1 : 0;
  l.outer_chunk = round_up(std::max<std::int64_t>(kElementsPerTask / c.extent[l.inner], 1), kOuterBlock);
  l.chunks = ceil_div(c.extent[l.outer], l.outer_chunk);
  l.tasks = l.chunks;
  for (int a = 0; a < c.axes; ++a)
    if (a != l.inner && a != l.outer) l.tasks *= c.extent[a];
  return l;
}

template <class T, bool kSwap>
void copy_plane(const StridedCopy& c, const Loops& l, std::byte* to, const std::byte* from, std::int64_t begin,
                std::int64_t end) {
  const std::int64_t to_inner = c.to_stride[l.inner], from_inner = c.from_stride[l.inner];
  const std::int64_t to_outer = c.to_stride[l.outer], from_outer = c.from_stride[l.outer];
  if (!kSwap && to_inner == sizeof(T) && from_inner == sizeof(T)) {
    for (std::int64_t o = begin; o < end; ++o)
      std::memcpy(to + o * to_outer, from + o * from_outer, static_cast<std::size_t>(c.extent[l.inner]) * sizeof(T));
    return;
  }
  for (std::int64_t i0 = 0; i0 < c.extent[l.inner]; i0 += kInnerBlock) {
    const std::int64_t i1 = std::min(i0 + kInnerBlock, c.extent[l.inner]);
    for (std::int64_t o = begin; o < end; ++o)
      for (std::int64_t i = i0; i < i1; ++i) {
        T value;
        std::memcpy(&value, from + o * from_outer + i * from_inner, sizeof value);
        if constexpr (kSwap) value = swapped(value);
        std::memcpy(to + o * to_outer + i * to_inner, &value, sizeof value);
      }
  }
}

template <class T, bool kSwap>
void copy_task(const StridedCopy& c, const Loops& l, std::int64_t task) {
  const std::int64_t begin = task % l.chunks * l.outer_chunk;
  const std::int64_t end = std::min(begin + l.outer_chunk, c.extent[l.outer]);
  std::int64_t rest = task / l.chunks, to = 0, from = 0;
  for (int a = c.axes - 1; a >= 0; --a) {
    if (a == l.inner || a == l.outer) continue;
    to += rest % c.extent[a] * c.to_stride[a];
    from += rest % c.extent[a] * c.from_stride[a];
    rest /= c.extent[a];
  }
  for (std::int64_t o = begin; o < end; o += kOuterBlock)
    copy_plane<T, kSwap>(c, l, c.to + to, c.from + from, o, std::min(o + kOuterBlock, end));
}

template <std::size_t kBytes>
void run_elements(const StridedCopy& c, const Loops& l) {
  using T = typename UnsignedOf<kBytes>::type;
  const auto run = [&](auto&& copy) {
    if (elements(c) > kElementsPerTask) return thread_pool().run(l.tasks, copy);
    for (std::int64_t task = 0; task < l.tasks; ++task) copy(task);
  };
  if (c.swap_bytes)
    run([&](std::int64_t task) { copy_task<T, true>(c, l, task); });
  else
    run([&](std::int64_t task) { copy_task<T, false>(c, l, task); });
}

}  // namespace

void run(const StridedCopy& copy) {
  StridedCopy c = copy;
  if (std::find(c.extent.begin(), c.extent.begin() + c.axes, 0) != c.extent.begin() + c.axes) return;
  for (; c.axes < 2; ++c.axes) c.extent[c.axes] = 1;
  const Loops loops = plan_loops(c);
  switch (c.element_bytes) {
    case 2:
      return run_elements<2>(c, loops);
    case 4:
      return run_elements<4>(c, loops);
    default:
      return run_elements<8>(c, loops);
  }
}

void copy(const StridedArray& from, const StridedArray& to) {
  StridedCopy c;
  c.from = from.data;
  c.to = to.data;
  c.element_bytes = from.element_bytes;
  for (std::size_t i = 0; i < from.extent.size(); ++i) {
    const std::int64_t extent = from.extent[i], bytes = static_cast<std::int64_t>(from.element_bytes);
    const std::int64_t from_stride = from.stride[i] * bytes, to_stride = to.stride[i] * bytes;
    if (extent == 1) continue;
    // An axis that goes on where the one after it ends is one with it.
    const int before = c.axes - 1;
    const bool merges =
        before >= 0 && c.from_stride[before] == extent * from_stride && c.to_stride[before] == extent * to_stride;
    const int axis = merges ? before : c.axes++;
    c.extent[axis] = merges ? c.extent[axis] * extent : extent;
    c.from_stride[axis] = from_stride;
    c.to_stride[axis] = to_stride;
  }
  run(c);
}

}  // namespace vkconv::cpu
