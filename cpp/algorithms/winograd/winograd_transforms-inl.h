// The transforms of one tile, one vector of channels at a time: a matrix along H for every column of the tile, then
// the matrix along W for every row. Rows +p and -p of a matrix share their even half and, up to sign, their odd half.
#if defined(VKCONV_WINOGRAD_TRANSFORMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VKCONV_WINOGRAD_TRANSFORMS_INL_H_
#undef VKCONV_WINOGRAD_TRANSFORMS_INL_H_
#else
#define VKCONV_WINOGRAD_TRANSFORMS_INL_H_
#endif

#include <cstdint>

#include "algorithms/winograd/winograd_points.h"
#include "algorithms/winograd/winograd_staging-inl.h"
#include "cpu/gemm-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;

// Last column of the parity with a coefficient.
template <const auto& kMatrix>
constexpr int last_column(int row, int parity) {
  int last = -1;
  for (int k = parity; k < static_cast<int>(kMatrix[row].size()); k += 2)
    if (kMatrix[row][k] != 0) last = k;
  return last;
}

// Sum over the columns of one parity, divided by the coefficient of the last one.
template <const auto& kMatrix, int kRow, int kParity>
HWY_INLINE FloatVec monic_half(const FloatVec* x) {
  constexpr int kLast = last_column<kMatrix>(kRow, kParity);
  FloatVec sum = x[kLast];
  unroll<kLast / 2>([&](auto i) __attribute__((always_inline)) {
    constexpr int kColumn = kLast - 2 * (decltype(i)::value + 1);
    constexpr float kFactor = static_cast<float>(kMatrix[kRow][kColumn] / kMatrix[kRow][kLast]);
    if constexpr (kFactor == 1)
      sum = hn::Add(x[kColumn], sum);
    else if constexpr (kFactor != 0)
      sum = hn::MulAdd(hn::Set(FloatTag(), kFactor), x[kColumn], sum);
  });
  return sum;
}

template <const auto& kMatrix, int kRow, int kParity>
HWY_INLINE FloatVec half(const FloatVec* x) {
  constexpr float kFactor = static_cast<float>(kMatrix[kRow][last_column<kMatrix>(kRow, kParity)]);
  const FloatVec sum = monic_half<kMatrix, kRow, kParity>(x);
  if constexpr (kFactor == 1)
    return sum;
  else
    return hn::Mul(hn::Set(FloatTag(), kFactor), sum);
}

// y = matrix * x for a matrix with one row a point.
template <class Points, const auto& kMatrix>
HWY_INLINE void evaluate(const FloatVec* x, FloatVec* y) {
  unroll<Points::pairs>([&](auto i) __attribute__((always_inline)) {
    constexpr int kRow = 2 * decltype(i)::value;
    constexpr float kOdd = static_cast<float>(kMatrix[kRow][last_column<kMatrix>(kRow, 1)]);
    const FloatVec even = half<kMatrix, kRow, 0>(x), odd = monic_half<kMatrix, kRow, 1>(x);
    if constexpr (kOdd == 1) {
      y[kRow] = hn::Add(even, odd);
      y[kRow + 1] = hn::Sub(even, odd);
    } else {
      y[kRow] = hn::MulAdd(hn::Set(FloatTag(), kOdd), odd, even);
      y[kRow + 1] = hn::NegMulAdd(hn::Set(FloatTag(), kOdd), odd, even);
    }
  });
  // Zero and infinity: columns of one parity only.
  unroll<Points::count - 2 * Points::pairs>([&](auto i) __attribute__((always_inline)) {
    constexpr int kRow = 2 * Points::pairs + decltype(i)::value;
    constexpr int kParity = last_column<kMatrix>(kRow, 0) >= 0 ? 0 : 1;
    y[kRow] = half<kMatrix, kRow, kParity>(x);
  });
}

