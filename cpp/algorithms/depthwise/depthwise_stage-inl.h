// Dense copies of the input in the accumulator type: widened from 16-bit types, channels repeated by the multiplier,
// columns sorted by their phase of the stride. Included once per instruction set.
#if defined(VKCONV_DEPTHWISE_STAGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VKCONV_DEPTHWISE_STAGE_INL_H_
#undef VKCONV_DEPTHWISE_STAGE_INL_H_
#else
#define VKCONV_DEPTHWISE_STAGE_INL_H_
#endif

#include "algorithms/depthwise/depthwise.h"
#include "algorithms/depthwise/depthwise_region.h"
#include "cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::depthwise::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// count elements widened to the accumulator type.
template <class T, class In>
HWY_INLINE void widen(const In* HWY_RESTRICT from, std::int64_t count, T* HWY_RESTRICT to) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(cpu::HWY_NAMESPACE::load(d, from + i), d, to + i);
  if (i < count) {
    const auto rest = static_cast<std::size_t>(count - i);
    cpu::HWY_NAMESPACE::store_n(cpu::HWY_NAMESPACE::load_n(d, from + i, rest), d, to + i, rest);
  }
}

// Output channels [begin, end) of one pixel: channel o reads input channel o / multiplier.
template <class T>
HWY_INLINE void repeat_channels(const T* HWY_RESTRICT from, const Range& channels, std::int64_t multiplier,
                                T* HWY_RESTRICT to) {
  std::int64_t c = channels.begin / multiplier, copies = multiplier - channels.begin % multiplier;
  for (std::int64_t o = channels.begin; o < channels.end; ++c, copies = multiplier)
    for (; copies > 0 && o < channels.end; --copies, ++o) *to++ = from[c];
}

// Copies one input line. `line` is a scratch line of the input's width and channels.
template <class T, class In>
HWY_INLINE void stage_line(const ConvProblem& p, const Region& r, const In* from, std::int64_t from_pixel,
                           T* HWY_RESTRICT to, T* HWY_RESTRICT line) {
  const std::int64_t multiplier = p.out_channels_per_group();
  const Range in{r.channels.begin / multiplier, (r.channels.end - 1) / multiplier + 1};
  const std::int64_t count = in.size(), columns = r.columns.size();
  from += r.columns.begin * from_pixel + in.begin;
  if (from_pixel == count) {
    widen(from, columns * count, line);
  } else {
    for (std::int64_t w = 0; w < columns; ++w) widen(from + w * from_pixel, count, line + w * count);
  }
  for (std::int64_t w = 0; w < columns; ++w) {
    const std::int64_t column = r.columns.begin + w;
    T* pixel = to + floor_mod(column, r.phases) * r.phase_length +
               (floor_div(column, r.phases) - r.first_position) * r.channels.size();
    repeat_channels(line + w * count - in.begin, r.channels, multiplier, pixel);
  }
}

// The region of one image in [depth][row][phase][position][channel] order; positions without a column are zero.
template <class T, class In>
void stage(const Call& call, std::int64_t n, const Region& r, T* HWY_RESTRICT to) {
  const View<std::byte*>& x = call.operands.input;
  T* line = to + r.elements();
  std::memset(to, 0, static_cast<std::size_t>(r.elements()) * sizeof(T));
  for (std::int64_t d = 0; d < r.depths.size(); ++d)
    for (std::int64_t h = 0; h < r.rows.size(); ++h) {
      const std::int64_t offset =
          n * x.stride[0] + (r.depths.begin + d) * x.stride[1] + (r.rows.begin + h) * x.stride[2];
      stage_line(call.p, r, reinterpret_cast<const In*>(x.data) + offset, x.stride[3],
                 to + (d * r.rows.size() + h) * r.line_length(), line);
    }
}

template <class T>
void stage_any(const Call& call, std::int64_t n, const Region& r, T* HWY_RESTRICT to) {
  if constexpr (std::is_same_v<T, double>)
    return stage<double, double>(call, n, r, to);
  else {
    switch (call.p.dtype) {
      case DType::f16:
        return stage<float, hwy::float16_t>(call, n, r, to);
      case DType::bf16:
        return stage<float, hwy::bfloat16_t>(call, n, r, to);
      default:
        return stage<float, float>(call, n, r, to);
    }
  }
}

}  // namespace vkconv::cpu::depthwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
