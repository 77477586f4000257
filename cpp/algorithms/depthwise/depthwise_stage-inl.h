// Dense copies of the input in the accumulator type: widened from 16-bit types, channels repeated by the multiplier,
// columns sorted by their phase of the stride where the flat tiles want it. Included once per instruction set.
#if defined(VKCONV_DEPTHWISE_STAGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VKCONV_DEPTHWISE_STAGE_INL_H_
#undef VKCONV_DEPTHWISE_STAGE_INL_H_
#else
#define VKCONV_DEPTHWISE_STAGE_INL_H_
#endif

#include <algorithm>

#include "algorithms/depthwise/depthwise.h"
#include "algorithms/depthwise/depthwise_region.h"
#include "cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::depthwise::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using cpu::HWY_NAMESPACE::load;
using cpu::HWY_NAMESPACE::load_n;
using cpu::HWY_NAMESPACE::widen_run;

// Picks, for the lanes of a vector of output channels from `channel` on, their input channels out of a vector that
// starts at input channel `first`.
template <class D>
HWY_INLINE auto spread_indices(D d, std::int64_t channel, std::int64_t multiplier, std::int64_t first) {
  using Index = hn::TFromD<hn::RebindToSigned<D>>;
  HWY_ALIGN Index index[HWY_MAX_BYTES / sizeof(Index)];
  for (std::size_t i = 0; i < hn::Lanes(d); ++i)
    index[i] = static_cast<Index>((channel + static_cast<std::int64_t>(i)) / multiplier - first);
  return hn::SetTableIndices(d, index);
}

// The region of one image in [depth][row][column][channel] order, for the register tiles. `line(i)` is where column
// `columns.begin` of line i starts, at channel 0.
template <class T, class In, class F>
void stage_dense(const ConvProblem& p, const Region& r, std::int64_t from_pixel, T* HWY_RESTRICT to, F line) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t multiplier = p.out_channels_per_group(), count = r.channels.size(), columns = r.columns.size();
  const std::int64_t lines = r.depths.size() * r.rows.size();
  if (multiplier == 1) {
    const bool whole = from_pixel == count && r.pixel == count;
    for (std::int64_t l = 0; l < lines; ++l)
      for (std::int64_t w = 0; w < (whole ? 1 : columns); ++w, to += whole ? columns * count : r.pixel)
        widen_run(line(l) + w * from_pixel + r.channels.begin, whole ? columns * count : count, to);
    return;
  }
  for (std::int64_t at = 0; at < count; at += lanes) {
    const std::int64_t o = std::min(at, count - lanes);  // the last vector overlaps the one before it
    const std::int64_t channel = r.channels.begin + o;
    const std::int64_t read = std::min(lanes, p.in_channels),
                       first = std::min(channel / multiplier, p.in_channels - read);
    const auto spread = spread_indices(d, channel, multiplier, first);
    for (std::int64_t l = 0; l < lines; ++l) {
      const In* from = line(l) + first;
      T* pixel = to + l * columns * r.pixel + o;
      for (std::int64_t w = 0; w < columns; ++w, from += from_pixel, pixel += r.pixel) {
        const auto v = read == lanes ? load(d, from) : load_n(d, from, static_cast<std::size_t>(read));
        hn::StoreU(hn::TableLookupLanes(v, spread), d, pixel);
      }
    }
  }
}

// Copies one input line, from column `columns.begin` on, to its phases, with zeros around it. A pixel is one vector, of
// which the next pixel, or the zeros, overwrite what lies behind its channels.
template <class D, class T, class In>
HWY_INLINE void stage_phases(D d, const ConvProblem& p, const Region& r, const In* from, std::int64_t from_pixel,
                             T* HWY_RESTRICT to) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t multiplier = p.out_channels_per_group(), channels = p.out_channels, count = p.in_channels;
  const std::int64_t columns = r.columns.size(), end = from_pixel < 0 ? 0 : (columns - 1) * from_pixel + count;
  const auto spread = spread_indices(d, 0, multiplier, 0);
  for (std::int64_t phase = 0; phase < r.phases; ++phase, to += r.phase_length) {
    std::int64_t w = floor_mod(phase - r.columns.begin, r.phases);
    T* pixel = to + (floor_div(r.columns.begin + w, r.phases) - r.first_position) * channels;
    std::fill(to, pixel, T{0});
    if (multiplier == 1 && r.phases == 1 && from_pixel == count) {
      widen_run(from, columns * count, pixel);
      pixel += columns * count;
      w = columns;
    }
    for (; w < columns; w += r.phases, pixel += channels) {
      const In* x = from + w * from_pixel;
      const auto v = w * from_pixel + lanes <= end ? load(d, x) : load_n(d, x, static_cast<std::size_t>(count));
      hn::StoreU(multiplier == 1 ? v : hn::TableLookupLanes(v, spread), d, pixel);
    }
    std::fill(pixel, to + r.phase_length, T{0});
  }
}

// The region of one image, as stage_dense does, or in [depth][row][phase][position][channel] order with zeros in
// positions without a column.
template <class T, class In>
void stage(const Call& call, std::int64_t n, const Region& r, T* HWY_RESTRICT to) {
  const View<std::byte*>& x = call.operands.input;
  const auto source = [&](std::int64_t l) {
    const std::int64_t depth = r.depths.begin + l / r.rows.size(), row = r.rows.begin + l % r.rows.size();
    return reinterpret_cast<const In*>(x.data) + n * x.stride[0] + depth * x.stride[1] + row * x.stride[2] +
           r.columns.begin * x.stride[3];
  };
  if (call.mode != Mode::flat) return stage_dense<T, In>(call.p, r, x.stride[3], to, source);
  const auto lines = [&](auto d) HWY_ATTR {
    for (std::int64_t l = 0; l < r.depths.size() * r.rows.size(); ++l, to += r.line_length())
      stage_phases(d, call.p, r, source(l), x.stride[3], to);
  };
  // A vector of four, eight or all lanes: of wide ones, which overlap, most would cross lines.
  const std::int64_t channels = call.p.out_channels;
  channels <= 4   ? lines(hn::CappedTag<T, 4>())
  : channels <= 8 ? lines(hn::CappedTag<T, 8>())
                  : lines(hn::ScalableTag<T>());
}

template <class T>
void stage_any(const Call& call, std::int64_t n, const Region& r, T* HWY_RESTRICT to) {
  if constexpr (std::is_same_v<T, double>)
    return stage<double, double>(call, n, r, to);
  else
    cpu::HWY_NAMESPACE::with_float_type(call.p.dtype, [&](auto zero) { stage<float, decltype(zero)>(call, n, r, to); });
}

}  // namespace vkconv::cpu::depthwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