// y = transpose(Points::output) * x.
template <class Points>
HWY_INLINE void combine(const FloatVec* x, FloatVec* y) {
  constexpr const auto& kMatrix = Points::output;
  FloatVec sum[Points::pairs + 1], difference[Points::pairs + 1];
  unroll<Points::pairs>([&](auto i) __attribute__((always_inline)) {
    sum[i] = hn::Add(x[2 * i], x[2 * i + 1]);
    difference[i] = hn::Sub(x[2 * i], x[2 * i + 1]);
  });
  unroll<Points::outputs>([&](auto output) __attribute__((always_inline)) {
    constexpr int kOutput = decltype(output)::value;
    // Zero feeds the first output, infinity the last.
    constexpr bool kZero = kOutput == 0 && Points::finite > 2 * Points::pairs;
    constexpr bool kInfinity = kOutput == Points::outputs - 1;
    FloatVec y_k = kZero ? x[2 * Points::pairs] : kInfinity ? x[Points::finite] : hn::Zero(FloatTag());
    unroll<Points::pairs>([&](auto i) __attribute__((always_inline)) {
      constexpr int kPair = decltype(i)::value;
      constexpr float kFactor = static_cast<float>(kMatrix[2 * kPair][kOutput]);
      const FloatVec term = kOutput % 2 == 0 ? sum[kPair] : difference[kPair];
      if constexpr (kFactor == 1)
        y_k = hn::Add(term, y_k);
      else if constexpr (kPair == 0 && !kZero && !kInfinity)
        y_k = hn::Mul(hn::Set(FloatTag(), kFactor), term);
      else
        y_k = hn::MulAdd(hn::Set(FloatTag(), kFactor), term, y_k);
    });
    y[kOutput] = y_k;
  });
}

template <int kMH, int kMW, int kRH, int kRW>
struct TileTransforms {
  using H = winograd::Points<kMH, kRH>;
  using W = winograd::Points<kMW, kRW>;

  // f(0), ..., f(n - 1). The vectors of a small tile stay in registers when this is unrolled; a larger one lies in
  // memory anyway, and unrolled its addresses would as well.
  template <int n, class F>
  static HWY_INLINE void for_each_line(F f) {
    if constexpr (H::count * W::count <= 16) {
      unroll<n>(f);
    } else {
      HWY_UNROLL(1)
      for (int i = 0; i < n; ++i) f(i);
    }
  }

  // pixel(i, j): channel 0 of a pixel of the tile. The pixels `ahead` bytes of them are fetched: those of the tile to
  // the right, which no hardware prefetcher expects where a tile has several rows.
  template <class Pixel>
  static HWY_INLINE void input_from(Pixel pixel, DType dtype, std::int64_t ahead, std::int64_t channels, float* v,
                                    std::int64_t point_stride) {
    const FloatTag d;
    for (std::int64_t c = 0; c < channels; c += hn::Lanes(d)) {
      FloatVec rows[H::count][W::count];
      for_each_line<W::count>([&](auto j) __attribute__((always_inline)) {
        FloatVec column[H::count], points[H::count];
        with_simd_type(
            dtype, [&](auto zero) __attribute__((always_inline)) {
              unroll<H::count>([&](auto i) __attribute__((always_inline)) {
                const auto* x = reinterpret_cast<const decltype(zero)*>(pixel(i, j)) + c;
                column[i] = load(d, x);
                if constexpr (H::count > 1) hwy::Prefetch(reinterpret_cast<const std::byte*>(x) + ahead);
              });
            });
        evaluate<H, H::input>(column, points);
        unroll<H::count>([&](auto i) __attribute__((always_inline)) { rows[i][j] = points[i]; });
      });
      for_each_line<H::count>([&](auto i) __attribute__((always_inline)) {
        FloatVec points[W::count];
        evaluate<W, W::input>(rows[i], points);
        float* to = v + c + i * W::count * point_stride;
        unroll<W::count>([&](auto j)
                             __attribute__((always_inline)) { hn::StoreU(points[j], d, to + j * point_stride); });
      });
    }
  }

