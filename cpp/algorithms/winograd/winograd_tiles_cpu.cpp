// Between arrays and the transform domain: one tile of input, one panel of weights, one tile of output at a time.
#include <algorithm>

#include "algorithms/winograd/winograd_execution.h"
#include "core/checked.h"
#include "cpu/lines.h"

namespace vkconv::cpu::winograd {
namespace {

constexpr std::int64_t kCopiedChannels = 64;  // at a time
static_assert(kCopiedChannels >= kMaxLanes);

}  // namespace

void transform_in_place(const TileKernels& tile, const TileShape& shape, const TilePixels& x, int plane,
                        std::int64_t channels, float* v, std::int64_t point_stride) {
  if (x.inside.holds(shape)) return tile.input(x.first, x.dtype, x.stride, plane, channels, v, point_stride);
  constexpr std::int64_t kZeroChannels = 256;
  alignas(64) static constexpr std::byte kZeros[kZeroChannels * sizeof(float)] = {};
  for (std::int64_t c = 0; c < channels; c += kZeroChannels) {
    const std::byte *pixels[kMaxTilePoints], **pixel = pixels;
    for (std::int64_t d = 0; d < shape.points_d(); ++d)
      for (std::int64_t h = 0; h < shape.points_h(); ++h)
        for (std::int64_t w = 0; w < shape.points_w(); ++w)
          *pixel++ = x.inside.slices.contains(d) && x.inside.rows.contains(h) && x.inside.columns.contains(w)
                         ? at(x.first, d * x.stride.slice + h * x.stride.row + w * x.stride.pixel + c, x.dtype)
                         : kZeros;
    tile.input_pixels(pixels, x.dtype, plane, std::min(kZeroChannels, channels - c), v + c, point_stride);
  }
}

Execution::Position Execution::position(std::int64_t index) const {
  Position p{};
  p.w = index % g_.tiles_w * g_.shape.mw;
  index /= g_.tiles_w;
  p.h = index % g_.tiles_h * g_.shape.mh;
  index /= g_.tiles_h;
  if (g_.folded) {
    p.d = index % g_.tiles_d * g_.shape.md;
    index /= g_.tiles_d;
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
  if (g_.folded && (p.d += g_.shape.md) < output[0]) return p;
  p.d = 0;
  ++p.n;
  return p;
}

// `taps` of the first axis.
WeightBlock Execution::weight_block(std::int64_t group, std::int64_t output_block, Range taps, std::int64_t channel,
                                    std::int64_t channel_end) const {
  const std::int64_t first = output_block * b_.columns, c = channel % g_.in_channels;
  const KernelPart& part = g_.part(channel);
  WeightBlock block{a_.weight,
                    g_.problem.dtype,
                    g_.shape.rh,
                    g_.shape.rw,
                    taps.size(),
                    part.taps_h,
                    part.taps_w,
                    std::min({kStagedChannels, kStagedWeights / b_.columns, channel_end - channel, g_.in_channels - c}),
                    std::min(b_.columns, g_.out_channels - first),
                    b_.columns};
  auto& w = block.view;
  w.data =
      at(w.data,
         group * w.group + first * w.out + taps.begin * w.tap[0] + part.h * w.tap[1] + part.w * w.tap[2] + c * w.in,
         block.dtype);
  for (const int axis : {1, 2}) w.tap[axis] *= g_.problem.stride[axis];
  return block;
}

void Execution::transform_panel(std::int64_t group, std::int64_t output_block, const ReductionBlock& r, Range planes,
                                bool stream, float* u, std::int64_t point_stride) const {
  const auto transform = stream ? tile_.stream_weight : tile_.weight;
  alignas(64) float taps[kMaxTileTaps * kStagedWeights];
  for (std::int64_t tap = r.tap_begin; tap < r.tap_end; ++tap)
    for (std::int64_t c = r.channel_begin; c < r.channel_end;) {
      const Range taps_d = g_.shape.deep() ? Range{0, g_.shape.rd} : Range{tap, tap + 1};
      const WeightBlock block = weight_block(group, output_block, taps_d, c, r.channel_end);
      k_.stage_weights(block, taps);
      const std::int64_t term = (tap - r.tap_begin) * r.channels() + c - r.channel_begin;
      const std::int64_t values = block.channels * b_.columns;
      const TileStrides stride{g_.shape.rh * g_.shape.rw * values, g_.shape.rw * values, values};
      for (std::int64_t plane = planes.begin; plane < planes.end; ++plane)
        transform(taps, stride, static_cast<int>(plane), values,
                  u + (plane - planes.begin) * g_.shape.plane_points() * point_stride + term * b_.columns,
                  point_stride);
      c += block.channels;
    }
}

// A point's share.
void Execution::fetch(const Worker& worker, const Fetched& f, std::int64_t point) const {
  const Slab& slab = worker.slab;
  const auto share = [&](std::int64_t first, std::int64_t tiles, auto fetch_tile) {
    const Range part = nth_part(tiles, point, g_.shape.plane_points());
    Position pos = position(first + part.begin);
    for (std::int64_t t = part.begin; t < part.end; ++t, pos = after(pos)) fetch_tile(pos);
  };
  const std::int64_t behind = slab.tile_begin + slab.tiles;
  if (f.blocks.size() > 0)
    share(slab.tile_begin, slab.tiles, [&](const auto& pos) {
      for (std::int64_t block = f.blocks.begin; block < f.blocks.end; ++block)
        for (std::size_t e = 0; e < worker.taps.size(); ++e)
          prefetch_outputs<kIntoL2>(output_block(slab.group, block, nullptr), pos, f.d + static_cast<std::int64_t>(e));
    });
  if (f.input)
    share(behind, std::min(b_.tiles, g_.positions - behind), [&](const auto& pos) { prefetch_input(slab.group, pos); });
}

// Of a tile as many pixels as it has outputs: its neighbours have the rest.
void Execution::prefetch_input(std::int64_t group, const Position& pos) const {
  const ConvProblem& p = g_.problem;
  const auto& stride = a_.input.stride;
  const std::int64_t pixel_bytes = g_.in_channels * static_cast<std::int64_t>(size_bytes(p.dtype));
  const Range rows = common({0, p.input[1]}, {pos.h * p.stride[1], (pos.h + g_.shape.mh) * p.stride[1]});
  const Range columns = common({0, p.input[2]}, {pos.w * p.stride[2], (pos.w + g_.shape.mw) * p.stride[2]});
  for (std::int64_t h = rows.begin; h < rows.end; ++h)
    for (std::int64_t w = columns.begin; w < columns.end; ++w) {
      const std::int64_t pixel = pos.n * stride[0] + h * stride[2] + w * stride[3] + group * g_.in_channels;
      fetch_run<kIntoL2>(at(a_.input.data, pixel, p.dtype), pixel_bytes);
    }
}

void Execution::transform_slice(const Slab& slab, std::int64_t slice, int plane, float* v) const {
  Position pos = position(slab.tile_begin);
  for (std::int64_t t = 0; t < slab.tiles; ++t, pos = after(pos))
    transform_tile(slab.group, pos, slice, plane, v + t * b_.tile_pitch);
}

// Whole vectors are read in place. The channels behind the last whole vector, and few channels of several parts
// together go through a copy; its result is padded and overwritten by what follows it.
void Execution::transform_tile(std::int64_t group, const Position& pos, std::int64_t slice, int plane, float* v) const {
  const ConvProblem& p = g_.problem;
  if (g_.folded) slice = pos.d * p.stride[0] - p.pad_lo[0];
  const auto& stride = a_.input.stride;
  const InputTile t{pos.n * stride[0] + group * g_.in_channels, slice, pos.h * p.stride[1] - p.pad_lo[1],
                    pos.w * p.stride[2] - p.pad_lo[2]};
  const std::int64_t in = g_.in_channels, vectors = in / k_.lanes * k_.lanes;
  for (std::int64_t c = 0, end; c < g_.channels(); c = end) {
    if (c % in < vectors) {
      end = c + vectors;
      transform_vectors(t.at(g_.part(c)), plane, vectors, v + c);
    } else {
      end = c % in > 0 || in > kCopiedChannels ? std::min(c + kCopiedChannels, c - c % in + in)
                                               : std::min(c + kCopiedChannels / in * in, g_.channels());
      transform_copy(t, plane, {c, end}, v + c);
    }
  }
}

// Points of a tile along one axis, the first at input position `first`, that lie inside the input.
Range Execution::points_inside(int axis, std::int64_t first) const {
  const TileShape& s = g_.shape;
  const std::int64_t stride = g_.problem.stride[axis];
  const std::int64_t points = axis == 0 ? s.points_d() : axis == 1 ? s.points_h() : s.points_w();
  if (first >= 0 && first + (points - 1) * stride < g_.problem.input[axis]) return {0, points};
  return {std::clamp<std::int64_t>(ceil_div(-first, stride), 0, points),
          std::clamp<std::int64_t>(floor_div(g_.problem.input[axis] - 1 - first, stride) + 1, 0, points)};
}

TileInside Execution::points_inside(const InputTile& t) const {
  return {points_inside(0, t.d), points_inside(1, t.h), points_inside(2, t.w)};
}

// Channel 0 of a tile's first pixel.
const std::byte* Execution::first_pixel(const InputTile& t) const {
  const auto& stride = a_.input.stride;
  return at(a_.input.data, t.origin + t.d * stride[1] + t.h * stride[2] + t.w * stride[3], g_.problem.dtype);
}

// Whether a tile has no padding in any part of `channels`.
bool Execution::inside(const InputTile& t, Range channels) const {
  for (std::int64_t c = channels.begin; c < channels.end; c += g_.in_channels - c % g_.in_channels)
    if (!points_inside(t.at(g_.part(c))).holds(g_.shape)) return false;
  return true;
}

// `channels` count through the parts.
void Execution::transform_copy(const InputTile& t, int plane, Range channels, float* v) const {
  alignas(64) float copy[kMaxTilePoints * kCopiedChannels];
  const auto& stride = a_.input.stride;
  const std::int64_t in = g_.in_channels, padded = round_up(channels.size(), k_.lanes);
  const TileStrides to{g_.shape.plane_points() * padded, g_.shape.points_w() * padded, padded};
  // Zeros for padding, or else for the lanes behind the last channel.
  const std::int64_t zeros = !inside(t, channels) ? padded : channels.size() < padded ? k_.lanes : 0;
  for (std::int64_t i = 1; zeros > 0 && i <= g_.shape.points(); ++i)
    std::fill_n(copy + i * padded - zeros, zeros, 0.0f);
  for (std::int64_t c = channels.begin, end; c < channels.end; c = end) {
    const KernelPart& part = g_.part(c);
    const InputTile at_part = t.at(part);
    const auto [d, h, w] = points_inside(at_part);
    end = std::min(channels.end, c - c % in + in);
    // The phases of a stride are neighbours in memory: one run, as far as their points inside are the same.
    for (std::int64_t i = 1; end < channels.end && stride[3] == in; ++i) {
      const KernelPart& next = g_.part(end);
      const Range next_w = points_inside(2, at_part.w + i);
      if (next.h != part.h || next.w != part.w + i || next_w.begin != w.begin || next_w.end != w.end) break;
      end += in;
    }
    if (h.size() == 0 || w.size() == 0) continue;
    for (std::int64_t k = d.begin; k < d.end; ++k)
      k_.stage_pixels({at(first_pixel(at_part), k * step_.slice + h.begin * step_.row + w.begin * step_.pixel + c % in,
                          g_.problem.dtype),
                       g_.problem.dtype, step_.row, step_.pixel, h.size(), w.size(), end - c,
                       copy + k * to.slice + h.begin * to.row + w.begin * padded + c - channels.begin, to.row, padded});
  }
  tile_.input(copy, DType::f32, to, plane, padded, v, b_.input_point_stride);
}

// The first `channels` channels, whole vectors, read in place.
void Execution::transform_vectors(const InputTile& t, int plane, std::int64_t channels, float* v) const {
  const TilePixels pixels{first_pixel(t), g_.problem.dtype, step_, points_inside(t)};
  transform_in_place(tile_, g_.shape, pixels, plane, channels, v, b_.input_point_stride);
}

OutputBlock Execution::output_block(std::int64_t group, std::int64_t index, const float* bias) const {
  const std::int64_t first = index * b_.columns;
  return {group, index, group * g_.out_channels + first, std::min(b_.columns, g_.out_channels - first), bias};
}

void Execution::store_tiles(const Slab& slab, std::int64_t output_block, std::int64_t d, const float* sums) const {
  alignas(64) float bias[kMaxColumns] = {};
  const OutputBlock block = this->output_block(slab.group, output_block, bias);
  if (g_.problem.epilogue.bias)
    std::copy_n(reinterpret_cast<const float*>(a_.bias) + block.first, block.channels, bias);
  Position pos = position(slab.tile_begin);
  for (std::int64_t t = 0; t < slab.tiles; ++t) {
    const Position next = after(pos);
    if (t + 1 < slab.tiles && b_.fetches && !stream_) prefetch_outputs<kIntoL1>(block, next, d);
    store_tile(block, pos, d, sums + t * b_.columns);
    pos = next;
  }
}

std::int64_t Execution::offset(const View<std::byte*>& v, const OutputBlock& block, const Position& pos,
                               std::int64_t d) const {
  return pos.n * v.stride[0] + (pos.d + d) * v.stride[1] + pos.h * v.stride[2] + pos.w * v.stride[3] + block.first;
}

// Stores that miss the caches stall behind one another.
template <int kLevel>
void Execution::prefetch_outputs(const OutputBlock& block, const Position& pos, std::int64_t d) const {
  const ConvProblem& p = g_.problem;
  const auto& stride = a_.output.stride;
  const std::byte* first = at(a_.output.data, offset(a_.output, block, pos, d), p.output_dtype);
  const auto element = static_cast<std::int64_t>(size_bytes(p.output_dtype));
  const Extent3 size = tile_outputs(pos);
  for (std::int64_t e = 0; e < size[0]; ++e)
    for (std::int64_t h = 0; h < size[1]; ++h)
      for (std::int64_t w = 0; w < size[2]; ++w)
        fetch_run<kLevel>(first + (e * stride[1] + h * stride[2] + w * stride[3]) * element, block.channels * element);
}

// Of a tile, those that are part of the output.
Extent3 Execution::tile_outputs(const Position& pos) const {
  const Extent3& output = g_.problem.output;
  return {std::min<std::int64_t>(g_.shape.md, output[0] - pos.d),
          std::min<std::int64_t>(g_.shape.mh, output[1] - pos.h),
          std::min<std::int64_t>(g_.shape.mw, output[2] - pos.w)};
}

void Execution::store_tile(const OutputBlock& block, const Position& pos, std::int64_t d, const float* sums) const {
  const ConvProblem& p = g_.problem;
  const auto& stride = a_.output.stride;
  std::byte* output = at(a_.output.data, offset(a_.output, block, pos, d), p.output_dtype);
  const TileShape& s = g_.shape;
  const Extent3 size = tile_outputs(pos), first{pos.d + d, pos.h, pos.w};
  const bool whole = size[0] == s.md && size[1] == s.mh && size[2] == s.mw && block.channels == b_.columns;
  bool covered = true;
  for (int a = 0; a < 3; ++a) covered &= first[a] >= covered_[a].begin && first[a] + size[a] <= covered_[a].end;
  const bool plain = in_registers_ && whole && covered;
  const Bounds* const bounds = bounds_ ? &*bounds_ : nullptr;
  const TileStrides to{stride[1], stride[2], stride[3]};
  if (plain && tile_.output(sums, b_.sum_point_stride, b_.columns, block.bias, bounds, output, p.output_dtype, to))
    return;
  alignas(64) float staged[kMaxTileOutputs * kMaxColumns];
  const TileStrides between{s.mh * s.mw * b_.columns, s.mw * b_.columns, b_.columns};
  // An infinity or NaN spreads over the tile, and sums that fit may overflow between its points.
  if (plain || !tile_.output(sums, b_.sum_point_stride, b_.columns, block.bias, nullptr, staged, DType::f32, between))
    sum_directly(block, pos, d, staged);
  // Outputs that read padding only are exactly zero, where the tile has the rounding error of its other outputs.
  if (!covered)
    for (std::int64_t i = 0; i < s.outputs(); ++i)
      if (!covered_[0].contains(first[0] + i / (s.mh * s.mw)) || !covered_[1].contains(pos.h + i / s.mw % s.mh) ||
          !covered_[2].contains(pos.w + i % s.mw))
        std::copy_n(block.bias, b_.columns, staged + i * b_.columns);
  const float* addend = nullptr;
  if (p.epilogue.addend) addend = reinterpret_cast<const float*>(a_.addend.data) + offset(a_.addend, block, pos, d);
  const auto& from = a_.addend.stride;
  for (std::int64_t e = 0; e < size[0]; ++e)
    for (std::int64_t i = 0; i < size[1]; ++i)
      k_.finish({staged + e * between.slice + i * between.row, b_.columns, size[2], block.channels,
                 addend ? addend + e * from[1] + i * from[2] : nullptr, from[3],
                 at(output, e * to.slice + i * to.row, p.output_dtype), to.pixel, stream_},
                p.output_dtype, p.epilogue);
}

}  // namespace vkconv::cpu::winograd
