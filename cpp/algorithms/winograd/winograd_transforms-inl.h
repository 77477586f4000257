// The transforms of one tile, one vector of channels at a time: a matrix along H for every column of a plane, then the
// matrix along W for every row. Of a deep tile a plane of points at a time is a sum of its slices, by the matrix along
// D. Rows +p and -p of a matrix share their even half and, up to sign, their odd half.
#if defined(VKCONV_WINOGRAD_TRANSFORMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VKCONV_WINOGRAD_TRANSFORMS_INL_H_
#undef VKCONV_WINOGRAD_TRANSFORMS_INL_H_
#else
#define VKCONV_WINOGRAD_TRANSFORMS_INL_H_
#endif

#include <cstdint>

#include "algorithms/winograd/winograd_points.h"
#include "algorithms/winograd/winograd_staging-inl.h"
#include "hwy/cache_control.h"
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

template <int kMD, int kMH, int kMW, int kRD, int kRH, int kRW>
struct TileTransforms {
  using D = winograd::Points<kMD, kRD>;
  using H = winograd::Points<kMH, kRH>;
  using W = winograd::Points<kMW, kRW>;
  static constexpr bool kDeep = D::count > 1;
  static constexpr int kPlane = H::count * W::count;

  // f(0), ..., f(n - 1). The vectors of a small tile stay in registers when this is unrolled; a larger one lies in
  // memory anyway, and unrolled its addresses would as well.
  template <int n, class F>
  static HWY_INLINE void for_each_line(F f) {
    if constexpr (kPlane <= 16 && !kDeep) {
      unroll<n>(f);
    } else {
      HWY_UNROLL(1)
      for (int i = 0; i < n; ++i) f(i);
    }
  }

  // put(p, v): point p of a plane of kRows x kColumns vectors, of which get(j, column) gives column j, by the matrices
  // of H and W.
  template <const auto& kMatrixH, const auto& kMatrixW, int kRows, int kColumns, class Get, class Put>
  static HWY_INLINE void evaluate_plane(Get get, Put put) {
    FloatVec rows[H::count][kColumns];
    for_each_line<kColumns>([&](auto j) __attribute__((always_inline)) {
      FloatVec column[kRows], points[H::count];
      get(j, column);
      evaluate<H, kMatrixH>(column, points);
      HWY_UNROLL(16)
      for (int i = 0; i < H::count; ++i) rows[i][j] = points[i];
    });
    for_each_line<H::count>([&](auto i) __attribute__((always_inline)) {
      FloatVec points[W::count];
      evaluate<W, kMatrixW>(rows[i], points);
      HWY_UNROLL(16)
      for (int j = 0; j < W::count; ++j) put(i * W::count + j, points[j]);
    });
  }

  // Column j of a plane: kSlices columns get(k, i) of kRows vectors, by row `plane` of the matrix of D.
  template <const auto& kMatrixD, int kSlices, int kRows, class Get>
  static HWY_INLINE void sum_slices(int plane, Get get, FloatVec* column) {
    if constexpr (!kDeep) {
      HWY_UNROLL(16)
      for (int i = 0; i < kRows; ++i) column[i] = get(0, i);
    } else {
      HWY_UNROLL(16)
      for (int i = 0; i < kRows; ++i) column[i] = hn::Zero(FloatTag());
      HWY_UNROLL(1)
      for (int k = 0; k < kSlices; ++k) {
        const auto factor = static_cast<float>(kMatrixD[plane][k]);
        if (factor == 0) continue;
        HWY_UNROLL(16)
        for (int i = 0; i < kRows; ++i) column[i] = hn::MulAdd(hn::Set(FloatTag(), factor), get(k, i), column[i]);
      }
    }
  }

  // pixel(k, i, j): channel 0 of a pixel of the tile. The pixels `ahead` bytes of them are fetched: those of the tile
  // to the right, which no hardware prefetcher expects where a tile has several rows. Deep tiles fill L1 as it is.
  template <class Pixel>
  static HWY_INLINE void input_from(Pixel pixel, DType dtype, std::int64_t ahead, int plane, std::int64_t channels,
                                    float* v, std::int64_t point_stride) {
    const FloatTag d;
    for (std::int64_t c = 0; c < channels; c += hn::Lanes(d)) {
      const auto column = [&](int j, FloatVec* to) __attribute__((always_inline)) {
        with_float_type(
            dtype, [&](auto zero) __attribute__((always_inline)) {
              const auto vector = [&](int k, int i) __attribute__((always_inline)) {
                const auto* x = reinterpret_cast<const decltype(zero)*>(pixel(k, i, j)) + c;
                if constexpr (H::count > 1 && !kDeep) hwy::Prefetch(reinterpret_cast<const std::byte*>(x) + ahead);
                return load(d, x);
              };
              sum_slices<D::input, D::count, H::count>(plane, vector, to);
            });
      };
      evaluate_plane<H::input, W::input, H::count, W::count>(
          column, [&](int p, FloatVec point)
                      __attribute__((always_inline)) { hn::StoreU(point, d, v + c + p * point_stride); });
    }
  }

  static void input(const void* x, DType dtype, const winograd::TileStrides& stride, int plane, std::int64_t channels,
                    float* v, std::int64_t point_stride) {
    const auto element = static_cast<std::int64_t>(size_bytes(dtype));
    const std::int64_t slice_bytes = stride.slice * element, row_bytes = stride.row * element;
    const std::int64_t pixel_bytes = stride.pixel * element;
    const auto pixel = [=](int k, int i, int j) __attribute__((always_inline)) {
      return static_cast<const std::byte*>(x) + k * slice_bytes + i * row_bytes + j * pixel_bytes;
    };
    input_from(pixel, dtype, kMW * pixel_bytes, plane, channels, v, point_stride);
  }

