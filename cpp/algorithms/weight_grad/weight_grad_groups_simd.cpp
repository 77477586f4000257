// Tiles whose vectors hold the channels of several groups and pixels: a vector of inputs of each tap is multiplied by
// permutations of one vector of output gradients, one for each of a group's output channels.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "algorithms/weight_grad/weight_grad_groups_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <algorithm>
#include <array>
#include <utility>

#include "algorithms/weight_grad/weight_grad_groups.h"
#include "core/geometry.h"
#include "cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::weight_grad::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T, int Rows, int Taps>
HWY_NOINLINE void group_tile(const GroupTile<T>& t) {
  using cpu::HWY_NAMESPACE::load_n;
  using cpu::HWY_NAMESPACE::unroll;
  const hn::ScalableTag<T> d;
  const hn::RebindToSigned<decltype(d)> integers;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto in_lanes = [&](std::int64_t elements) { return static_cast<std::size_t>(std::min(lanes, elements)); };
  V sum[Taps][Rows];
  decltype(hn::IndicesFromVec(d, hn::Zero(integers))) index[Rows];
  unroll<Rows>([&](auto r) __attribute__((always_inline)) {
    const auto first = static_cast<hwy::MakeSigned<T>>(t.row + r);
    index[r] = hn::IndicesFromVec(d, hn::Add(hn::LoadU(integers, t.index), hn::Set(integers, first)));
    unroll<Taps>([&](auto q) __attribute__((always_inline)) { sum[q][r] = hn::Zero(d); });
  });
  // Taps that `counts` of the outputs that dy holds; x(q) are the inputs that tap q reads.
  const auto add = [&](V dy, auto x, auto counts) __attribute__((always_inline)) {
    V row[Rows];
    unroll<Rows>([&](auto r) __attribute__((always_inline)) { row[r] = hn::TableLookupLanes(dy, index[r]); });
    unroll<Taps>([&](auto q) __attribute__((always_inline)) {
      if (!counts(q)) return;
      const V column = x(q);
      unroll<Rows>([&](auto r) __attribute__((always_inline)) { sum[q][r] = hn::MulAdd(column, row[r], sum[q][r]); });
    });
  };
  const std::int64_t x_vector = t.pixels * t.x_step, dy_vector = t.pixels * t.dy_step;
  std::int64_t first = t.inner.begin, last = t.inner.end;
  for (int q = 0; q < Taps; ++q)
    if (t.begin[q] < t.end[q]) first = std::min(first, t.begin[q]), last = std::max(last, t.end[q]);
  for (const OuterSlice<T>*s = t.lines, *lines_end = s + t.line_count; s != lines_end; ++s) {
    const T *line_x = s->vectors + t.x_channel, *line_dy = s->rows + t.dy_channel;
    for (std::int64_t i = first, count; i < last; i += count) {
      const T *x = line_x + i * t.x_step, *dy = line_dy + i * t.dy_step;
      count = 1;
      if (t.inner.contains(i)) {
        for (; i < t.whole_end; i += t.pixels, x += x_vector, dy += dy_vector)
          add(
              hn::LoadU(d, dy), [&](auto q) __attribute__((always_inline)) { return hn::LoadU(d, x + q * t.tap_step); },
              [](auto) { return true; });
        count = std::min(t.pixels, t.inner.end - i);
        if (count == 0) continue;
      }
      add(
          load_n(d, dy, in_lanes(count * t.dy_pixel)),
          [&](auto q)
              __attribute__((always_inline)) { return load_n(d, x + q * t.tap_step, in_lanes(count * t.x_pixel)); },
          [&](auto q) { return t.begin[q] <= i && i < t.end[q]; });
    }
  }
  unroll<Taps>([&](auto q) __attribute__((always_inline)) {
    unroll<Rows>([&](auto r) __attribute__((always_inline)) {
      T* c = t.c + q * t.tap_ldc + r * t.row_ldc;
      hn::StoreU(hn::Add(hn::LoadU(d, c), sum[q][r]), d, c);
    });
  });
}

template <class T, int Rows, int... q>
HWY_INLINE void run_tile(std::integer_sequence<int, q...>, std::int64_t taps, const GroupTile<T>& t) {
  using Function = void (*)(const GroupTile<T>&);
  static constexpr std::array<Function, sizeof...(q)> kTiles = {group_tile<T, Rows, q + 1>...};
  kTiles[static_cast<std::size_t>(taps - 1)](t);
}

template <class T>
void RunTile(std::int64_t rows, std::int64_t taps, const GroupTile<T>& t) {
  const auto run = [&](auto row_count) {
    run_tile<T, row_count>(std::make_integer_sequence<int, most_group_taps(row_count)>(), taps, t);
  };
  if (rows == 1) return run(std::integral_constant<int, 1>());
  if (rows == 2) return run(std::integral_constant<int, 2>());
  if (rows == 3) return run(std::integral_constant<int, 3>());
  run(std::integral_constant<int, kMaxGroupRows>());
}

void FloatTile(std::int64_t rows, std::int64_t taps, const GroupTile<float>& tile) { RunTile(rows, taps, tile); }
void DoubleTile(std::int64_t rows, std::int64_t taps, const GroupTile<double>& tile) { RunTile(rows, taps, tile); }

}  // namespace vkconv::cpu::weight_grad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace vkconv::cpu::weight_grad {
HWY_EXPORT(FloatTile);
HWY_EXPORT(DoubleTile);

void run_group_tile(std::int64_t rows, std::int64_t taps, const GroupTile<float>& tile) {
  HWY_DYNAMIC_DISPATCH(FloatTile)(rows, taps, tile);
}
void run_group_tile(std::int64_t rows, std::int64_t taps, const GroupTile<double>& tile) {
  HWY_DYNAMIC_DISPATCH(DoubleTile)(rows, taps, tile);
}

}  // namespace vkconv::cpu::weight_grad
#endif
