// One execution of winograd_weight_grad: tiles are transformed, multiplied and summed, and their sums transformed back.
#include <atomic>
#include <vector>

#include "algorithms/winograd/winograd_execution.h"
#include "algorithms/winograd_weight_grad/winograd_weight_grad.h"
#include "core/dispatch.h"
#include "cpu/job.h"
#include "cpu/lines.h"
#include "cpu/outer_product.h"
#include "cpu/scratch.h"
#include "cpu/thread_pool.h"

namespace vkconv::cpu::winograd_weight_grad {
namespace {
using winograd::kernels;
using winograd::TileStrides;

constexpr std::int64_t kCopiedChannels = 64;              // at a time
constexpr std::int64_t kMostTile = 16, kMostPoints = 64;  // of a tile of two axes
constexpr std::int64_t kMostColumns = 3 * winograd::kMaxLanes;

class Execution {
 public:
  Execution(const ConvProblem& p, const Layout& l, const Operands<Device>& operands, std::byte* workspace)
      : p_(p),
        l_(l),
        a_(operands),
        parts_(reinterpret_cast<float*>(workspace)),
        scratch_(workspace + l.part_bytes(), l.slot_bytes(), l.slots) {}

  // False: some gradients are infinite or NaN.
  bool run() {
    for (std::int64_t group = 0; group < p_.groups; ++group)
      for (std::int64_t i = 0; i < l_.pieces(); ++i) {
        const Piece piece = l_.piece(p_, i);
        depth_blocks_ = depth_blocks(p_, l_, piece);
        thread_pool().run(l_.parts * l_.splits,
                          [&](std::int64_t unit) { sum(group, piece, unit / l_.splits, unit % l_.splits); });
        if (l_.parts > 1)
          thread_pool().run(piece.d.size() * l_.blocks * l_.runs, [&](std::int64_t panel) {
            add_parts(panel);
            finish(group, piece, panel / l_.runs / l_.blocks, panel / l_.runs % l_.blocks, panel % l_.runs,
                   parts_ + panel * l_.panel_floats());
          });
      }
    return finite_;
  }

 private:
  // The tiles of one part with the output channels of one split. Sums of a single part are finished while they are in
  // this core's cache.
  void sum(std::int64_t group, const Piece& piece, std::int64_t part, std::int64_t split) {
    const auto slot = scratch_.borrow();
    float* input = reinterpret_cast<float*>(slot.data());
    float *gradient = input + l_.input_floats(), *sums = gradient + l_.together * l_.gradient_floats();
    const Range chains = l_.part_chains(part), blocks = l_.split_blocks(split);
    const std::int64_t kept_runs = l_.keeps_all() ? l_.runs : 1, step = kept_runs * l_.panel_floats();
    const std::int64_t kept_blocks = l_.parts > 1 ? l_.blocks : l_.keeps_all() ? blocks.size() : l_.together;
    for (std::int64_t first = chains.begin; first < chains.end; first += l_.chunk) {
      check_job();
      const Range chunk{first, std::min(first + l_.chunk, chains.end)};
      transform_inputs(group, piece, chunk, input);
      for (std::int64_t block = blocks.begin; block < blocks.end; block += l_.together) {
        const std::int64_t count = std::min(l_.together, blocks.end - block);
        for (std::int64_t i = 0; i < count; ++i)
          transform_gradients(group, block + i, chunk, gradient + i * l_.gradient_floats());
        float* first_panel = l_.parts > 1     ? parts_ + part * l_.part_panels() * l_.panel_floats() + block * step
                             : l_.keeps_all() ? sums + (block - blocks.begin) * step
                                              : sums;
        for (std::int64_t run = 0; run < l_.runs; ++run) {
          const Sums to{first_panel + run % kept_runs * l_.panel_floats(), step, count, kept_blocks * step};
          multiply(input, gradient, chunk, run, first > chains.begin, to);
          if (l_.parts > 1 || chunk.end < chains.end) continue;
          for (std::int64_t tap = 0; tap < piece.d.size(); ++tap)
            for (std::int64_t i = 0; i < count; ++i)
              finish(group, piece, tap, block + i, run, to.data + tap * to.tap_step + i * step);
        }
      }
    }
  }

