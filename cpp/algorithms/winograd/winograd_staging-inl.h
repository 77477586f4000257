// Where Winograd meets arrays as they are: widening pixels, bringing weights of any layout into panels, and the
// epilogue of tiles that cannot be stored directly.
#if defined(VKCONV_WINOGRAD_STAGING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VKCONV_WINOGRAD_STAGING_INL_H_
#undef VKCONV_WINOGRAD_STAGING_INL_H_
#else
#define VKCONV_WINOGRAD_STAGING_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "algorithms/winograd/winograd_kernels.h"
#include "cpu/simd-inl.h"
#include "hwy/cache_control.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// f(zero) with the Highway type of an operand.
template <class F>
HWY_INLINE void with_simd_type(DType dtype, F f) {
  if (dtype == DType::f16) return f(hwy::float16_t{});
  if (dtype == DType::bf16) return f(hwy::bfloat16_t{});
  f(float{});
}

template <class T>
HWY_INLINE void widen(const T* HWY_RESTRICT x, std::int64_t count, float* HWY_RESTRICT y) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = hn::Lanes(d);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(load(d, x + i), d, y + i);
  if (i < count) store_n(load_n(d, x + i, count - i), d, y + i, count - i);
}

// Fetches the pixels to the right of the block, which the next one reads; short ones follow each other closely enough.
inline void stage_pixels(const winograd::PixelBlock& block) {
  with_simd_type(block.dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr std::int64_t kLine = 64 / sizeof(T);
    const std::int64_t ahead = block.pixels * block.pixel_stride;
    for (std::int64_t h = 0; h < block.rows; ++h)
      for (std::int64_t w = 0; w < block.pixels; ++w) {
        const T* from = reinterpret_cast<const T*>(block.from) + h * block.row_stride + w * block.pixel_stride;
        for (std::int64_t c = 0; c + kLine <= block.channels; c += kLine) hwy::Prefetch(from + ahead + c);
        widen(from, block.channels, block.to + h * block.to_row_stride + w * block.to_pixel_stride);
      }
  });
}

template <class T>
HWY_INLINE void finish_pixels(const winograd::FinishRow& row, const Epilogue& epilogue) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = hn::Lanes(d), columns = 2 * lanes;
  for (std::int64_t i = 0; i < row.count; ++i) {
    T* output = reinterpret_cast<T*>(row.output) + i * row.output_stride;
    for (std::int64_t c = 0; c < row.channels; c += lanes) {
      const std::int64_t n = std::min(lanes, row.channels - c);
      auto v = hn::LoadU(d, row.sums + i * columns + c);
      if (row.addend) {
        const float* addend = row.addend + i * row.addend_stride + c;
        v = hn::Add(v, n == lanes ? hn::LoadU(d, addend) : load_n(d, addend, n));
      }
      v = activate(d, v, epilogue);
      if (n == lanes)
        store(v, d, output + c);
      else
        store_n(v, d, output + c, n);
    }
  }
}

inline void finish_row(const winograd::FinishRow& row, DType output_dtype, const Epilogue& epilogue) {
  with_simd_type(output_dtype, [&](auto zero) { finish_pixels<decltype(zero)>(row, epilogue); });
}

#if HWY_TARGET == HWY_SCALAR
inline constexpr std::int64_t kTransposedRows = 1;
#else
using TransposeTag = hn::FixedTag<float, HWY_LANES(float)>;
inline constexpr std::int64_t kTransposedRows = hn::MaxLanes(TransposeTag());

// Four values of each of MaxLanes(d) rows, by 128-bit block: rows 0, 4, 8, ...
template <class D>
HWY_INLINE hn::Vec<D> load_every_fourth_row(D d, const float* from, std::int64_t stride) {
  if constexpr (hn::MaxLanes(d) <= 4) {
    return hn::LoadU(d, from);
  } else {
    const hn::Half<D> half;
    const auto upper =
        load_every_fourth_row(half, from + static_cast<std::int64_t>(hn::MaxLanes(half)) * stride, stride);
    return hn::Combine(d, upper, load_every_fourth_row(half, from, stride));
  }
}

