// Tiles that multiply lane by lane: the sums of several taps, kernel rows and vectors stay in registers over the lines
// of a block, and each input of a row is loaded once for all outputs of a group that read it.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "algorithms/weight_grad/weight_grad_lanes_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <array>
#include <type_traits>
#include <utility>

#include "algorithms/weight_grad/weight_grad_lanes.h"
#include "core/geometry.h"
#include "cpu/lines.h"
#include "cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::weight_grad::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using cpu::HWY_NAMESPACE::AccumulatorTag;
using cpu::HWY_NAMESPACE::held;
using cpu::HWY_NAMESPACE::hidden;
using cpu::HWY_NAMESPACE::kFewForms;
using cpu::HWY_NAMESPACE::load;

// Where the next outputs' operands of every vector are.
template <class In, int Vectors>
struct LaneOperands {
  const In* x[Vectors];
  const In* dy[Vectors];

  HWY_INLINE void advance(std::int64_t of_x, std::int64_t of_dy) {
    HWY_UNROLL(4)
    for (int v = 0; v < Vectors; ++v) x[v] = hidden(x[v] + of_x), dy[v] = hidden(dy[v] + of_dy);
  }
};

// `Pixels` outputs whose positions are neighbours: each is loaded once, and counts if it has its bit in `inside`;
// without a branch, which would put the sums into memory. Each sum is added to in the order of the pixels.
template <int Stride, int Pixels, bool Masked, class In, int Rows, int Taps, int Vectors>
HWY_INLINE void add_positions(hn::Vec<AccumulatorTag<In>> (&sum)[Rows][Taps][Vectors], const LaneTile<In>& t,
                              LaneOperands<In, Vectors> a, std::uint64_t inside) {
  const AccumulatorTag<In> d;
  const LaneOperands<In, Vectors> first = a;
  hn::Vec<decltype(d)> dy[Pixels][Vectors];
  HWY_UNROLL(4)
  for (int p = 0; p < Pixels; ++p) {
    HWY_UNROLL(4)
    for (int v = 0; v < Vectors; ++v) dy[p][v] = held(load(d, a.dy[v]));
    a.advance(0, t.dy_step);
  }
  HWY_UNROLL(16)
  for (int j = 0; j < (Pixels - 1) * Stride + Taps; ++j, a.advance(t.tap_step, 0)) {
    const bool counts = !Masked || (inside >> j & 1);
    const auto mask = hn::FirstN(d, counts ? hn::Lanes(d) : 0);
    HWY_UNROLL(4)
    for (int r = 0; r < Rows; ++r) {
      HWY_UNROLL(4)
      for (int v = 0; v < Vectors; ++v) {
        const auto x = held(load(d, counts ? a.x[v] + r * t.x_row : first.dy[v]));
        HWY_UNROLL(4)
        for (int p = 0; p < Pixels; ++p) {
          const int q = j - p * Stride;
          if (q < 0 || q >= Taps) continue;
          auto& s = sum[r][q][v];
          const auto added = hn::MulAdd(x, dy[p][v], s);
          s = Masked ? hn::IfThenElse(mask, added, s) : added;
        }
      }
    }
  }
}

// The outputs from i on.
template <int Stride, int Pixels, class In, int Rows, int Taps, int Vectors>
HWY_INLINE void add_outputs(hn::Vec<AccumulatorTag<In>> (&sum)[Rows][Taps][Vectors], const LaneTile<In>& t,
                            LaneOperands<In, Vectors>& a, std::int64_t i) {
  const std::int64_t first = i * Stride;
  if (HWY_LIKELY(t.left <= first && first + (Pixels - 1) * Stride + Taps <= t.right))
    add_positions<Stride, Pixels, false>(sum, t, a, 0);
  else
    add_positions<Stride, Pixels, true>(sum, t, a, positions_inside(t.left, t.right, first));
  a.advance(Pixels * t.x_step, Pixels * t.dy_step);
}

