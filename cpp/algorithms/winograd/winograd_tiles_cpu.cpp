// Between arrays and the transform domain: one tile of input, one panel of weights, one tile of output at a time.
#include <algorithm>

#include "algorithms/winograd/winograd_execution.h"
#include "core/checked.h"

namespace vkconv::cpu::winograd {
namespace {

constexpr std::int64_t kMaxLanes = 64;  // of float, in the widest vectors there are
constexpr std::int64_t kMaxColumns = 2 * kMaxLanes;
constexpr std::int64_t kStagedPixelChannels = 64;

std::byte* at(std::byte* base, std::int64_t elements, DType t) {
  return base + elements * static_cast<std::int64_t>(size_bytes(t));
}

}  // namespace

Execution::Position Execution::position(std::int64_t index) const {
  Position p{};
  p.w = index % g_.tiles_w * g_.shape.mw;
  index /= g_.tiles_w;
  p.h = index % g_.tiles_h * g_.shape.mh;
  index /= g_.tiles_h;
  if (g_.folded) {
    p.d = index % g_.problem.output[0];
    index /= g_.problem.output[0];
  }
  p.n = index;
  return p;
}

void Execution::transform_panel(std::int64_t group, std::int64_t output_block, const ReductionBlock& r, float* u,
                                std::int64_t point_stride) const {
  alignas(64) float taps[kMaxTileTaps * kStagedChannels * kMaxColumns];
  const std::int64_t first_output = output_block * b_.columns;
  WeightBlock block{a_.weight, g_.problem.dtype, g_.shape.rh, g_.shape.rw, 0,
                    std::min(b_.columns, g_.out_channels - first_output)};
  for (std::int64_t tap = r.tap_begin; tap < r.tap_end; ++tap)
    for (std::int64_t c = r.channel_begin; c < r.channel_end; c += kStagedChannels) {
      block.channels = std::min(kStagedChannels, r.channel_end - c);
      const auto& w = a_.weight;
      block.view.data = at(w.data, group * w.group + first_output * w.out + tap * w.tap[0] + c * w.in, block.dtype);
      k_.stage_weights(block, taps);
      const std::int64_t term = (tap - r.tap_begin) * r.channels() + c - r.channel_begin;
      tile_.weight(taps, block.channels, u + term * b_.columns, point_stride);
    }
}

void Execution::transform_slice(const Slab& slab, std::int64_t slice, float* v) const {
  for (std::int64_t t = 0; t < slab.tiles; ++t)
    transform_tile(slab.group, slab.tile_begin + t, slice, v + t * b_.tile_pitch);
}

void Execution::transform_tile(std::int64_t group, std::int64_t index, std::int64_t slice, float* v) const {
  const ConvProblem& p = g_.problem;
  const auto& stride = a_.input.stride;
  const Position pos = position(index);
  if (g_.folded) slice = pos.d * p.stride[0] - p.pad_lo[0];
  const std::int64_t h0 = pos.h * p.stride[1] - p.pad_lo[1], w0 = pos.w * p.stride[2] - p.pad_lo[2];
  const std::int64_t points_h = g_.shape.points_h(), points_w = g_.shape.points_w();
  const bool slice_inside = slice >= 0 && slice < p.input[0];
  const bool inside = slice_inside && h0 >= 0 && h0 + points_h <= p.input[1] && w0 >= 0 && w0 + points_w <= p.input[2];
  const std::int64_t origin = pos.n * stride[0] + slice * stride[1] + group * g_.in_channels;
  std::int64_t c = 0;
  if (inside && p.dtype == DType::f32) {
    const std::byte* pixel = at(a_.input.data, origin + h0 * stride[2] + w0 * stride[3], p.dtype);
    c = g_.in_channels / k_.lanes * k_.lanes;
    tile_.input(reinterpret_cast<const float*>(pixel), stride[2], stride[3], c, v, b_.input_point_stride);
  }
  // What is left (padding, other types, the channels behind the last whole vector) goes through a padded copy.
  alignas(64) float staged[kMaxTilePoints * std::max(kStagedPixelChannels, kMaxLanes)];
  while (c < g_.in_channels) {
    const std::int64_t count = std::min(std::max(kStagedPixelChannels, k_.lanes), g_.in_channels - c);
    const std::int64_t padded = round_up(count, k_.lanes);
    float* to = staged;
    for (std::int64_t h = h0; h < h0 + points_h; ++h)
      for (std::int64_t w = w0; w < w0 + points_w; ++w, to += padded) {
        const bool pixel_inside = slice_inside && h >= 0 && h < p.input[1] && w >= 0 && w < p.input[2];
        const std::int64_t offset = origin + h * stride[2] + w * stride[3] + c;
        if (pixel_inside)
          k_.widen(at(a_.input.data, offset, p.dtype), p.dtype, count, padded, to);
        else
          std::fill_n(to, padded, 0.0f);
      }
    tile_.input(staged, points_w * padded, padded, padded, v + c, b_.input_point_stride);
    c += count;
  }
}

void Execution::store_tiles(const Slab& slab, std::int64_t output_block, std::int64_t d, const float* sums) const {
  const std::int64_t first = output_block * b_.columns;
  const std::int64_t channels = std::min(b_.columns, g_.out_channels - first);
  const std::int64_t channel = slab.group * g_.out_channels + first;
  alignas(64) float bias[kMaxColumns] = {};
  if (g_.problem.epilogue.bias) std::copy_n(reinterpret_cast<const float*>(a_.bias) + channel, channels, bias);
  for (std::int64_t t = 0; t < slab.tiles; ++t)
    store_tile(channel, channels, slab.tile_begin + t, d, sums + t * b_.columns, bias);
}

void Execution::store_tile(std::int64_t channel, std::int64_t channels, std::int64_t index, std::int64_t d,
                           const float* sums, const float* bias) const {
  const ConvProblem& p = g_.problem;
  const Position pos = position(index);
  const auto offset = [&](const View<std::byte*>& v) {
    return pos.n * v.stride[0] + (pos.d + d) * v.stride[1] + pos.h * v.stride[2] + pos.w * v.stride[3] + channel;
  };
  const auto& stride = a_.output.stride;
  std::byte* output = at(a_.output.data, offset(a_.output), p.output_dtype);
  const std::int64_t rows = std::min<std::int64_t>(g_.shape.mh, p.output[1] - pos.h);
  const std::int64_t pixels = std::min<std::int64_t>(g_.shape.mw, p.output[2] - pos.w);
  const bool plain = !p.epilogue.addend && p.epilogue.activation == Activation::identity;
  const bool whole = rows == g_.shape.mh && pixels == g_.shape.mw && channels == b_.columns;
  const Range h = g_.outputs_with_input(1), w = g_.outputs_with_input(2);
  const bool covered = pos.h >= h.begin && pos.h + rows <= h.end && pos.w >= w.begin && pos.w + pixels <= w.end;
  if (plain && whole && covered && p.output_dtype == DType::f32) {
    tile_.output(sums, b_.sum_point_stride, bias, reinterpret_cast<float*>(output), stride[2], stride[3]);
    return;
  }
  alignas(64) float staged[kMaxTileOutputs * kMaxColumns];
  const std::int64_t row_floats = g_.shape.mw * b_.columns;
  tile_.output(sums, b_.sum_point_stride, bias, staged, row_floats, b_.columns);
  // Outputs that read padding only are exactly zero, where the tile has the rounding error of its other outputs.
  if (!covered)
    for (std::int64_t i = 0; i < g_.shape.outputs(); ++i)
      if (!h.contains(pos.h + i / g_.shape.mw) || !w.contains(pos.w + i % g_.shape.mw))
        std::copy_n(bias, b_.columns, staged + i * b_.columns);
  FinishRow row{staged, pixels, channels, nullptr, a_.addend.stride[3], output, stride[3]};
  if (p.epilogue.addend) row.addend = reinterpret_cast<const float*>(a_.addend.data) + offset(a_.addend);
  for (std::int64_t i = 0; i < rows; ++i) {
    k_.finish(row, p.output_dtype, p.epilogue);
    row.sums += row_floats;
    row.output = at(row.output, stride[2], p.output_dtype);
    if (row.addend) row.addend += a_.addend.stride[2];
  }
}

}  // namespace vkconv::cpu::winograd
