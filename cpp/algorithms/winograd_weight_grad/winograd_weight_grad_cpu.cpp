// winograd_weight_grad: the weight gradient of 3x3 kernels through fewer products. A tile of 4x4 output gradients is a
// 4x4 kernel over the 6x6 inputs under it whose 3x3 results are the gradients of the taps: F(3x3, 4x4) of winograd
// (Lavin and Gray 2015). All tiles are summed in the transform domain, where a tile takes 36 products a pair of
// channels instead of 144, and one inverse transform follows.
// Transformed tiles stay with the thread that multiplies them: moving them between cores takes longer than the
// products. Threads share the work by parts of the tiles, whose sums are added afterwards, and by splits of the output
// channels, each of which transforms the inputs for itself. It wins where pixels are many beside the weights. Taps of
// the depth axis, of any stride and dilation, are summed one after another. What is not finite is computed again by
// weight_grad.
#include <atomic>
#include <bit>
#include <cmath>

#include "algorithms/registry_cpu.h"
#include "algorithms/weight_grad/weight_grad_support.h"
#include "algorithms/winograd/winograd_execution.h"
#include "core/checked.h"
#include "core/dispatch.h"
#include "core/planner.h"
#include "cpu/job.h"
#include "cpu/outer_product.h"
#include "cpu/scratch.h"
#include "cpu/thread_pool.h"

