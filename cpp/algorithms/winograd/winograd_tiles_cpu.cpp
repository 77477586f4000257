// Between arrays and the transform domain: one tile of input, one panel of weights, one tile of output at a time.
#include <algorithm>

#include "algorithms/winograd/winograd_execution.h"
#include "core/checked.h"

namespace vkconv::cpu::winograd {
namespace {

constexpr std::int64_t kCopiedChannels = 64;  // at a time
static_assert(kCopiedChannels >= kMaxLanes);

}  // namespace

void transform_in_place(const TileKernels& tile, const TileShape& shape, const TilePixels& x, std::int64_t channels,
                        float* v, std::int64_t point_stride) {
  const std::int64_t points_h = shape.points_h(), points_w = shape.points_w();
  if (x.rows.size() == points_h && x.columns.size() == points_w)
    return tile.input(x.first, x.dtype, x.row_stride, x.pixel_stride, channels, v, point_stride);
  constexpr std::int64_t kZeroChannels = 256;
  alignas(64) static constexpr std::byte kZeros[kZeroChannels * sizeof(float)] = {};
  for (std::int64_t c = 0; c < channels; c += kZeroChannels) {
    const std::byte* pixels[kMaxTilePoints];
    for (std::int64_t h = 0; h < points_h; ++h)
      for (std::int64_t w = 0; w < points_w; ++w)
        pixels[h * points_w + w] = x.rows.contains(h) && x.columns.contains(w)
                                       ? at(x.first, h * x.row_stride + w * x.pixel_stride + c, x.dtype)
                                       : kZeros;
    tile.input_pixels(pixels, x.dtype, std::min(kZeroChannels, channels - c), v + c, point_stride);
  }
}

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

// position(index + 1), without divisions.
Execution::Position Execution::after(Position p) const {
  const Extent3& output = g_.problem.output;
  if ((p.w += g_.shape.mw) < output[2]) return p;
  p.w = 0;
  if ((p.h += g_.shape.mh) < output[1]) return p;
  p.h = 0;
  if (g_.folded && ++p.d < output[0]) return p;
  p.d = 0;
  ++p.n;
  return p;
}

WeightBlock Execution::weight_block(std::int64_t group, std::int64_t output_block, std::int64_t tap,
                                    std::int64_t channel, std::int64_t channel_end) const {
  const std::int64_t first = output_block * b_.columns, c = channel % g_.in_channels;
  const KernelPart& part = g_.part(channel);
  WeightBlock block{a_.weight,
                    g_.problem.dtype,
                    g_.shape.rh,
                    g_.shape.rw,
                    part.taps_h,
                    part.taps_w,
                    std::min({kStagedChannels, kStagedWeights / b_.columns, channel_end - channel, g_.in_channels - c}),
                    std::min(b_.columns, g_.out_channels - first)};
  auto& w = block.view;
  w.data =
      at(w.data, group * w.group + first * w.out + tap * w.tap[0] + part.h * w.tap[1] + part.w * w.tap[2] + c * w.in,
         block.dtype);
  for (const int axis : {1, 2}) w.tap[axis] *= g_.problem.stride[axis];
  return block;
}

void Execution::transform_panel(std::int64_t group, std::int64_t output_block, const ReductionBlock& r, float* u,
                                std::int64_t point_stride) const {
  alignas(64) float taps[kMaxTileTaps * kStagedWeights];
  for (std::int64_t tap = r.tap_begin; tap < r.tap_end; ++tap)
    for (std::int64_t c = r.channel_begin; c < r.channel_end;) {
      const WeightBlock block = weight_block(group, output_block, tap, c, r.channel_end);
      k_.stage_weights(block, taps);
      const std::int64_t term = (tap - r.tap_begin) * r.channels() + c - r.channel_begin;
      const std::int64_t values = block.channels * b_.columns;
      tile_.weight(taps, g_.shape.rw * values, values, values, u + term * b_.columns, point_stride);
      c += block.channels;
    }
}

void Execution::transform_slice(const Slab& slab, std::int64_t slice, float* v) const {
  Position pos = position(slab.tile_begin);
  for (std::int64_t t = 0; t < slab.tiles; ++t, pos = after(pos))
    transform_tile(slab.group, pos, slice, v + t * b_.tile_pitch);
}

// Whole vectors are read in place. The channels behind the last whole vector, and few channels of several parts
// together go through a copy; its result is padded and overwritten by what follows it.
void Execution::transform_tile(std::int64_t group, const Position& pos, std::int64_t slice, float* v) const {
  const ConvProblem& p = g_.problem;
  if (g_.folded) slice = pos.d * p.stride[0] - p.pad_lo[0];
  const auto& stride = a_.input.stride;
  const InputTile t{pos.n * stride[0] + slice * stride[1] + group * g_.in_channels, pos.h * p.stride[1] - p.pad_lo[1],
                    pos.w * p.stride[2] - p.pad_lo[2], slice >= 0 && slice < p.input[0]};
  const std::int64_t in = g_.in_channels, vectors = in / k_.lanes * k_.lanes;
  for (std::int64_t c = 0, end; c < g_.channels(); c = end) {
    if (c % in < vectors) {
      end = c + vectors;
      transform_vectors(t.at(g_.part(c)), vectors, v + c);
    } else {
      end = c % in > 0 || in > kCopiedChannels ? std::min(c + kCopiedChannels, c - c % in + in)
                                               : std::min(c + kCopiedChannels / in * in, g_.channels());
      transform_copy(t, {c, end}, v + c);
    }
  }
}

// Points of a tile along one axis, the first at input position `first`, that lie inside the input.
Range Execution::points_inside(int axis, std::int64_t first) const {
  const std::int64_t stride = g_.problem.stride[axis], points = axis == 1 ? g_.shape.points_h() : g_.shape.points_w();
  if (first >= 0 && first + (points - 1) * stride < g_.problem.input[axis]) return {0, points};
  return {std::clamp<std::int64_t>(ceil_div(-first, stride), 0, points),
          std::clamp<std::int64_t>(floor_div(g_.problem.input[axis] - 1 - first, stride) + 1, 0, points)};
}

// Whether a tile has no padding in any part of `channels`.
bool Execution::inside(const InputTile& t, Range channels) const {
  for (std::int64_t c = channels.begin; c < channels.end; c += g_.in_channels - c % g_.in_channels) {
    const InputTile part = t.at(g_.part(c));
    if (points_inside(1, part.h).size() < g_.shape.points_h() || points_inside(2, part.w).size() < g_.shape.points_w())
      return false;
  }
  return t.slice_inside;
}

// `channels` count through the parts.
void Execution::transform_copy(const InputTile& t, Range channels, float* v) const {
  alignas(64) float copy[kMaxTilePoints * kCopiedChannels];
  const auto& stride = a_.input.stride;
  const std::int64_t in = g_.in_channels, padded = round_up(channels.size(), k_.lanes);
  const std::int64_t row = g_.shape.points_w() * padded;
  // Zeros for padding, or else for the lanes behind the last channel.
  const std::int64_t zeros = !inside(t, channels) ? padded : channels.size() < padded ? k_.lanes : 0;
  for (std::int64_t i = 1; zeros > 0 && i <= g_.shape.points(); ++i)
    std::fill_n(copy + i * padded - zeros, zeros, 0.0f);
  for (std::int64_t c = channels.begin, end; t.slice_inside && c < channels.end; c = end) {
    const KernelPart& part = g_.part(c);
    const InputTile at_part = t.at(part);
    const Range h = points_inside(1, at_part.h), w = points_inside(2, at_part.w);
    end = std::min(channels.end, c - c % in + in);
    // The phases of a stride are neighbours in memory: one run, as far as their points inside are the same.
    for (std::int64_t i = 1; end < channels.end && stride[3] == in; ++i) {
      const KernelPart& next = g_.part(end);
      const Range next_w = points_inside(2, at_part.w + i);
      if (next.h != part.h || next.w != part.w + i || next_w.begin != w.begin || next_w.end != w.end) break;
      end += in;
    }
    if (h.size() == 0 || w.size() == 0) continue;
    const std::int64_t row_stride = g_.problem.stride[1] * stride[2], pixel_stride = g_.problem.stride[2] * stride[3];
    const std::int64_t first = t.origin + at_part.h * stride[2] + at_part.w * stride[3] + h.begin * row_stride +
                               w.begin * pixel_stride + c % in;
    k_.stage_pixels({at(a_.input.data, first, g_.problem.dtype), g_.problem.dtype, row_stride, pixel_stride, h.size(),
                     w.size(), end - c, copy + h.begin * row + w.begin * padded + c - channels.begin, row, padded});
  }
  tile_.input(copy, DType::f32, row, padded, padded, v, b_.input_point_stride);
}

// The first `channels` channels, whole vectors, read in place.
void Execution::transform_vectors(const InputTile& t, std::int64_t channels, float* v) const {
  const auto& stride = a_.input.stride;
  const std::byte* first = at(a_.input.data, t.origin + t.h * stride[2] + t.w * stride[3], g_.problem.dtype);
  const Range rows = t.slice_inside ? points_inside(1, t.h) : Range{0, 0};
  transform_in_place(tile_, g_.shape,
                     {first, g_.problem.dtype, g_.problem.stride[1] * stride[2], g_.problem.stride[2] * stride[3], rows,
                      points_inside(2, t.w)},
                     channels, v, b_.input_point_stride);
}

void Execution::store_tiles(const Slab& slab, std::int64_t output_block, std::int64_t d, const float* sums) const {
  alignas(64) float bias[kMaxColumns] = {};
  const std::int64_t first = output_block * b_.columns;
  const OutputBlock block{slab.group, output_block, slab.group * g_.out_channels + first,
                          std::min(b_.columns, g_.out_channels - first), bias};
  if (g_.problem.epilogue.bias)
    std::copy_n(reinterpret_cast<const float*>(a_.bias) + block.first, block.channels, bias);
  Position pos = position(slab.tile_begin);
  for (std::int64_t t = 0; t < slab.tiles; ++t) {
    const Position next = after(pos);
    if (t + 1 < slab.tiles && !stream_) prefetch_outputs(block, next, d);
    store_tile(block, pos, d, sums + t * b_.columns);
    pos = next;
  }
}

std::int64_t Execution::offset(const View<std::byte*>& v, const OutputBlock& block, const Position& pos,
                               std::int64_t d) const {
  return pos.n * v.stride[0] + (pos.d + d) * v.stride[1] + pos.h * v.stride[2] + pos.w * v.stride[3] + block.first;
}

// Stores that miss the caches stall behind one another.
void Execution::prefetch_outputs(const OutputBlock& block, const Position& pos, std::int64_t d) const {
  constexpr std::int64_t kLineBytes = 64;
  const ConvProblem& p = g_.problem;
  const auto& stride = a_.output.stride;
  const std::byte* first = at(a_.output.data, offset(a_.output, block, pos, d), p.output_dtype);
  const auto element = static_cast<std::int64_t>(size_bytes(p.output_dtype));
  const std::int64_t rows = std::min<std::int64_t>(g_.shape.mh, p.output[1] - pos.h);
  const std::int64_t pixels = std::min<std::int64_t>(g_.shape.mw, p.output[2] - pos.w);
  for (std::int64_t h = 0; h < rows; ++h)
    for (std::int64_t w = 0; w < pixels; ++w)
      for (std::int64_t byte = 0; byte < block.channels * element; byte += kLineBytes)
        __builtin_prefetch(first + (h * stride[2] + w * stride[3]) * element + byte, 1);
}

void Execution::store_tile(const OutputBlock& block, const Position& pos, std::int64_t d, const float* sums) const {
  const ConvProblem& p = g_.problem;
  const auto& stride = a_.output.stride;
  std::byte* output = at(a_.output.data, offset(a_.output, block, pos, d), p.output_dtype);
  const std::int64_t rows = std::min<std::int64_t>(g_.shape.mh, p.output[1] - pos.h);
  const std::int64_t pixels = std::min<std::int64_t>(g_.shape.mw, p.output[2] - pos.w);
  const Range h = covered_h_, w = covered_w_;
  const bool whole = rows == g_.shape.mh && pixels == g_.shape.mw && block.channels == b_.columns;
  const bool covered = pos.h >= h.begin && pos.h + rows <= h.end && pos.w >= w.begin && pos.w + pixels <= w.end;
  const bool plain =
      !stream_ && !p.epilogue.addend && p.epilogue.activation == Activation::identity && whole && covered;
  if (plain && tile_.output(sums, b_.sum_point_stride, block.bias, output, p.output_dtype, stride[2], stride[3]))
    return;
  alignas(64) float staged[kMaxTileOutputs * kMaxColumns];
  const std::int64_t row_floats = g_.shape.mw * b_.columns;
  // An infinity or NaN spreads over the tile, and sums that fit may overflow between its points.
  if (plain || !tile_.output(sums, b_.sum_point_stride, block.bias, staged, DType::f32, row_floats, b_.columns))
    sum_directly(block, pos, d, staged);
  // Outputs that read padding only are exactly zero, where the tile has the rounding error of its other outputs.
  if (!covered)
    for (std::int64_t i = 0; i < g_.shape.outputs(); ++i)
      if (!h.contains(pos.h + i / g_.shape.mw) || !w.contains(pos.w + i % g_.shape.mw))
        std::copy_n(block.bias, b_.columns, staged + i * b_.columns);
  FinishRow row{staged, pixels, block.channels, nullptr, a_.addend.stride[3], output, stride[3], stream_};
  if (p.epilogue.addend) row.addend = reinterpret_cast<const float*>(a_.addend.data) + offset(a_.addend, block, pos, d);
  for (std::int64_t i = 0; i < rows; ++i) {
    k_.finish(row, p.output_dtype, p.epilogue);
    row.sums += row_floats;
    row.output = at(row.output, stride[2], p.output_dtype);
    if (row.addend) row.addend += a_.addend.stride[2];
  }
}

}  // namespace vkconv::cpu::winograd