  static void input_pixels(const std::byte* const* pixels, DType dtype, int plane, std::int64_t channels, float* v,
                           std::int64_t point_stride) {
    const auto pixel = [=](int k, int i, int j) __attribute__((always_inline)) {
      return pixels[k * kPlane + i * W::count + j];
    };
    input_from(pixel, dtype, 0, plane, channels, v, point_stride);
  }

  template <bool kStream>
  static void weight(const float* taps, const winograd::TileStrides& stride, int plane, std::int64_t values, float* u,
                     std::int64_t point_stride) {
    const FloatTag d;
    const auto put = [&](FloatVec point, float* to) __attribute__((always_inline)) {
      if constexpr (kStream)
        hn::Stream(point, d, to);
      else
        hn::StoreU(point, d, to);
    };
    for (std::int64_t at = 0; at < values; at += hn::Lanes(d)) {
      const auto column = [&](int j, FloatVec* to) __attribute__((always_inline)) {
        const float* tap = taps + j * stride.pixel + at;
        const auto vector = [&](int k, int i) __attribute__((always_inline)) {
          return hn::LoadU(d, tap + k * stride.slice + i * stride.row);
        };
        sum_slices<D::weight, kRD, kRH>(plane, vector, to);
      };
      evaluate_plane<H::weight, W::weight, kRH, kRW>(
          column, [&](int p, FloatVec point) __attribute__((always_inline)) { put(point, u + at + p * point_stride); });
    }
  }

  // The outputs of one plane of points: sum(p) is the one of point p, row(i, pixels) takes row i.
  template <class Sum, class Row>
  static HWY_INLINE void combine_plane(Sum sum, Row row) {
    FloatVec rows[kMH][W::count];
    for_each_line<W::count>([&](auto j) __attribute__((always_inline)) {
      FloatVec points[H::count], column[kMH];
      HWY_UNROLL(16)
      for (int i = 0; i < H::count; ++i) points[i] = sum(i * W::count + j);
      combine<H>(points, column);
      HWY_UNROLL(16)
      for (int i = 0; i < kMH; ++i) rows[i][j] = column[i];
    });
    for_each_line<kMH>([&](auto i) __attribute__((always_inline)) {
      FloatVec pixels[kMW];
      combine<W>(rows[i], pixels);
      row(i, pixels);
    });
  }

  // The same of a tile, row(e, i, pixels): along D first, for every point of the planes.
  template <class Sum, class Row>
  static HWY_INLINE void combine_tile(Sum sum, Row row) {
    if constexpr (!kDeep) {
      const auto at_row = [&](auto i, FloatVec* pixels) __attribute__((always_inline)) { row(0, i, pixels); };
      combine_plane(sum, at_row);
    } else {
      FloatVec planes[kMD][kPlane];
      HWY_UNROLL(1)
      for (int p = 0; p < kPlane; ++p) {
        FloatVec points[D::count], column[kMD];
        HWY_UNROLL(16)
        for (int k = 0; k < D::count; ++k) points[k] = sum(k * kPlane + p);
        combine<D>(points, column);
        HWY_UNROLL(16)
        for (int e = 0; e < kMD; ++e) planes[e][p] = column[e];
      }
      HWY_UNROLL(1)
      for (int e = 0; e < kMD; ++e)
        combine_plane(
            [&](auto p) __attribute__((always_inline)) { return planes[e][p]; },
            [&](auto i, FloatVec* pixels) __attribute__((always_inline)) { row(e, i, pixels); });
    }
  }

  // Fetches the sums of the next tile, which lie behind those of this one.
  static bool output(const float* sums, std::int64_t point_stride, std::int64_t columns, const float* bias,
                     const Bounds* bounds, void* y, DType dtype, const winograd::TileStrides& stride) {
    const FloatTag d;
    const FloatVec low = hn::Set(d, bounds ? static_cast<float>(bounds->low) : 0);
    const FloatVec high = hn::Set(d, bounds ? static_cast<float>(bounds->high) : 0);
    const std::int64_t lanes = hn::Lanes(d);
    FloatVec poison = hn::Zero(d);  // NaN from the first value on that is not finite
    for (std::int64_t at = 0; at < columns; at += lanes) {
      const FloatVec b = hn::LoadU(d, bias + at);
      combine_tile(
          [&](int p) __attribute__((always_inline)) {
            const float* from = sums + p * point_stride + at;
            hwy::Prefetch(from + columns);
            return hn::LoadU(d, from);
          },
          [&](int e, int i, FloatVec* pixels) __attribute__((always_inline)) {
            HWY_UNROLL(16)
            for (int j = 0; j < kMW; ++j) {
              pixels[j] = hn::Add(pixels[j], b);
              poison = hn::MulAdd(pixels[j], hn::Zero(d), poison);
              if (bounds) pixels[j] = clamp_keep_nan<FloatTag>(pixels[j], low, high);
            }
            with_float_type(
                dtype, [&](auto zero) __attribute__((always_inline)) {
                  auto* to = static_cast<decltype(zero)*>(y) + e * stride.slice + i * stride.row + at;
                  HWY_UNROLL(16)
                  for (int j = 0; j < kMW; ++j) store(pixels[j], d, to + j * stride.pixel);
                });
          });
    }
    return hn::AllTrue(d, hn::Eq(poison, hn::Zero(d)));
  }
};

}  // namespace vkconv::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