namespace vkconv::cpu {
namespace winograd_weight_grad {
namespace {
using winograd::kernels;
using winograd::odd_lines;

constexpr std::int64_t kTaps = 3, kTile = 4, kPixels = kTaps * kTaps, kPoints = 36, kPointsAxis = 6;
constexpr std::int64_t kChain = 64;          // tiles summed in registers
constexpr std::int64_t kMaxTiles = 1 << 20;  // of longer sums the rounding of the running sums would show
constexpr std::int64_t kPartTiles = 256;     // of fewer tiles the products would not pay for adding parts up
constexpr std::int64_t kMaxParts = 16;
constexpr std::int64_t kPartBytes = 16 << 20;  // of the sums of all parts
constexpr std::int64_t kChunkBytes = 1 << 20;  // of the inputs that a thread transforms at a time
constexpr std::int64_t kMaxRows = 60;          // input channels whose sums stay in a core's cache
constexpr std::int64_t kCopiedChannels = 64;   // at a time

constexpr std::size_t shape_index() {
  std::size_t i = 0;
  while (winograd::kTileShapes[i].mh != kTaps || winograd::kTileShapes[i].rh != kTile) ++i;
  return i;
}

// Sizes for one group and depth tap. Transformed inputs are [point][tile][channel], output gradients of one block
// [point][tile][column], and sums panels [point][row][column] of a block of output channels (columns) and a run of
// input channels (rows).
struct Layout {
  std::int64_t columns, blocks, pitch, tiles_h, tiles_w, tiles, parts, splits, chunk, runs, rows;
  std::int64_t input_stride, gradient_stride, sum_stride;  // of a point
  int slots;                                               // threads at work
  std::int64_t input_floats() const { return kPoints * input_stride; }
  std::int64_t panel_floats() const { return kPoints * sum_stride; }
  std::int64_t part_floats() const { return blocks * runs * panel_floats(); }
  // Tiles of part `part`: whole chains, so that the cut into chunks does not change the bits.
  Range part_tiles(std::int64_t part) const {
    const std::int64_t chains = ceil_div(tiles, kChain);
    return {chains * part / parts * kChain, std::min(tiles, chains * (part + 1) / parts * kChain)};
  }
  Range split_blocks(std::int64_t split) const { return {blocks * split / splits, blocks * (split + 1) / splits}; }
  // Sums of one part are panels of the slot: all of a split, or those of one product where one chunk completes them.
  bool keeps_all() const { return parts > 1 || chunk < tiles; }
  std::int64_t panels() const { return parts > 1 ? 0 : keeps_all() ? ceil_div(blocks, splits) * runs : kWidePanels; }
  std::int64_t gradient_floats() const { return kPoints * gradient_stride; }  // of a block
  std::size_t slot_bytes() const {
    return static_cast<std::size_t>(input_floats() + kWidePanels * gradient_floats() + panels() * panel_floats()) *
           sizeof(float);
  }
  std::size_t part_bytes() const {
    return parts > 1 ? static_cast<std::size_t>(parts * part_floats()) * sizeof(float) : 0;
  }
  std::size_t bytes() const { return part_bytes() + static_cast<std::size_t>(slots) * slot_bytes(); }
};

// The parts depend on the problem only; whatever else is chosen gives the same bits.
Layout make_layout(const ConvProblem& p, const Traits& traits, std::int64_t lanes, std::size_t limit_bytes) {
  Layout l{};
  const std::int64_t in = p.in_channels_per_group();
  l.columns = 2 * lanes;
  l.blocks = ceil_div(p.out_channels_per_group(), l.columns);
  l.pitch = round_up(in, lanes);
  l.tiles_h = ceil_div(p.output[1], kTile);
  l.tiles_w = ceil_div(p.output[2], kTile);
  l.tiles = p.batch * p.output[0] * l.tiles_h * l.tiles_w;
  l.runs = ceil_div(in, kMaxRows);
  l.rows = ceil_div(in, l.runs);
  l.sum_stride = odd_lines(l.rows * l.columns);
  const std::int64_t floats = kPoints * in * p.out_channels_per_group();
  const std::int64_t parts = std::min({l.tiles / kPartTiles, kPartBytes / (4 * floats), kMaxParts});
  l.parts = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(parts, 1))));
  const std::int64_t longest = round_up(ceil_div(l.tiles, l.parts), kChain);
  const std::int64_t chain_bytes = kChain * kPoints * l.pitch * static_cast<std::int64_t>(sizeof(float));
  l.chunk = kChain * std::clamp<std::int64_t>(kChunkBytes / chain_bytes, 1, longest / kChain);
  for (l.slots = static_cast<int>(traits.threads);; --l.slots) {
    l.splits = std::min(l.blocks, ceil_div(std::int64_t{l.slots}, l.parts));
    for (std::int64_t chunk = l.chunk; chunk >= kChain; chunk -= kChain) {
      Layout smaller = l;
      smaller.chunk = chunk;
      smaller.input_stride = odd_lines(chunk * l.pitch);
      smaller.gradient_stride = odd_lines(chunk * l.columns);
      if (smaller.bytes() <= limit_bytes || (l.slots == 1 && chunk == kChain)) return smaller;
    }
  }
}

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
      for (std::int64_t tap = 0; tap < p_.kernel[0]; ++tap) {
        thread_pool().run(l_.parts * l_.splits,
                          [&](std::int64_t unit) { sum(group, tap, unit / l_.splits, unit % l_.splits); });
        if (l_.parts > 1)
          thread_pool().run(l_.blocks * l_.runs, [&](std::int64_t panel) {
            add_parts(panel);
            finish(group, tap, panel / l_.runs, panel % l_.runs, parts_ + panel * l_.panel_floats());
          });
      }
    return finite_;
  }

 private:
  // The tiles of one part with the output channels of one split. Sums of a single part are finished while they are in
  // this core's cache.
  void sum(std::int64_t group, std::int64_t tap, std::int64_t part, std::int64_t split) {
    const auto slot = scratch_.borrow();
    float* input = reinterpret_cast<float*>(slot.data());
    float *gradient = input + l_.input_floats(), *sums = gradient + kWidePanels * l_.gradient_floats();
    const Range tiles = l_.part_tiles(part), blocks = l_.split_blocks(split);
    for (std::int64_t first = tiles.begin; first < tiles.end; first += l_.chunk) {
      check_job();
      const Range chunk{first, std::min(first + l_.chunk, tiles.end)};
      transform(group, tap, chunk, [&](const Place& at, std::int64_t t) { transform_input(at, input + t * l_.pitch); });
      for (std::int64_t block = blocks.begin; block < blocks.end; block += kWidePanels) {
        const std::int64_t count = std::min(kWidePanels, blocks.end - block);
        for (std::int64_t i = 0; i < count; ++i)
          transform(group, tap, chunk, [&](const Place& at, std::int64_t t) {
            transform_gradient(at, block + i, gradient + i * l_.gradient_floats() + t * l_.columns);
          });
        const std::int64_t kept_runs = l_.keeps_all() ? l_.runs : 1, step = kept_runs * l_.panel_floats();
        float* first_panel = l_.parts > 1     ? parts_ + (part * l_.blocks + block) * step
                             : l_.keeps_all() ? sums + (block - blocks.begin) * step
                                              : sums;
        for (std::int64_t run = 0; run < l_.runs; ++run) {
          float* to = first_panel + run % kept_runs * l_.panel_floats();
          multiply(input, gradient, chunk.size(), run, first > tiles.begin, {to, step, count});
          if (l_.parts > 1 || chunk.end < tiles.end) continue;
          for (std::int64_t i = 0; i < count; ++i) finish(group, tap, block + i, run, to + i * step);
        }
      }
    }
  }

  // Where a tile lies: offsets of its image and depth, with the group's first channel, and its first output.
  struct Place {
    std::int64_t input, gradient, h, w;
    bool inside;  // the depth tap reads an input slice, not padding
  };

  template <class F>
  void transform(std::int64_t group, std::int64_t tap, Range tiles, F&& tile) const {
    for (std::int64_t index = tiles.begin; index < tiles.end; ++index) {
      const std::int64_t slice = index / (l_.tiles_w * l_.tiles_h), d = slice % p_.output[0], n = slice / p_.output[0];
      const std::int64_t input_d = d * p_.stride[0] + tap * p_.dilation[0] - p_.pad_lo[0];
      const auto &x = a_.input.stride, &dy = a_.output.stride;
      tile(Place{n * x[0] + input_d * x[1] + group * p_.in_channels_per_group(),
                 n * dy[0] + d * dy[1] + group * p_.out_channels_per_group(), index / l_.tiles_w % l_.tiles_h * kTile,
                 index % l_.tiles_w * kTile, input_d >= 0 && input_d < p_.input[0]},
           index - tiles.begin);
    }
  }

  // Whole vectors are read in place.
  void transform_input(const Place& at, float* v) const {
    const auto& x = a_.input;
    const std::int64_t in = p_.in_channels_per_group(), h = at.h - p_.pad_lo[1], w = at.w - p_.pad_lo[2];
    const Range rows = inside(h, at.inside ? p_.input[1] : 0, kPointsAxis);
    const Range columns = inside(w, p_.input[2], kPointsAxis);
    const std::int64_t vectors = in / k_.lanes * k_.lanes;
    const std::int64_t first = at.input + h * x.stride[2] + w * x.stride[3];
    if (vectors > 0) {
      if (rows.size() == kPointsAxis) fetch(x, first + kPointsAxis * x.stride[3], kPointsAxis, vectors);
      winograd::transform_in_place(
          tile_, winograd::kTileShapes[shape_index()],
          {winograd::at(x.data, first, p_.dtype), p_.dtype, {0, x.stride[2], x.stride[3]}, {{0, 1}, rows, columns}}, 0,
          vectors, v, l_.input_stride);
    }
    alignas(64) float copy[kPoints * kCopiedChannels];
    for (std::int64_t c = vectors; c < in; c += kCopiedChannels) {
      const std::int64_t count = std::min(kCopiedChannels, in - c), padded = round_up(count, k_.lanes);
      copy_pixels(x, first + c, rows, columns, kPointsAxis, count, padded, copy);
      tile_.input(copy, DType::f32, {0, kPointsAxis * padded, padded}, 0, padded, v + c, l_.input_stride);
    }
  }

  void transform_gradient(const Place& at, std::int64_t block, float* u) const {
    const auto& dy = a_.output;
    const Range rows = inside(at.h, at.inside ? p_.output[1] : 0, kTile), columns = inside(at.w, p_.output[2], kTile);
    const std::int64_t channel = block * l_.columns,
                       count = std::min(l_.columns, p_.out_channels_per_group() - channel);
    const std::int64_t first = at.gradient + channel + at.h * dy.stride[2] + at.w * dy.stride[3];
    if (p_.dtype == DType::f32 && count == l_.columns && rows.size() == kTile && columns.size() == kTile) {
      fetch(dy, first + kTile * dy.stride[3], kTile, count);
      return tile_.weight(reinterpret_cast<const float*>(dy.data) + first, {0, dy.stride[2], dy.stride[3]}, 0, count, u,
                          l_.gradient_stride);
    }
    alignas(64) float copy[kTile * kTile * winograd::kMaxColumns];
    copy_pixels(dy, first, rows, columns, kTile, count, l_.columns, copy);
    tile_.weight(copy, {0, kTile * l_.columns, l_.columns}, 0, l_.columns, u, l_.gradient_stride);
  }

  // Reads `values` values of `rows` x kTile pixels, `first` elements into the array, into the cache: the pixels that
  // the tile to the right adds. Tiles are strided, which no hardware prefetcher expects.
  void fetch(const View<std::byte*>& v, std::int64_t first, std::int64_t rows, std::int64_t values) const {
    const auto line = static_cast<std::int64_t>(64 / size_bytes(p_.dtype));
    for (std::int64_t h = 0; h < rows; ++h)
      for (std::int64_t w = 0; w < kTile; ++w)
        for (std::int64_t i = 0; i < values; i += line)
          __builtin_prefetch(winograd::at(v.data, first + h * v.stride[2] + w * v.stride[3] + i, p_.dtype), 0, 2);
  }

  // Of `size` positions from `first` on, those inside of `extent`.
  static Range inside(std::int64_t first, std::int64_t extent, std::int64_t size) {
    return {std::clamp<std::int64_t>(-first, 0, size), std::clamp<std::int64_t>(extent - first, 0, size)};
  }

  // `size` x `size` pixels, the first one `first` elements into the array, as [pixel][padded]; zeros outside.
  void copy_pixels(const View<std::byte*>& from, std::int64_t first, Range rows, Range columns, std::int64_t size,
                   std::int64_t channels, std::int64_t padded, float* to) const {
    if (channels < padded || rows.size() < size || columns.size() < size) std::fill_n(to, size * size * padded, 0.0f);
    if (rows.size() == 0 || columns.size() == 0) return;
    k_.stage_pixels(
        {winograd::at(from.data, first + rows.begin * from.stride[2] + columns.begin * from.stride[3], p_.dtype),
         p_.dtype, from.stride[2], from.stride[3], rows.size(), columns.size(), channels,
         to + (rows.begin * size + columns.begin) * padded, size * padded, padded});
  }

  struct Sums {
    float* data;
    std::int64_t step, count;  // panels of `count` blocks, `step` floats apart
  };

  // The products of a chunk, or adds them: every tile is one term, a row of inputs by a row of gradients.
  void multiply(const float* input, const float* gradient, std::int64_t tiles, std::int64_t run, bool accumulate,
                const Sums& sums) const {
    const std::int64_t first_row = run * l_.rows, in = std::min(l_.rows, p_.in_channels_per_group() - first_row);
    const std::int64_t lanes = k_.lanes, in_panel = l_.columns / lanes;
    OuterTile<float> tile{};
    tile.slice_count = 1;
    tile.row_step = l_.pitch;
    tile.vector_step = tile.ldc = l_.columns;
    for (std::int64_t point = 0; point < kPoints; ++point)
      for (std::int64_t first = 0; first < tiles; first += kChain) {
        const OuterSlice<float> slice{input + point * l_.input_stride + first * l_.pitch + first_row,
                                      gradient + point * l_.gradient_stride + first * l_.columns};
        tile.slices = &slice;
        tile.count = std::min(kChain, tiles - first);
        tile.c = sums.data + point * l_.sum_stride;
        tile.adds = accumulate || first > 0;
        products_.multiply(
            tile, in, {0, sums.count * in_panel}, false,
            [&](std::int64_t v) { return v / in_panel * l_.gradient_floats() + v % in_panel * lanes; },
            [&](std::int64_t v) { return v / in_panel * sums.step + v % in_panel * lanes; });
      }
  }

  // Adds every further part of a panel to that of the first.
  void add_parts(std::int64_t panel) const {
    float* sums = parts_ + panel * l_.panel_floats();
    for (std::int64_t part = 1; part < l_.parts; ++part) {
      const float* from = sums + part * l_.part_floats();
      for (std::int64_t i = 0; i < l_.panel_floats(); ++i) sums[i] += from[i];
    }
  }

  // The taps of a run of input channels with one block of output channels.
  void finish(std::int64_t group, std::int64_t tap, std::int64_t block, std::int64_t run, const float* sums) {
    alignas(64) static constexpr float kZeros[winograd::kMaxColumns] = {};
    alignas(64) float y[kPixels * winograd::kStagedWeights];
    const std::int64_t begin = run * l_.rows, end = std::min(begin + l_.rows, p_.in_channels_per_group());
    const std::int64_t most = std::min(winograd::kStagedChannels, winograd::kStagedWeights / l_.columns);
    for (std::int64_t channel = begin; channel < end; channel += most) {
      const std::int64_t count = std::min(most, end - channel);
      bool finite = true;
      for (std::int64_t c = 0; c < count; ++c)
        finite &= tile_.output(sums + (channel - begin + c) * l_.columns, l_.sum_stride, kZeros,
                               y + c * kPixels * l_.columns, DType::f32, {0, kTaps * l_.columns, l_.columns});
      if (!finite) finite_ = false;
      write(group, tap, block, {channel, channel + count}, y);
    }
  }

  // y: [channel][tap][column].
  void write(std::int64_t group, std::int64_t tap, std::int64_t block, Range channels, const float* y) const {
    const auto& w = a_.weight;
    const std::int64_t first = block * l_.columns, outputs = std::min(l_.columns, p_.out_channels_per_group() - first);
    with_type(p_.output_dtype, [&](auto zero) {
      using Out = decltype(zero);
      Out* block_begin =
          reinterpret_cast<Out*>(w.data) + group * w.group + first * w.out + tap * w.tap[0] + channels.begin * w.in;
      for (std::int64_t pixel = 0; pixel < kPixels; ++pixel) {
        Out* to = block_begin + pixel / kTaps * w.tap[1] + pixel % kTaps * w.tap[2];
        const float* from = y + pixel * l_.columns;
        if constexpr (std::is_same_v<Out, float>)
          if (w.in == 1) {
            k_.transpose(from, kPixels * l_.columns, outputs, channels.size(), to, w.out);
            continue;
          }
        for (std::int64_t o = 0; o < outputs; ++o)
          for (std::int64_t c = 0; c < channels.size(); ++c) {
            Out& target = to[o * w.out + c * w.in];
            if constexpr (sizeof(Out) == 2)
              target = from_double<Out>(from[c * kPixels * l_.columns + o]);
            else
              target = static_cast<Out>(from[c * kPixels * l_.columns + o]);
          }
      }
    });
  }

  const ConvProblem& p_;
  const Layout& l_;
  const Operands<Device>& a_;
  const winograd::Kernels& k_ = kernels();
  const OuterKernels<float>& products_ = outer_kernels<float>();
  const winograd::TileKernels& tile_ = k_.tiles[shape_index()];
  float* parts_;
  ScratchSlots scratch_;
  std::atomic<bool> finite_{true};
};