// Output i of one kernel row, tap by tap.
template <class In, int Taps, int Vectors>
HWY_INLINE void add_output(hn::Vec<AccumulatorTag<In>> (&sum)[1][Taps][Vectors], const LaneTile<In>& t,
                           const LaneLine<In>& line, std::int64_t i) {
  const AccumulatorTag<In> d;
  HWY_UNROLL(4)
  for (int v = 0; v < Vectors; ++v) {
    const auto dy = load(d, line.dy + i * t.dy_step + t.offset[v]);
    const In* x = line.x + i * t.x_step + t.offset[v];
    HWY_UNROLL(8)
    for (int q = 0; q < Taps; ++q)
      if (t.inside(i * t.stride + q * t.tap)) sum[0][q][v] = hn::MulAdd(load(d, x + q * t.tap_step), dy, sum[0][q][v]);
  }
}

// What lies behind `Pixels` outputs from i on.
template <int Vectors, int Pixels, class In>
HWY_INLINE void fetch_behind(const LaneTile<In>& t, const LaneLine<In>& line, std::int64_t i) {
  const auto fetch = [&](const In* first, std::int64_t step, std::int64_t behind) HWY_ATTR {
    if (HWY_LIKELY(behind == 0)) return;
    for (int p = 0; p < Pixels; ++p)
      for (int v = 0; v < Vectors; ++v) fetch_line<kIntoL2>(first + (i + p) * step + t.offset[v] + behind);
  };
  fetch(line.x, t.x_step, t.behind.x);
  fetch(line.dy, t.dy_step, t.behind.dy);
}

// Stride: positions from one output to the next where those of the taps are neighbours, or 0.
template <class In, int Stride, int Rows, int Taps, int Vectors>
HWY_NOINLINE void lane_tile(const LaneTile<In>& t) {
  constexpr int kPixels = Vectors == kLaneVectors ? 2 : 4;  // as many as leave no sum out of the registers
  const AccumulatorTag<In> d;
  hn::Vec<decltype(d)> sum[Rows][Taps][Vectors];
  HWY_UNROLL(4)
  for (int r = 0; r < Rows; ++r) HWY_UNROLL(8)
  for (int q = 0; q < Taps; ++q) HWY_UNROLL(4)
  for (int v = 0; v < Vectors; ++v) sum[r][q][v] = hn::Zero(d);
  for (const LaneLine<In>*line = t.lines, *end = line + t.line_count; line != end; ++line) {
    std::int64_t i = 0;
    if constexpr (Stride == 0) {
      for (; i < t.outputs; ++i) add_output(sum, t, *line, i);
    } else {
      LaneOperands<In, Vectors> a;
      HWY_UNROLL(4)
      for (int v = 0; v < Vectors; ++v) a.x[v] = line->x + t.offset[v], a.dy[v] = line->dy + t.offset[v];
      for (; i + kPixels <= t.outputs; i += kPixels) {
        fetch_behind<Vectors, kPixels>(t, *line, i);
        add_outputs<Stride, kPixels>(sum, t, a, i);
      }
      if constexpr (kPixels > 2)
        for (; i + 2 <= t.outputs; i += 2) add_outputs<Stride, 2>(sum, t, a, i);
      for (; i < t.outputs; ++i) add_outputs<Stride, 1>(sum, t, a, i);
    }
  }
  HWY_UNROLL(4)
  for (int r = 0; r < Rows; ++r) HWY_UNROLL(8)
  for (int q = 0; q < Taps; ++q) HWY_UNROLL(4)
  for (int v = 0; v < Vectors; ++v) {
    auto* c = t.c + r * t.c_row + q * t.ldc + v * static_cast<std::int64_t>(hn::Lanes(d));
    hn::StoreU(hn::Add(hn::LoadU(d, c), sum[r][q][v]), d, c);
  }
}

// Of 1, 2, ... taps.
template <class In, int Stride, int Rows, int Vectors, int... i>
HWY_INLINE void run_taps(std::integer_sequence<int, i...>, std::int64_t taps, const LaneTile<In>& t) {
  using Function = void (*)(const LaneTile<In>&);
  static constexpr std::array<Function, sizeof...(i)> kTiles = {lane_tile<In, Stride, Rows, i + 1, Vectors>...};
  kTiles[static_cast<std::size_t>(taps - 1)](t);
}

