// Where Winograd meets arrays as they are: widening pixels, bringing weights of any layout into panels, and the
// epilogue of tiles that cannot be stored directly.
#if defined(VKCONV_WINOGRAD_STAGING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VKCONV_WINOGRAD_STAGING_INL_H_
#undef VKCONV_WINOGRAD_STAGING_INL_H_
#else
#define VKCONV_WINOGRAD_STAGING_INL_H_
#endif

#include <algorithm>

#include "algorithms/winograd/winograd_kernels.h"
#include "cpu/activation-inl.h"
#include "cpu/pack-inl.h"
#include "hwy/cache_control.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Fetches the pixels to the right of the block, which the next one reads; short ones follow each other closely enough.
inline void stage_pixels(const winograd::PixelBlock& block) {
  with_float_type(block.dtype, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t ahead = block.pixels * block.pixel_stride;
    const bool apart = block.pixel_stride > block.channels;
    const std::int64_t least = apart ? 1 : kLineValues<T>;
    for (std::int64_t h = 0; h < block.rows; ++h)
      for (std::int64_t w = 0; w < block.pixels; ++w) {
        const T* from = reinterpret_cast<const T*>(block.from) + h * block.row_stride + w * block.pixel_stride;
        for (std::int64_t c = 0; c + least <= block.channels; c += kLineValues<T>) hwy::Prefetch(from + ahead + c);
        if (apart) hwy::Prefetch(from + ahead + block.channels - 1);
        widen_run(from, block.channels, block.to + h * block.to_row_stride + w * block.to_pixel_stride);
      }
  });
}

template <class T>
HWY_INLINE void finish_pixels(const winograd::FinishRow& row, const Epilogue& epilogue) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = hn::Lanes(d);
  with_activation(d, epilogue, [&](auto activation) HWY_ATTR {
    for (std::int64_t i = 0; i < row.count; ++i) {
      T* output = reinterpret_cast<T*>(row.output) + i * row.output_stride;
      for (std::int64_t c = 0; c < row.channels; c += lanes) {
        const std::int64_t n = std::min(lanes, row.channels - c);
        auto v = hn::LoadU(d, row.sums + i * row.columns + c);
        if (row.addend) {
          const float* addend = row.addend + i * row.addend_stride + c;
          v = hn::Add(v, n == lanes ? hn::LoadU(d, addend) : load_n(d, addend, n));
        }
        v = activation(v);
        if (row.stream)
          hn::Stream(v, d, reinterpret_cast<float*>(output) + c);
        else if (n == lanes)
          store(v, d, output + c);
        else
          store_n(v, d, output + c, n);
      }
    }
  });
}

inline void finish_row(const winograd::FinishRow& row, DType output_dtype, const Epilogue& epilogue) {
  with_float_type(output_dtype, [&](auto zero) { finish_pixels<decltype(zero)>(row, epilogue); });
}

// The next contiguous channels of every output are another line of memory far from the others, which no hardware
// prefetcher expects.
template <class T>
HWY_INLINE void stage_tap(const T* from, const winograd::WeightBlock& block, float* to) {
  const auto& w = block.view;
  for (std::int64_t o = 0; w.in == 1 && o < block.outputs; ++o) hwy::Prefetch(from + o * w.out + block.channels);
  pack_run(from, w.out, w.in, block.channels, block.outputs, to, block.columns);
}

inline void stage_weights(const winograd::WeightBlock& block, float* taps) {
  const std::int64_t tap_size = block.channels * block.columns;
  if (block.outputs < block.columns || block.taps_h < block.rh || block.taps_w < block.rw)
    std::fill(taps, taps + block.taps_d * block.rh * block.rw * tap_size, 0.0f);
  with_float_type(block.dtype, [&](auto zero) {
    const auto* from = reinterpret_cast<const decltype(zero)*>(block.view.data);
    const auto& step = block.view.tap;
    for (std::int64_t d = 0; d < block.taps_d; ++d)
      for (std::int64_t h = 0; h < block.taps_h; ++h)
        for (std::int64_t w = 0; w < block.taps_w; ++w)
          stage_tap(from + d * step[0] + h * step[1] + w * step[2], block,
                    taps + ((d * block.rh + h) * block.rw + w) * tap_size);
  });
}

}  // namespace vkconv::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
