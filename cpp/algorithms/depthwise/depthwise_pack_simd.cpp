// Packing of depthwise weights, compiled once per instruction set and chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "algorithms/depthwise/depthwise_pack_simd.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h comes first.
#include <algorithm>

#include "algorithms/depthwise/depthwise.h"
#include "cpu/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::depthwise::HWY_NAMESPACE {

using cpu::HWY_NAMESPACE::Accumulator;

// Channels [begin, end) of every tap.
template <class In>
void pack(const ConvProblem& p, const WeightView<const In*>& weight, const Range& channels, std::int64_t row_length,
          Accumulator<In>* to) {
  const std::int64_t multiplier = p.out_channels_per_group();
  // Runs of channels one stride apart, and of taps one stride apart.
  const bool even = multiplier == 1 || weight.group == multiplier * weight.out;
  const std::int64_t run = even ? p.out_channels : multiplier;
  const std::int64_t out_stride = multiplier == 1 ? weight.group : weight.out;
  std::int64_t taps = p.kernel[2], axis = 1;
  for (; axis >= 0 && (p.kernel[axis] == 1 || weight.tap[axis] == taps * weight.tap[2]); --axis) taps *= p.kernel[axis];
  for (std::int64_t row = 0; row < p.taps() / taps; ++row) {
    const In* from = weight.data + row / p.kernel[1] * weight.tap[0] + row % p.kernel[1] * weight.tap[1];
    if (axis == 0) from = weight.data + row * weight.tap[0];
    for (std::int64_t o = channels.begin; o < channels.end;) {
      const std::int64_t count = std::min(channels.end, o / run * run + run) - o;
      cpu::HWY_NAMESPACE::pack_run(from + o / run * weight.group + o % run * out_stride, out_stride, weight.tap[2],
                                   taps, count, to + row * taps * row_length + o, row_length);
      o += count;
    }
  }
}

void pack_channels(const ConvProblem& p, const WeightView<std::byte*>& weight, const Range& channels,
                   std::int64_t row_length, std::byte* to) {
  cpu::HWY_NAMESPACE::with_simd_type(p.dtype, [&](auto zero) {
    using In = decltype(zero);
    using T = Accumulator<In>;
    pack<In>(p, cpu::HWY_NAMESPACE::typed<In>(weight, 0), channels, row_length, reinterpret_cast<T*>(to));
    if (channels.end < p.out_channels) return;
    const bool all = channels.begin == 0;  // else the channels that would be repeated may still be missing
    for (T *row = reinterpret_cast<T*>(to), *end = row + p.taps() * row_length; row != end; row += row_length)
      for (std::int64_t i = p.out_channels; i < row_length; ++i) row[i] = all ? row[i - p.out_channels] : T{0};
  });
}

}  // namespace vkconv::cpu::depthwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace vkconv::cpu::depthwise {
HWY_EXPORT(pack_channels);

void pack_weights(const ConvProblem& p, const WeightView<std::byte*>& weight, const Range& channels,
                  std::int64_t row_length, std::byte* to) {
  HWY_DYNAMIC_DISPATCH(pack_channels)(p, weight, channels, row_length, to);
}

}  // namespace vkconv::cpu::depthwise
#endif