class WinogradWeightGradPlan final : public Plan<Device> {
 public:
  WinogradWeightGradPlan(const ConvProblem& p, const Context<Device>& context)
      : p_(p),
        layout_(make_layout(p, context.traits, kernels().lanes, context.workspace_limit_bytes)),
        direct_(context.planner.plan({p, "weight_grad", context.workspace_limit_bytes})) {}

  std::string describe() const override { return "winograd_weight_grad"; }
  std::size_t workspace_bytes() const override { return std::max(layout_.bytes(), direct_->workspace_bytes()); }

  void execute(Device::Stream& stream, const Operands<Device>& operands, std::byte* workspace) const override {
    if (!Execution(p_, layout_, operands, workspace).run()) direct_->execute(stream, operands, workspace);
  }

 private:
  ConvProblem p_;
  Layout layout_;
  std::shared_ptr<const Plan<Device>> direct_;
};

Support supports(const ConvProblem& p, const Context<Device>& context) {
  if (Support s = weight_grad_support(p); !s) return s;
  if (p.input_dilated()) return Support::no("the input is dilated");
  if (p.dtype == DType::f64) return Support::no("its error is too large for float64");
  if (p.precision == Precision::highest) return Support::no("precision highest allows direct sums only");
  for (const int axis : {1, 2}) {
    if (p.kernel[axis] != kTaps || p.stride[axis] != 1 || p.dilation[axis] != 1)
      return Support::no("it needs a 3x3 kernel without stride and dilation along height and width");
    for (const std::int64_t tap : {std::int64_t{0}, kTaps - 1})
      if (2 * outputs_inside(p, axis, tap).size() < p.output[axis])
        return Support::no("some taps sum too few products for its error bound");
  }
  // Errors are those of whole tiles, whatever a sum has of them.
  if (p.batch * p.output_pixels() < kTile * kTile) return Support::no("its sums are too short for its error bound");
  const Layout l = make_layout(p, context.traits, lanes_of(context.traits, DType::f32), context.workspace_limit_bytes);
  if (l.tiles > kMaxTiles) return Support::no("its sums are too long for its error bound");
  return workspace_support("the sums", l.bytes(), context);
}