// Of so many vectors, if tiles of that many rows have them.
template <int Stride, int Rows, int Vectors, class In>
HWY_INLINE void run_vectors(std::int64_t taps, const LaneTile<In>& t) {
  constexpr LaneTiles kTiles{sizeof(In) == 2, hn::MaxLanes(hn::ScalableTag<std::uint8_t>())};
  constexpr auto most_taps = [](LaneTiles tiles) {
    int most = 0;
    while (most < kMaxLaneTaps && (Rows == 1 || tiles.rows(most + 1, Stride) >= Rows) &&
           tiles.vectors(Rows, most + 1) >= Vectors)
      ++most;
    return most;
  };
  constexpr int kTaps = most_taps(kTiles);
  if constexpr (kTaps > 0) run_taps<In, Stride, Rows, Vectors>(std::make_integer_sequence<int, kTaps>(), taps, t);
}

template <int Stride, int Rows, class In>
HWY_INLINE void run_rows(std::int64_t taps, std::int64_t vectors, const LaneTile<In>& t) {
  if (vectors == kLaneVectors) return run_vectors<Stride, Rows, kLaneVectors>(taps, t);
  vectors == 1 ? run_vectors<Stride, Rows, 1>(taps, t) : run_vectors<Stride, Rows, 2>(taps, t);
}

template <int Stride, class In>
HWY_INLINE void run_stride(std::int64_t taps, std::int64_t vectors, const LaneTile<In>& t) {
  if constexpr (Stride > 0) {
    if (t.rows == 2) return run_rows<Stride, 2>(taps, vectors, t);
    if (t.rows == 3) return run_rows<Stride, 3>(taps, vectors, t);
  }
  run_rows<Stride, 1>(taps, vectors, t);
}

// Strided sums of double are rare.
template <class In>
void RunTile(std::int64_t taps, std::int64_t vectors, const LaneTile<In>& t) {
  if constexpr (!kFewForms)
    if (t.tap == 1 && t.stride == 1) return run_stride<1>(taps, vectors, t);
  if constexpr (!kFewForms && !std::is_same_v<In, double>)
    if (t.tap == 1 && t.stride == 2) return run_stride<2>(taps, vectors, t);
  run_stride<0>(taps, vectors, t);
}

void FloatTile(std::int64_t taps, std::int64_t vectors, const LaneTile<float>& t) { RunTile(taps, vectors, t); }
void DoubleTile(std::int64_t taps, std::int64_t vectors, const LaneTile<double>& t) { RunTile(taps, vectors, t); }
void Float16Tile(std::int64_t taps, std::int64_t vectors, const LaneTile<hwy::float16_t>& t) {
  RunTile(taps, vectors, t);
}
void BFloat16Tile(std::int64_t taps, std::int64_t vectors, const LaneTile<hwy::bfloat16_t>& t) {
  RunTile(taps, vectors, t);
}

}  // namespace vkconv::cpu::weight_grad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace vkconv::cpu::weight_grad {
HWY_EXPORT(FloatTile);
HWY_EXPORT(DoubleTile);
HWY_EXPORT(Float16Tile);
HWY_EXPORT(BFloat16Tile);

void run_lane_tile(std::int64_t taps, std::int64_t vectors, const LaneTile<float>& tile) {
  HWY_DYNAMIC_DISPATCH(FloatTile)(taps, vectors, tile);
}
void run_lane_tile(std::int64_t taps, std::int64_t vectors, const LaneTile<double>& tile) {
  HWY_DYNAMIC_DISPATCH(DoubleTile)(taps, vectors, tile);
}
void run_lane_tile(std::int64_t taps, std::int64_t vectors, const LaneTile<hwy::float16_t>& tile) {
  HWY_DYNAMIC_DISPATCH(Float16Tile)(taps, vectors, tile);
}
void run_lane_tile(std::int64_t taps, std::int64_t vectors, const LaneTile<hwy::bfloat16_t>& tile) {
  HWY_DYNAMIC_DISPATCH(BFloat16Tile)(taps, vectors, tile);
}

}  // namespace vkconv::cpu::weight_grad
#endif
