// A tile by definition, for the tiles whose outputs are not all finite: products with an infinity or a NaN stay with
// the outputs that read it. The same staged weights and the same micro-kernel, one output at a time.
#include <algorithm>

#include "algorithms/winograd/winograd_execution.h"

namespace vkconv::cpu::winograd {

// y: [mh][mw][columns], bias included.
void Execution::sum_directly(const OutputBlock& block, const Position& pos, std::int64_t d, float* y) const {
  alignas(64) float taps[kMaxTileTaps * kStagedWeights];
  const ConvProblem& p = g_.problem;
  for (std::int64_t i = 0; i < g_.shape.outputs(); ++i) std::copy_n(block.bias, b_.columns, y + i * b_.columns);
  const std::int64_t plane = g_.shape.mh * g_.shape.mw * b_.columns;
  for (std::int64_t e = 0; e < tile_outputs(pos)[0]; ++e, y += plane) {
    const auto [begin, end] = taps_inside(p, 0, pos.d + d + e);
    for (std::int64_t tap = begin; tap < end; ++tap)
      for (std::int64_t c = 0; c < g_.channels();) {
        const WeightBlock weights = weight_block(block.group, block.index, {tap, tap + 1}, c, g_.channels());
        k_.stage_weights(weights, taps);
        const auto& stride = a_.input.stride;
        const std::int64_t slice = g_.slice(pos.d + d + e, tap);
        sum_channels(weights, g_.part(c), taps, pos,
                     pos.n * stride[0] + slice * stride[1] + block.group * g_.in_channels + c % g_.in_channels, y);
        c += weights.channels;
      }
  }
}

// Adds the products of the block's channels, of one slice of outputs. `input_offset` is that of pixel (0, 0) of the
// slice.
void Execution::sum_channels(const WeightBlock& block, const KernelPart& part, const float* taps, const Position& pos,
                             std::int64_t input_offset, float* y) const {
  const ConvProblem& p = g_.problem;
  const auto& stride = a_.input.stride;
  alignas(64) float x[kStagedChannels];
  for (std::int64_t i = 0; i < g_.shape.mh * g_.shape.mw; ++i) {
    const std::int64_t oh = pos.h + i / g_.shape.mw, ow = pos.w + i % g_.shape.mw;
    const Range taps_h = taps_inside(p, 1, oh), taps_w = taps_inside(p, 2, ow);
    for (std::int64_t tap = 0; tap < part.taps_h * part.taps_w; ++tap) {
      const std::int64_t tap_h = tap / part.taps_w, tap_w = tap % part.taps_w;
      const std::int64_t kh = part.h + tap_h * p.stride[1], kw = part.w + tap_w * p.stride[2];
      if (!taps_h.contains(kh) || !taps_w.contains(kw)) continue;
      const std::int64_t h = oh * p.stride[1] + kh - p.pad_lo[1], w = ow * p.stride[2] + kw - p.pad_lo[2];
      const std::byte* pixel = at(a_.input.data, input_offset + h * stride[2] + w * stride[3], p.dtype);
      k_.stage_pixels({pixel, p.dtype, 0, 0, 1, 1, block.channels, x, 0, 0});
      const GemmSlice<float> slice{x, taps + (tap_h * g_.shape.rw + tap_w) * block.channels * b_.columns};
      gemm_.chain({{&slice, 1, block.channels}, 0, y + i * b_.columns, b_.columns}, 1, panel_vectors(), true);
    }
  }
}

}  // namespace vkconv::cpu::winograd