  static void input(const void* x, DType dtype, std::int64_t row_stride, std::int64_t pixel_stride,
                    std::int64_t channels, float* v, std::int64_t point_stride) {
    const auto element = static_cast<std::int64_t>(size_bytes(dtype));
    const std::int64_t row_bytes = row_stride * element, pixel_bytes = pixel_stride * element;
    const auto pixel = [=](int i, int j) __attribute__((always_inline)) {
      return static_cast<const std::byte*>(x) + i * row_bytes + j * pixel_bytes;
    };
    input_from(pixel, dtype, kMW * pixel_bytes, channels, v, point_stride);
  }

  static void input_pixels(const std::byte* const* pixels, DType dtype, std::int64_t channels, float* v,
                           std::int64_t point_stride) {
    const auto pixel = [=](int i, int j) __attribute__((always_inline)) { return pixels[i * W::count + j]; };
    input_from(pixel, dtype, 0, channels, v, point_stride);
  }

  static void weight(const float* taps, std::int64_t row_stride, std::int64_t tap_stride, std::int64_t values, float* u,
                     std::int64_t point_stride) {
    const FloatTag d;
    for (std::int64_t at = 0; at < values; at += hn::Lanes(d)) {
      FloatVec rows[H::count][kRW];
      for_each_line<kRW>([&](auto j) __attribute__((always_inline)) {
        FloatVec column[kRH], points[H::count];
        const float* tap = taps + j * tap_stride + at;
        unroll<kRH>([&](auto i) __attribute__((always_inline)) { column[i] = hn::LoadU(d, tap + i * row_stride); });
        evaluate<H, H::weight>(column, points);
        unroll<H::count>([&](auto i) __attribute__((always_inline)) { rows[i][j] = points[i]; });
      });
      for_each_line<H::count>([&](auto i) __attribute__((always_inline)) {
        FloatVec points[W::count];
        evaluate<W, W::weight>(rows[i], points);
        float* to = u + at + i * W::count * point_stride;
        unroll<W::count>([&](auto j)
                             __attribute__((always_inline)) { hn::StoreU(points[j], d, to + j * point_stride); });
      });
    }
  }

  // Fetches the sums of the next tile, which lie behind those of this one.
  static bool output(const float* sums, std::int64_t point_stride, const float* bias, void* y, DType dtype,
                     std::int64_t row_stride, std::int64_t pixel_stride) {
    const FloatTag d;
    const std::int64_t lanes = hn::Lanes(d);
    FloatVec poison = hn::Zero(d);  // NaN from the first value on that is not finite
    for (std::int64_t at = 0; at < 2 * lanes; at += lanes) {
      FloatVec rows[kMH][W::count];
      for_each_line<W::count>([&](auto j) __attribute__((always_inline)) {
        FloatVec points[H::count], column[kMH];
        const float* from = sums + j * point_stride + at;
        unroll<H::count>([&](auto i) __attribute__((always_inline)) {
          points[i] = hn::LoadU(d, from + i * W::count * point_stride);
          hwy::Prefetch(from + i * W::count * point_stride + 2 * lanes);
        });
        combine<H>(points, column);
        unroll<kMH>([&](auto i) __attribute__((always_inline)) { rows[i][j] = column[i]; });
      });
      const FloatVec b = hn::LoadU(d, bias + at);
      for_each_line<kMH>([&](auto i) __attribute__((always_inline)) {
        FloatVec pixels[kMW];
        combine<W>(rows[i], pixels);
        unroll<kMW>([&](auto j) __attribute__((always_inline)) {
          pixels[j] = hn::Add(pixels[j], b);
          poison = hn::MulAdd(pixels[j], hn::Zero(d), poison);
        });
        with_simd_type(
            dtype, [&](auto zero) __attribute__((always_inline)) {
              auto* to = static_cast<decltype(zero)*>(y) + i * row_stride + at;
              unroll<kMW>([&](auto j) __attribute__((always_inline)) { store(pixels[j], d, to + j * pixel_stride); });
            });
      });
    }
    return hn::AllTrue(d, hn::Eq(poison, hn::Zero(d)));
  }
};

}  // namespace vkconv::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