// to[c * columns + o] = from[o * stride + c] for MaxLanes(d) o and four c.
template <class D>
HWY_INLINE void transpose_four_columns(D d, const float* from, std::int64_t stride, float* to, std::int64_t columns) {
  const hn::RepartitionToWide<D> pairs;
  const auto r0 = load_every_fourth_row(d, from, stride), r1 = load_every_fourth_row(d, from + stride, stride);
  const auto r2 = load_every_fourth_row(d, from + 2 * stride, stride);
  const auto r3 = load_every_fourth_row(d, from + 3 * stride, stride);
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, r0, r1));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, r0, r1));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)), d, to + columns);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)), d, to + 2 * columns);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)), d, to + 3 * columns);
}
#endif

// Rows of outputs with contiguous channels, as many at a time as there are lanes. The next channels of every row are
// another line of memory far from the others, which no hardware prefetcher expects.
template <class T>
HWY_INLINE void stage_output_rows(const T* from, std::int64_t stride, std::int64_t channels, std::int64_t outputs,
                                  float* to, std::int64_t columns) {
  float widened[kTransposedRows * winograd::kStagedChannels];
  for (std::int64_t o = 0; o < outputs; o += kTransposedRows) {
    const std::int64_t rows = std::min<std::int64_t>(kTransposedRows, outputs - o);
    for (std::int64_t r = 0; r < rows; ++r) hwy::Prefetch(from + (o + r) * stride + channels);
    const float* row = reinterpret_cast<const float*>(from + o * stride);
    std::int64_t row_stride = stride;
    if constexpr (!std::is_same_v<T, float>) {
      for (std::int64_t r = 0; r < rows; ++r) widen(from + (o + r) * stride, channels, widened + r * channels);
      row = widened;
      row_stride = channels;
    }
    std::int64_t c = 0;
#if HWY_TARGET != HWY_SCALAR
    if (rows == kTransposedRows)
      for (; c + 4 <= channels; c += 4)
        transpose_four_columns(TransposeTag(), row + c, row_stride, to + c * columns + o, columns);
#endif
    for (; c < channels; ++c)
      for (std::int64_t r = 0; r < rows; ++r) to[c * columns + o + r] = row[r * row_stride + c];
  }
}

template <class T>
HWY_INLINE void stage_tap(const T* from, const winograd::WeightBlock& block, float* to, std::int64_t columns) {
  const auto& w = block.view;
  if (w.in == 1) return stage_output_rows(from, w.out, block.channels, block.outputs, to, columns);
  for (std::int64_t c = 0; c < block.channels; ++c)
    if (w.out == 1)
      widen(from + c * w.in, block.outputs, to + c * columns);
    else
      for (std::int64_t o = 0; o < block.outputs; ++o) widen(from + c * w.in + o * w.out, 1, to + c * columns + o);
}

inline void stage_weights(const winograd::WeightBlock& block, float* taps) {
  const std::int64_t columns = 2 * static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  const std::int64_t tap_size = block.channels * columns;
  if (block.outputs < columns || block.taps_h < block.rh || block.taps_w < block.rw)
    std::fill(taps, taps + block.rh * block.rw * tap_size, 0.0f);
  with_simd_type(block.dtype, [&](auto zero) {
    const auto* from = reinterpret_cast<const decltype(zero)*>(block.view.data);
    for (std::int64_t h = 0; h < block.taps_h; ++h)
      for (std::int64_t w = 0; w < block.taps_w; ++w)
        stage_tap(from + h * block.view.tap[1] + w * block.view.tap[2], block, taps + (h * block.rw + w) * tap_size,
                  columns);
  });
}

}  // namespace vkconv::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