// Costs beside the products: in multiply-adds counted as two at the peak rate, of each float of a transformed array and
// of each weight; of a chain, its sums in terms; and the sums of parts, written and read.
double seconds(const ConvProblem& p, const Context<Device>& context) {
  constexpr double kShare = 0.8, kTransformFlops = 40, kWeightFlops = 80, kSumTerms = 5;
  const Traits& t = context.traits;
  const Layout l = make_layout(p, t, lanes_of(t, DType::f32), context.workspace_limit_bytes);
  const double tiles = static_cast<double>(l.tiles), rows = static_cast<double>(p.in_channels_per_group());
  const double outputs = static_cast<double>(l.blocks * l.columns), threads = static_cast<double>(t.threads);
  const double floats = tiles * kPoints * static_cast<double>(l.pitch * l.splits + l.blocks * l.columns);
  const double weights = static_cast<double>(p.weight_elements()) / static_cast<double>(p.groups * p.kernel[0]);
  const double terms = tiles * (1 + kSumTerms / static_cast<double>(std::min(l.tiles, kChain)));
  const double flops = 2 * kPoints * terms * (rows + 4) * outputs + kTransformFlops * floats + kWeightFlops * weights;
  const double units = static_cast<double>(l.parts * l.splits), idle = std::ceil(units / threads) * threads / units;
  return static_cast<double>(p.groups * p.kernel[0]) *
         (idle * flops / (kShare * t.f32_flops_per_second) +
          2 * static_cast<double>(l.part_bytes()) / t.shared_cache_bytes_per_second + 2 * t.launch_seconds);
}

}  // namespace
}  // namespace winograd_weight_grad

const Algorithm<Device> kWinogradWeightGrad{"winograd_weight_grad", winograd_weight_grad::supports,
                                            winograd_weight_grad::seconds,
                                            make_plan<winograd_weight_grad::WinogradWeightGradPlan>};

}  // namespace vkconv::cpu
