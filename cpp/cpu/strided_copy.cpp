#include "cpu/strided_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>

#include "core/checked.h"
#include "core/geometry.h"
#include "cpu/thread_pool.h"
#include "cpu/transpose.h"

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

// The two axes a task loops over, and how they and the others are cut into tasks.
struct Loops {
  int inner = 0, outer = 1;  // dense in `to`; the densest other axis in `from`
  std::int64_t inner_chunk = 1, inner_chunks = 1, outer_chunk = 1, outer_chunks = 1, tasks = 1;
  Transpose transpose = nullptr;  // where both axes are dense, each in its array
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

bool aligned(const StridedCopy& c) {
  auto bits = reinterpret_cast<std::uintptr_t>(c.to) | reinterpret_cast<std::uintptr_t>(c.from);
  for (int a = 0; a < c.axes; ++a) bits |= static_cast<std::uintptr_t>(c.to_stride[a] | c.from_stride[a]);
  return bits % c.element_bytes == 0;
}

Loops plan_loops(const StridedCopy& c) {
  Loops l;
  l.inner = std::max(densest(c.to_stride, c, -1), 0);
  l.outer = densest(c.from_stride, c, l.inner);
  if (l.outer < 0) l.outer = l.inner == 0 ? 1 : 0;
  const auto bytes = static_cast<std::int64_t>(c.element_bytes);
  if (bytes > 2 && !c.swap_bytes && c.to_stride[l.inner] == bytes && c.from_stride[l.outer] == bytes && aligned(c))
    l.transpose = transpose_of(c.element_bytes);
  const std::int64_t inner = c.extent[l.inner], outer = c.extent[l.outer];
  l.outer_chunk = round_up(std::max<std::int64_t>(kElementsPerTask / inner, 1), kOuterBlock);
  l.outer_chunks = ceil_div(outer, l.outer_chunk);
  l.inner_chunk = round_up(std::max<std::int64_t>(kElementsPerTask / std::min(outer, l.outer_chunk), 1), kInnerBlock);
  l.inner_chunks = ceil_div(inner, l.inner_chunk);
  l.tasks = l.outer_chunks * l.inner_chunks;
  for (int a = 0; a < c.axes; ++a)
    if (a != l.inner && a != l.outer) l.tasks *= c.extent[a];
  return l;
}

// Of the elements `inner` of each of the rows `outer`.
template <class T, bool kSwap>
void copy_plane(const StridedCopy& c, const Loops& l, std::byte* to, const std::byte* from, Range inner, Range outer) {
  const std::int64_t to_inner = c.to_stride[l.inner], from_inner = c.from_stride[l.inner];
  const std::int64_t to_outer = c.to_stride[l.outer], from_outer = c.from_stride[l.outer];
  if (!kSwap && to_inner == sizeof(T) && from_inner == sizeof(T)) {
    const std::int64_t skipped = inner.begin * static_cast<std::int64_t>(sizeof(T));
    for (std::int64_t o = outer.begin; o < outer.end; ++o)
      std::memcpy(to + o * to_outer + skipped, from + o * from_outer + skipped,
                  static_cast<std::size_t>(inner.size()) * sizeof(T));
    return;
  }
  for (std::int64_t i0 = inner.begin; i0 < inner.end; i0 += kInnerBlock) {
    const std::int64_t i1 = std::min(i0 + kInnerBlock, inner.end);
    if (l.transpose != nullptr) {
      l.transpose(from + outer.begin * from_outer + i0 * from_inner, from_inner / static_cast<std::int64_t>(sizeof(T)),
                  i1 - i0, outer.size(), to + outer.begin * to_outer + i0 * to_inner,
                  to_outer / static_cast<std::int64_t>(sizeof(T)));
      continue;
    }
    for (std::int64_t o = outer.begin; o < outer.end; ++o)
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
  const std::int64_t o0 = task % l.outer_chunks * l.outer_chunk;
  std::int64_t rest = task / l.outer_chunks, to = 0, from = 0;
  const std::int64_t i0 = rest % l.inner_chunks * l.inner_chunk;
  rest /= l.inner_chunks;
  for (int a = c.axes - 1; a >= 0; --a) {
    if (a == l.inner || a == l.outer) continue;
    to += rest % c.extent[a] * c.to_stride[a];
    from += rest % c.extent[a] * c.from_stride[a];
    rest /= c.extent[a];
  }
  const Range inner{i0, std::min(i0 + l.inner_chunk, c.extent[l.inner])};
  const std::int64_t end = std::min(o0 + l.outer_chunk, c.extent[l.outer]);
  for (std::int64_t o = o0; o < end; o += kOuterBlock)
    copy_plane<T, kSwap>(c, l, c.to + to, c.from + from, inner, {o, std::min(o + kOuterBlock, end)});
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
