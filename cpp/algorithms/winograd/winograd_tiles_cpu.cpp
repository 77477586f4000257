// Between arrays and the transform domain: one tile of input, one panel of weights, one tile of output at a time.
#include <algorithm>

#include "algorithms/winograd/winograd_execution.h"
#include "core/checked.h"

namespace vkconv::cpu::winograd {
namespace {

constexpr std::int64_t kStagedPixelChannels = 64;

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

WeightBlock Execution::weight_block(std::int64_t group, std::int64_t output_block, std::int64_t tap,
                                    std::int64_t channel, std::int64_t channel_end) const {
  const std::int64_t first = output_block * b_.columns;
  const auto& w = a_.weight;
  WeightBlock block{w,
                    g_.problem.dtype,
                    g_.shape.rh,
                    g_.shape.rw,
                    std::min(kStagedChannels, channel_end - channel),
                    std::min(b_.columns, g_.out_channels - first)};
  block.view.data = at(w.data, group * w.group + first * w.out + tap * w.tap[0] + channel * w.in, block.dtype);
  return block;
}

void Execution::transform_panel(std::int64_t group, std::int64_t output_block, const ReductionBlock& r, float* u,
                                std::int64_t point_stride) const {
  alignas(64) float taps[kMaxTileTaps * kStagedChannels * kMaxColumns];
  for (std::int64_t tap = r.tap_begin; tap < r.tap_end; ++tap)
    for (std::int64_t c = r.channel_begin; c < r.channel_end; c += kStagedChannels) {
      const WeightBlock block = weight_block(group, output_block, tap, c, r.channel_end);
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
  const Position pos = position(index);
  if (g_.folded) slice = pos.d * p.stride[0] - p.pad_lo[0];
  const auto& stride = a_.input.stride;
  const InputTile t{pos.n * stride[0] + slice * stride[1] + group * g_.in_channels, pos.h * p.stride[1] - p.pad_lo[1],
                    pos.w * p.stride[2] - p.pad_lo[2], slice >= 0 && slice < p.input[0]};
  std::int64_t c = 0;
  if (p.dtype == DType::f32) {
    c = g_.in_channels / k_.lanes * k_.lanes;
    transform_vectors(t, c, v);
  }
  // Other types and the channels behind the last whole vector go through a padded copy.
  alignas(64) float staged[kMaxTilePoints * std::max(kStagedPixelChannels, kMaxLanes)];
  while (c < g_.in_channels) {
    const std::int64_t count = std::min(std::max(kStagedPixelChannels, k_.lanes), g_.in_channels - c);
    const std::int64_t padded = round_up(count, k_.lanes);
    float* to = staged;
    for_each_pixel(t, [&](bool inside, std::int64_t offset) {
      if (inside)
        k_.widen(at(a_.input.data, offset + c, p.dtype), p.dtype, count, padded, to);
      else
        std::fill_n(to, padded, 0.0f);
      to += padded;
    });
    tile_.input(staged, g_.shape.points_w() * padded, padded, padded, v + c, b_.input_point_stride);
    c += count;
  }
}

// f(inside, offset of channel 0) for every pixel of a tile.
template <class F>
void Execution::for_each_pixel(const InputTile& t, F&& f) const {
  const Extent3& extent = g_.problem.input;
  const auto& stride = a_.input.stride;
  for (std::int64_t h = t.h; h < t.h + g_.shape.points_h(); ++h)
    for (std::int64_t w = t.w; w < t.w + g_.shape.points_w(); ++w)
      f(t.slice_inside && h >= 0 && h < extent[1] && w >= 0 && w < extent[2], t.origin + h * stride[2] + w * stride[3]);
}

// The first `channels` channels, whole vectors of float, read in place.
void Execution::transform_vectors(const InputTile& t, std::int64_t channels, float* v) const {
  const Extent3& extent = g_.problem.input;
  const auto& stride = a_.input.stride;
  const float* input = reinterpret_cast<const float*>(a_.input.data);
  if (t.slice_inside && t.h >= 0 && t.h + g_.shape.points_h() <= extent[1] && t.w >= 0 &&
      t.w + g_.shape.points_w() <= extent[2]) {
    const float* pixel = input + t.origin + t.h * stride[2] + t.w * stride[3];
    return tile_.input(pixel, stride[2], stride[3], channels, v, b_.input_point_stride);
  }
  constexpr std::int64_t kZeroChannels = 256;
  alignas(64) static constexpr float kZeros[kZeroChannels] = {};
  for (std::int64_t c = 0; c < channels; c += kZeroChannels) {
    const float* pixels[kMaxTilePoints];
    const float** to = pixels;
    for_each_pixel(t, [&](bool inside, std::int64_t offset) { *to++ = inside ? input + offset + c : kZeros; });
    tile_.input_pixels(pixels, std::min(kZeroChannels, channels - c), v + c, b_.input_point_stride);
  }
}

void Execution::store_tiles(const Slab& slab, std::int64_t output_block, std::int64_t d, const float* sums) const {
  alignas(64) float bias[kMaxColumns] = {};
  const std::int64_t first = output_block * b_.columns;
  const OutputBlock block{slab.group, output_block, slab.group * g_.out_channels + first,
                          std::min(b_.columns, g_.out_channels - first), bias};
  if (g_.problem.epilogue.bias)
    std::copy_n(reinterpret_cast<const float*>(a_.bias) + block.first, block.channels, bias);
  for (std::int64_t t = 0; t < slab.tiles; ++t)
    store_tile(block, position(slab.tile_begin + t), d, sums + t * b_.columns);
}

void Execution::store_tile(const OutputBlock& block, const Position& pos, std::int64_t d, const float* sums) const {
  const ConvProblem& p = g_.problem;
  const auto offset = [&](const View<std::byte*>& v) {
    return pos.n * v.stride[0] + (pos.d + d) * v.stride[1] + pos.h * v.stride[2] + pos.w * v.stride[3] + block.first;
  };
  const auto& stride = a_.output.stride;
  std::byte* output = at(a_.output.data, offset(a_.output), p.output_dtype);
  const std::int64_t rows = std::min<std::int64_t>(g_.shape.mh, p.output[1] - pos.h);
  const std::int64_t pixels = std::min<std::int64_t>(g_.shape.mw, p.output[2] - pos.w);
  const Range h = g_.outputs_with_input(1), w = g_.outputs_with_input(2);
  const bool whole = rows == g_.shape.mh && pixels == g_.shape.mw && block.channels == b_.columns;
  const bool covered = pos.h >= h.begin && pos.h + rows <= h.end && pos.w >= w.begin && pos.w + pixels <= w.end;
  const bool plain = !p.epilogue.addend && p.epilogue.activation == Activation::identity &&
                     p.output_dtype == DType::f32 && whole && covered;
  if (plain &&
      tile_.output(sums, b_.sum_point_stride, block.bias, reinterpret_cast<float*>(output), stride[2], stride[3]))
    return;
  alignas(64) float staged[kMaxTileOutputs * kMaxColumns];
  const std::int64_t row_floats = g_.shape.mw * b_.columns;
  // An infinity or NaN spreads over the tile, and sums that fit may overflow between its points.
  if (plain || !tile_.output(sums, b_.sum_point_stride, block.bias, staged, row_floats, b_.columns))
    sum_directly(block, pos, d, staged);
  // Outputs that read padding only are exactly zero, where the tile has the rounding error of its other outputs.
  if (!covered)
    for (std::int64_t i = 0; i < g_.shape.outputs(); ++i)
      if (!h.contains(pos.h + i / g_.shape.mw) || !w.contains(pos.w + i % g_.shape.mw))
        std::copy_n(block.bias, b_.columns, staged + i * b_.columns);
  FinishRow row{staged, pixels, block.channels, nullptr, a_.addend.stride[3], output, stride[3]};
  if (p.epilogue.addend) row.addend = reinterpret_cast<const float*>(a_.addend.data) + offset(a_.addend);
  for (std::int64_t i = 0; i < rows; ++i) {
    k_.finish(row, p.output_dtype, p.epilogue);
    row.sums += row_floats;
    row.output = at(row.output, stride[2], p.output_dtype);
    if (row.addend) row.addend += a_.addend.stride[2];
  }
}

}  // namespace vkconv::cpu::winograd