  // Where a tile lies: offsets of its input and output slice, with the group's first channel, and its first output.
  struct Place {
    std::int64_t input, gradient, h, w;
    bool inside;  // the slice is in the input, not padding
  };

  // `slice` and `depth` are those of the input and of the output where positions have none of their own.
  Place place(std::int64_t group, std::int64_t position, std::int64_t slice, std::int64_t depth) const {
    const std::int64_t tile_w = position % l_.w.tiles, tile_h = position / l_.w.tiles % l_.h.tiles;
    std::int64_t n = position / l_.w.tiles / l_.h.tiles;
    if (p_.kernel[0] == 1) {
      depth = n % p_.output[0];
      slice = position_of(p_, 0, depth, 0);
      n /= p_.output[0];
    }
    const auto &x = a_.input.stride, &dy = a_.output.stride;
    return {n * x[0] + slice * x[1] + group * p_.in_channels_per_group(),
            n * dy[0] + depth * dy[1] + group * p_.out_channels_per_group(), l_.h.first_output(tile_h),
            l_.w.first_output(tile_w), slice >= 0 && slice < p_.input[0]};
  }

  void transform_inputs(std::int64_t group, const Piece& piece, const Range& chunk, float* to) const {
    for (std::int64_t i = chunk.begin; i < chunk.end; ++i, to += l_.chain_inputs() * l_.pitch) {
      const Chain chain = l_.chain(i);
      float* v = to;
      for (const std::int64_t slice : depth_of(chain).slices)
        for (std::int64_t at = chain.positions.begin; at < chain.positions.end; ++at, v += l_.pitch)
          transform_input(place(group, at, slice, 0), piece, v);
    }
  }

  void transform_gradients(std::int64_t group, std::int64_t block, const Range& chunk, float* to) const {
    for (std::int64_t i = chunk.begin; i < chunk.end; ++i, to += l_.chain_gradients() * l_.columns) {
      const Chain chain = l_.chain(i);
      const Range depths = depth_of(chain).outputs;
      float* u = to;
      for (std::int64_t d = depths.begin; d < depths.end; ++d)
        for (std::int64_t at = chain.positions.begin; at < chain.positions.end; ++at, u += l_.columns)
          transform_gradient(place(group, at, 0, d), block, u);
    }
  }

  const DepthBlock& depth_of(const Chain& chain) const {
    return depth_blocks_[static_cast<std::size_t>(chain.depth_block)];
  }

  // Whole vectors are read in place.
  void transform_input(const Place& at, const Piece& piece, float* v) const {
    const auto& x = a_.input;
    const std::int64_t in = p_.in_channels_per_group(), rows_of = l_.h.points(), columns_of = l_.w.points();
    const std::int64_t h = at.h + piece.h * l_.h.step - p_.pad_lo[1], w = at.w + piece.w * l_.w.step - p_.pad_lo[2];
    const Range rows = l_.h.inside(h, at.inside ? p_.input[1] : 0, rows_of);
    const Range columns = l_.w.inside(w, p_.input[2], columns_of);
    const std::int64_t vectors = in / k_.lanes * k_.lanes;
    const std::int64_t first = at.input + h * x.stride[2] + w * x.stride[3];
    if (vectors > 0) {
      const TileStrides stride = strides(x);
      if (rows.size() == rows_of) fetch(x, first + columns_of * stride.pixel, rows_of, vectors);
      winograd::transform_in_place(tile_, shape_,
                                   {winograd::at(x.data, first, p_.dtype), p_.dtype, stride, {{0, 1}, rows, columns}},
                                   0, vectors, v, l_.input_stride);
    }
    alignas(64) float copy[kMostPoints * kCopiedChannels];
    for (std::int64_t c = vectors; c < in; c += kCopiedChannels) {
      const std::int64_t count = std::min(kCopiedChannels, in - c), padded = round_up(count, k_.lanes);
      copy_pixels(x, first + c, {rows, columns, rows_of, columns_of}, count, padded, copy);
      tile_.input(copy, DType::f32, {0, columns_of * padded, padded}, 0, padded, v + c, l_.input_stride);
    }
  }

