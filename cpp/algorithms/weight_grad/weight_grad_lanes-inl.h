// Register tiles that multiply lane by lane. Included once per instruction set.
#if defined(VKCONV_WEIGHT_GRAD_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VKCONV_WEIGHT_GRAD_LANES_INL_H_
#undef VKCONV_WEIGHT_GRAD_LANES_INL_H_
#else
#define VKCONV_WEIGHT_GRAD_LANES_INL_H_
#endif

#include <array>
#include <utility>

#include "algorithms/weight_grad/weight_grad_groups.h"
#include "cpu/lines.h"
#include "cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::weight_grad::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Elements from x and dy to what is fetched into L2 meanwhile; 0: nothing.
struct Behind {
  std::int64_t x = 0, dy = 0;
};

// Neighbouring taps of one line, lane by lane: c[q] += sum over i in [begin[q], end[q]) of
// x[i * x_step + q * tap_step] * dy[i * dy_step], for 1, 2 or kLaneVectors vectors.
inline constexpr int kMaxLaneTaps = 7;
inline constexpr int kManyVectorTaps = 3;  // most taps of a tile of kLaneVectors vectors
template <class T>
struct LaneTile {
  const T* x;
  const T* dy;
  std::int64_t x_step, dy_step, tap_step;
  std::int64_t begin[kMaxLaneTaps], end[kMaxLaneTaps];
  std::int64_t offset[kLaneVectors];  // first channel of each vector
  T* c;
  std::int64_t ldc;
  Behind behind;
};

// `Pixels` outputs from i on whose taps all count, where tap q of an output is tap q + 1 of the one before: every
// element of x is loaded once. Each sum is added to in the order of the pixels.
template <class T, int Taps, int Vectors, int Pixels>
HWY_INLINE void add_sliding(hn::Vec<hn::ScalableTag<T>> (&sum)[Taps][Vectors], const LaneTile<T>& t, std::int64_t i) {
  const hn::ScalableTag<T> d;
  hn::Vec<decltype(d)> dy[Pixels][Vectors];
  HWY_UNROLL(4)
  for (int p = 0; p < Pixels; ++p) HWY_UNROLL(4)
  for (int v = 0; v < Vectors; ++v) dy[p][v] = hn::LoadU(d, t.dy + (i + p) * t.dy_step + t.offset[v]);
  HWY_UNROLL(16)
  for (int j = 0; j < Pixels + Taps - 1; ++j) HWY_UNROLL(4)
  for (int v = 0; v < Vectors; ++v) {
    const auto x = hn::LoadU(d, t.x + (i + j) * t.x_step + t.offset[v]);
    HWY_UNROLL(4)
    for (int p = 0; p < Pixels; ++p)
      if (j >= p && j - p < Taps) sum[j - p][v] = hn::MulAdd(x, dy[p][v], sum[j - p][v]);
  }
}

// Output i, tap by tap.
template <class T, int Taps, int Vectors>
HWY_INLINE void add_output(hn::Vec<hn::ScalableTag<T>> (&sum)[Taps][Vectors], const LaneTile<T>& t, std::int64_t i) {
  const hn::ScalableTag<T> d;
  HWY_UNROLL(4)
  for (int v = 0; v < Vectors; ++v) {
    const auto dy = hn::LoadU(d, t.dy + i * t.dy_step + t.offset[v]);
    const T* x = t.x + i * t.x_step + t.offset[v];
    HWY_UNROLL(8)
    for (int q = 0; q < Taps; ++q)
      if (i >= t.begin[q] && i < t.end[q]) sum[q][v] = hn::MulAdd(hn::LoadU(d, x + q * t.tap_step), dy, sum[q][v]);
  }
}

// What lies behind `Pixels` outputs from i on.
template <int Vectors, int Pixels, class T>
HWY_INLINE void fetch_behind(const LaneTile<T>& t, std::int64_t i) {
  const auto fetch = [&](const T* first, std::int64_t step, std::int64_t behind) HWY_ATTR {
    if (HWY_LIKELY(behind == 0)) return;
    for (int p = 0; p < Pixels; ++p)
      for (int v = 0; v < Vectors; ++v) fetch_line<kIntoL2>(first + (i + p) * step + t.offset[v] + behind);
  };
  fetch(t.x, t.x_step, t.behind.x);
  fetch(t.dy, t.dy_step, t.behind.dy);
}

template <class T, int Taps, int Vectors>
HWY_NOINLINE void lane_tile(const LaneTile<T>& t) {
  constexpr int kPixels = Vectors == kLaneVectors ? 2 : 4;  // as many as leave no sum out of the registers
  const hn::ScalableTag<T> d;
  hn::Vec<decltype(d)> sum[Taps][Vectors];
  std::int64_t first = t.begin[0], last = t.end[0], inner = t.begin[0], inner_end = t.end[0];
  HWY_UNROLL(8)
  for (int q = 0; q < Taps; ++q) {
    first = std::min(first, t.begin[q]), last = std::max(last, t.end[q]);
    inner = std::max(inner, t.begin[q]), inner_end = std::min(inner_end, t.end[q]);
    HWY_UNROLL(4)
    for (int v = 0; v < Vectors; ++v) sum[q][v] = hn::Zero(d);
  }
  std::int64_t i = first;
  if (t.x_step == t.tap_step && inner < inner_end) {
    for (; i < inner; ++i) add_output<T, Taps, Vectors>(sum, t, i);
    for (; i + kPixels <= inner_end; i += kPixels) {
      fetch_behind<Vectors, kPixels>(t, i);
      add_sliding<T, Taps, Vectors, kPixels>(sum, t, i);
    }
  }
  for (; i < last; ++i) add_output<T, Taps, Vectors>(sum, t, i);
  HWY_UNROLL(8)
  for (int q = 0; q < Taps; ++q) HWY_UNROLL(4)
  for (int v = 0; v < Vectors; ++v) {
    T* c = t.c + q * t.ldc + v * static_cast<std::int64_t>(hn::Lanes(d));
    hn::StoreU(hn::Add(hn::LoadU(d, c), sum[q][v]), d, c);
  }
}

template <class T, int Vectors, int... i>
HWY_INLINE void run_lane_tile(std::integer_sequence<int, i...>, std::int64_t taps, const LaneTile<T>& t) {
  using Function = void (*)(const LaneTile<T>&);
  static constexpr std::array<Function, sizeof...(i)> kTiles = {lane_tile<T, i + 1, Vectors>...};
  kTiles[static_cast<std::size_t>(taps - 1)](t);
}

// Vectors of a tile of `taps` taps where `left` of them are wanted: few taps take more, as a sum can be added to only
// every few cycles.
inline std::int64_t lane_tile_vectors(std::int64_t taps, std::int64_t left) {
  if (taps <= kManyVectorTaps && left >= kLaneVectors) return kLaneVectors;
  return left > 1 ? 2 : 1;
}

// taps in [1, kMaxLaneTaps], vectors from lane_tile_vectors().
template <class T>
HWY_INLINE void run_lane_tile(std::int64_t taps, std::int64_t vectors, const LaneTile<T>& t) {
  const std::make_integer_sequence<int, kMaxLaneTaps> sizes;
  if (vectors == kLaneVectors)
    run_lane_tile<T, kLaneVectors>(std::make_integer_sequence<int, kManyVectorTaps>(), taps, t);
  else
    vectors == 1 ? run_lane_tile<T, 1>(sizes, taps, t) : run_lane_tile<T, 2>(sizes, taps, t);
}

}  // namespace vkconv::cpu::weight_grad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