  void transform_gradient(const Place& at, std::int64_t block, float* u) const {
    const auto& dy = a_.output;
    const Pixels pixels{l_.h.inside(at.h, at.inside ? p_.output[1] : 0, l_.h.tile),
                        l_.w.inside(at.w, p_.output[2], l_.w.tile), l_.h.tile, l_.w.tile};
    const std::int64_t channel = block * l_.columns,
                       count = std::min(l_.columns, p_.out_channels_per_group() - channel);
    const std::int64_t first = at.gradient + channel + at.h * dy.stride[2] + at.w * dy.stride[3];
    // A single vector in place would save less than a second call takes.
    const std::int64_t whole = count / k_.lanes * k_.lanes;
    const bool worth = whole == l_.columns || whole > k_.lanes;
    const std::int64_t in_place = p_.dtype == DType::f32 && pixels.whole() && worth ? whole : 0;
    if (in_place > 0) {
      const TileStrides stride = strides(dy);
      fetch(dy, first + l_.w.tile * stride.pixel, l_.h.tile, in_place);
      tile_.weight(reinterpret_cast<const float*>(dy.data) + first, stride, 0, in_place, u, l_.gradient_stride);
    }
    const std::int64_t columns = l_.columns - in_place;
    if (columns == 0) return;
    alignas(64) float copy[kMostTile * kMostColumns];
    copy_pixels(dy, first + in_place, pixels, count - in_place, columns, copy);
    tile_.weight(copy, {0, l_.w.tile * columns, columns}, 0, columns, u + in_place, l_.gradient_stride);
  }

  // From a tile's pixel to the next ones.
  TileStrides strides(const View<std::byte*>& v) const { return {0, v.stride[2] * l_.h.step, v.stride[3] * l_.w.step}; }

  // Reads `values` values of `rows` rows of pixels, `first` elements into the array, into the cache: the pixels that
  // the tile to the right adds. Tiles are strided, which no hardware prefetcher expects. Out of L3 they are there in
  // time as it is.
  void fetch(const View<std::byte*>& v, std::int64_t first, std::int64_t rows, std::int64_t values) const {
    const TileStrides stride = strides(v);
    if (!l_.fetches) return;
    for (std::int64_t h = 0; h < rows; ++h)
      for (std::int64_t w = 0; w < l_.w.tile; ++w)
        fetch_run<kIntoL2>(winograd::at(v.data, first + h * stride.row + w * stride.pixel, p_.dtype),
                           values * static_cast<std::int64_t>(size_bytes(p_.dtype)));
  }

  // A tile's pixels: those inside the array, of so many rows and columns.
  struct Pixels {
    Range rows, columns;
    std::int64_t rows_of, columns_of;
    bool whole() const { return rows.size() == rows_of && columns.size() == columns_of; }
  };

  // The pixels from `first` elements into the array on as [pixel][padded]; zeros outside.
  void copy_pixels(const View<std::byte*>& from, std::int64_t first, const Pixels& x, std::int64_t channels,
                   std::int64_t padded, float* to) const {
    if (channels < padded || !x.whole()) std::fill_n(to, x.rows_of * x.columns_of * padded, 0.0f);
    if (x.rows.size() == 0 || x.columns.size() == 0 || channels == 0) return;
    const TileStrides stride = strides(from);
    k_.stage_pixels(
        {winograd::at(from.data, first + x.rows.begin * stride.row + x.columns.begin * stride.pixel, p_.dtype),
         p_.dtype, stride.row, stride.pixel, x.rows.size(), x.columns.size(), channels,
         to + (x.rows.begin * x.columns_of + x.columns.begin) * padded, x.columns_of * padded, padded});
  }

  // Panels of `count` blocks, `step` floats apart, for each tap along the depth.
  struct Sums {
    float* data;
    std::int64_t step, count, tap_step;
  };

  // The products of a chunk, or adds them: every tile is one term, a row of inputs by a row of gradients.
  void multiply(const float* input, const float* gradient, const Range& chunk, std::int64_t run, bool accumulate,
                const Sums& sums) const {
    const std::int64_t first_row = run * l_.rows, in = std::min(l_.rows, p_.in_channels_per_group() - first_row);
    const std::int64_t lanes = k_.lanes, in_panel = l_.vectors;
    OuterTile<float> tile{};
    tile.slice_count = 1;
    tile.row_step = l_.pitch;
    tile.vector_step = tile.ldc = l_.columns;
    for (std::int64_t point = 0; point < l_.points(); ++point)
      for (std::int64_t i = chunk.begin; i < chunk.end; ++i) {
        const Chain chain = l_.chain(i);
        const DepthBlock& depth = depth_of(chain);
        const std::int64_t index = i - chunk.begin, span = chain.positions.size();
        const float* x = input + point * l_.input_stride + index * l_.chain_inputs() * l_.pitch + first_row;
        const float* dy = gradient + point * l_.gradient_stride + index * l_.chain_gradients() * l_.columns;
        for (std::size_t tap = 0; tap < depth.taps.size(); ++tap) {
          const DepthBlock::Tap& t = depth.taps[tap];
          const OuterSlice<float> slice{x + t.slice * span * l_.pitch,
                                        dy + (t.outputs.begin - depth.outputs.begin) * span * l_.columns};
          tile.slices = &slice;
          tile.count = t.outputs.size() * span;
          tile.c = sums.data + static_cast<std::int64_t>(tap) * sums.tap_step + point * l_.sum_stride;
          tile.adds = accumulate || index > 0;
          if (tile.count == 0 && tile.adds) continue;
          products_.multiply(
              tile, in, {0, sums.count * in_panel}, false,
              [&](std::int64_t v) { return v / in_panel * l_.gradient_floats() + v % in_panel * lanes; },
              [&](std::int64_t v) { return v / in_panel * sums.step + v % in_panel * lanes; });
        }
      }
  }

  // Adds every further part of a panel to that of the first.
  void add_parts(std::int64_t panel) const {
    float* sums = parts_ + panel * l_.panel_floats();
    for (std::int64_t part = 1; part < l_.parts; ++part) {
      const float* from = sums + part * l_.part_panels() * l_.panel_floats();
      for (std::int64_t i = 0; i < l_.panel_floats(); ++i) sums[i] += from[i];
    }
  }

  // The taps of a run of input channels with one block of output channels.
  void finish(std::int64_t group, const Piece& piece, std::int64_t tap, std::int64_t block, std::int64_t run,
              const float* sums) {
    alignas(64) static constexpr float kZeros[kMostColumns] = {};
    alignas(64) float y[winograd::kMaxTileTaps * winograd::kStagedWeights];
    const std::int64_t begin = run * l_.rows, end = std::min(begin + l_.rows, p_.in_channels_per_group());
    const std::int64_t most = std::min(winograd::kStagedChannels, winograd::kStagedWeights / l_.columns);
    for (std::int64_t channel = begin; channel < end; channel += most) {
      const std::int64_t count = std::min(most, end - channel);
      bool finite = true;
      for (std::int64_t c = 0; c < count; ++c)
        finite &= tile_.output(sums + (channel - begin + c) * l_.columns, l_.sum_stride, l_.columns, kZeros, nullptr,
                               y + c * l_.taps() * l_.columns, DType::f32, {0, l_.w.taps * l_.columns, l_.columns});
      if (!finite) finite_ = false;
      write(group, piece, tap, block, {channel, channel + count}, y);
    }
  }

  // y: [channel][tap][column].
  void write(std::int64_t group, const Piece& piece, std::int64_t depth_tap, std::int64_t block, Range channels,
             const float* y) const {
    const auto& w = a_.weight;
    const std::int64_t first = block * l_.columns, outputs = std::min(l_.columns, p_.out_channels_per_group() - first);
    with_type(p_.output_dtype, [&](auto zero) {
      using Out = decltype(zero);
      Out* block_begin = reinterpret_cast<Out*>(w.data) + group * w.group + first * w.out +
                         (piece.d.begin + depth_tap) * w.tap[0] + channels.begin * w.in;
      for (std::int64_t tap = 0; tap < l_.taps(); ++tap) {
        const std::int64_t kh = piece.h + tap / l_.w.taps, kw = piece.w + tap % l_.w.taps;
        if (kh >= p_.kernel[1] || kw >= p_.kernel[2]) continue;
        Out* to = block_begin + kh * w.tap[1] + kw * w.tap[2];
        const Taps from{y + tap * l_.columns, l_.taps() * l_.columns, channels.size(), outputs};
        if constexpr (std::is_same_v<Out, float>)
          if (w.in == 1) {
            k_.transpose(from.data, from.stride, outputs, channels.size(), to, w.out);
            continue;
          }
        if constexpr (sizeof(Out) == 2)
          if (w.in == 1) {
            round(from, reinterpret_cast<std::byte*>(to));
            continue;
          }
        for (std::int64_t o = 0; o < outputs; ++o)
          for (std::int64_t c = 0; c < channels.size(); ++c)
            to[o * w.out + c * w.in] = from_double<Out>(from.data[c * from.stride + o]);
      }
    });
  }

  // Gradients of one tap: that of channel c and output o at c * stride + o.
  struct Taps {
    const float* data;
    std::int64_t stride, channels, outputs;
  };

  // To 16 bits, a row of channels for every output.
  void round(const Taps& taps, std::byte* to) const {
    alignas(64) float rows[winograd::kStagedWeights];  // `columns` channels of some outputs
    const std::int64_t most = winograd::kStagedWeights / l_.columns;
    for (std::int64_t o = 0; o < taps.outputs; o += most)
      for (std::int64_t c = 0; c < taps.channels; c += l_.columns) {
        const std::int64_t outputs = std::min(most, taps.outputs - o),
                           channels = std::min(l_.columns, taps.channels - c);
        k_.transpose(taps.data + c * taps.stride + o, taps.stride, outputs, channels, rows, l_.columns);
        k_.finish({rows, l_.columns, outputs, channels, nullptr, 0,
                   winograd::at(to, o * a_.weight.out + c, p_.output_dtype), a_.weight.out, false},
                  p_.output_dtype, {});
      }
  }

  const ConvProblem& p_;
  const Layout& l_;
  const Operands<Device>& a_;
  const winograd::Kernels& k_ = kernels();
  const OuterKernels<float>& products_ = outer_kernels<float>();
  const winograd::TileShape& shape_ = winograd::kTileShapes[l_.shape_index];
  const winograd::TileKernels& tile_ = k_.tiles[l_.shape_index];
  float* parts_;
  ScratchSlots scratch_;
  std::vector<DepthBlock> depth_blocks_;  // of the piece at work
  std::atomic<bool> finite_{true};
};

}  // namespace

bool run(const ConvProblem& p, const Layout& layout, const Operands<Device>& operands, std::byte* workspace) {
  return Execution(p, layout, operands, workspace).run();
}

}  // namespace vkconv::cpu::winograd_weight_grad
