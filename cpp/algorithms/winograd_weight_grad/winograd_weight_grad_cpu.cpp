// winograd_weight_grad: the weight gradient of 3x3 kernels through fewer products. A tile of 4x4 output gradients is a
// 4x4 kernel over the 6x6 inputs under it whose 3x3 results are the gradients of the taps: F(3x3, 4x4) of winograd
// (Lavin and Gray 2015). All tiles are summed in the transform domain, where a tile takes 36 products a pair of
// channels instead of 144, and one inverse transform follows.
// It wins where pixels are many beside the weights. Taps of the depth axis, of any stride and dilation, are summed one
// after another. What is not finite is computed again by weight_grad.
#include <atomic>

#include "algorithms/registry_cpu.h"
#include "algorithms/winograd/winograd_execution.h"
#include "core/checked.h"
#include "core/dispatch.h"
#include "core/planner.h"
#include "cpu/thread_pool.h"

namespace vkconv::cpu {
namespace winograd_weight_grad {
namespace {
using winograd::kernels;
using winograd::odd_lines;

constexpr std::int64_t kTaps = 3, kTile = 4, kPoints = 36, kPointsAxis = 6;
constexpr std::int64_t kChain = 64;            // tiles summed in registers
constexpr std::int64_t kMaxTiles = 1 << 20;    // of longer sums the rounding of the running sums would show
constexpr std::int64_t kChunkBytes = 4 << 20;  // of transformed tiles between two sections
constexpr std::int64_t kTilesATask = 8;
constexpr std::int64_t kCopiedChannels = 64;  // at a time
constexpr std::int64_t kChannelsATask = 16;

constexpr std::size_t shape_index() {
  std::size_t i = 0;
  while (winograd::kTileShapes[i].mh != kTaps || winograd::kTileShapes[i].rh != kTile) ++i;
  return i;
}

// Sizes for one group. Transformed inputs are [point][tile][channel], output gradients [block][point][tile][column],
// sums [block][point][channel][column].
struct Layout {
  std::int64_t columns, blocks, pitch, tiles_h, tiles_w, tiles, chunk;
  std::int64_t input_stride, gradient_stride, sum_stride;  // of a point
  std::int64_t input_floats() const { return kPoints * input_stride; }
  std::int64_t gradient_floats() const { return blocks * kPoints * gradient_stride; }
  std::int64_t sum_floats() const { return blocks * kPoints * sum_stride; }
  std::size_t bytes() const {
    return static_cast<std::size_t>(input_floats() + gradient_floats() + sum_floats()) * sizeof(float);
  }
};

Layout make_layout(const ConvProblem& p, std::int64_t lanes, std::size_t limit_bytes) {
  Layout l{};
  l.columns = 2 * lanes;
  l.blocks = ceil_div(p.out_channels_per_group(), l.columns);
  l.pitch = round_up(p.in_channels_per_group(), lanes);
  l.tiles_h = ceil_div(p.output[1], kTile);
  l.tiles_w = ceil_div(p.output[2], kTile);
  l.tiles = p.batch * p.output[0] * l.tiles_h * l.tiles_w;
  l.sum_stride = odd_lines(p.in_channels_per_group() * l.columns);
  const std::int64_t tile_bytes = kPoints * (l.pitch + l.blocks * l.columns) * static_cast<std::int64_t>(sizeof(float));
  l.chunk = kChain * std::clamp<std::int64_t>(kChunkBytes / (kChain * tile_bytes), 1, ceil_div(l.tiles, kChain));
  for (;; l.chunk -= kChain) {  // whole chains, so that the size of a chunk does not change the bits
    l.input_stride = odd_lines(l.chunk * l.pitch);
    l.gradient_stride = odd_lines(l.chunk * l.columns);
    if (l.chunk == kChain || l.bytes() <= limit_bytes) return l;
  }
}

class Execution {
 public:
  Execution(const ConvProblem& p, const Layout& l, const Operands<Device>& operands, std::byte* workspace)
      : p_(p),
        l_(l),
        a_(operands),
        input_(reinterpret_cast<float*>(workspace)),
        gradient_(input_ + l.input_floats()),
        sums_(gradient_ + l.gradient_floats()) {}

  // False: some gradients are infinite or NaN.
  bool run() {
    for (std::int64_t group = 0; group < p_.groups; ++group)
      for (std::int64_t tap = 0; tap < p_.kernel[0]; ++tap) {
        for (std::int64_t first = 0; first < l_.tiles; first += l_.chunk) {
          const std::int64_t tiles = std::min(l_.chunk, l_.tiles - first);
          thread_pool().run(ceil_div(tiles, kTilesATask), [&](std::int64_t task) {
            for (std::int64_t t = task * kTilesATask; t < std::min(tiles, (task + 1) * kTilesATask); ++t)
              transform(group, tap, first + t, t);
          });
          thread_pool().run(kPoints * l_.blocks,
                            [&](std::int64_t task) { multiply(task / l_.blocks, task % l_.blocks, tiles, first > 0); });
        }
        const std::int64_t runs = ceil_div(p_.in_channels_per_group(), kChannelsATask);
        thread_pool().run(l_.blocks * runs,
                          [&](std::int64_t task) { finish(group, tap, task / runs, task % runs * kChannelsATask); });
      }
    return finite_;
  }

 private:
  using Pair = std::array<std::int64_t, 2>;  // along H and W

  // Tile `index` of all, to place `t` of the chunk. A depth tap on padding adds nothing.
  void transform(std::int64_t group, std::int64_t tap, std::int64_t index, std::int64_t t) const {
    const std::int64_t w = index % l_.tiles_w * kTile, h = index / l_.tiles_w % l_.tiles_h * kTile;
    const std::int64_t slice = index / (l_.tiles_w * l_.tiles_h), d = slice % p_.output[0], n = slice / p_.output[0];
    const std::int64_t input_d = d * p_.stride[0] + tap * p_.dilation[0] - p_.pad_lo[0];
    const bool inside = input_d >= 0 && input_d < p_.input[0];
    const std::int64_t in = p_.in_channels_per_group(), out = p_.out_channels_per_group();
    const auto& x = a_.input;
    const auto& dy = a_.output;
    alignas(64) float copy[kPoints * kCopiedChannels];
    for (std::int64_t c = 0; c < in; c += kCopiedChannels) {
      const std::int64_t count = std::min(kCopiedChannels, in - c), padded = round_up(count, k_.lanes);
      copy_pixels(x.data, n * x.stride[0] + input_d * x.stride[1] + group * in + c, {x.stride[2], x.stride[3]},
                  {h - p_.pad_lo[1], w - p_.pad_lo[2]}, {inside ? p_.input[1] : 0, p_.input[2]}, kPointsAxis, count,
                  padded, copy);
      tile_.input(copy, kPointsAxis * padded, padded, padded, input_ + t * l_.pitch + c, l_.input_stride);
    }
    for (std::int64_t block = 0; block < l_.blocks; ++block) {
      const std::int64_t o = block * l_.columns;
      copy_pixels(dy.data, n * dy.stride[0] + d * dy.stride[1] + group * out + o, {dy.stride[2], dy.stride[3]}, {h, w},
                  {inside ? p_.output[1] : 0, p_.output[2]}, kTile, std::min(l_.columns, out - o), l_.columns, copy);
      tile_.weight(copy, 1, gradient_ + block * kPoints * l_.gradient_stride + t * l_.columns, l_.gradient_stride);
    }
  }

  // `size` x `size` pixels from position `first` on, zeros outside of `extent`, as [pixel][padded].
  void copy_pixels(const std::byte* data, std::int64_t offset, const Pair& stride, const Pair& first,
                   const Pair& extent, std::int64_t size, std::int64_t channels, std::int64_t padded, float* to) const {
    const auto inside = [&](std::size_t axis) {
      return Range{std::clamp<std::int64_t>(-first[axis], 0, size),
                   std::clamp<std::int64_t>(extent[axis] - first[axis], 0, size)};
    };
    const Range h = inside(0), w = inside(1);
    if (channels < padded || h.size() < size || w.size() < size) std::fill_n(to, size * size * padded, 0.0f);
    if (h.size() == 0 || w.size() == 0) return;
    const std::int64_t at = offset + (first[0] + h.begin) * stride[0] + (first[1] + w.begin) * stride[1];
    k_.stage_pixels({data + at * static_cast<std::int64_t>(size_bytes(p_.dtype)), p_.dtype, stride[0], stride[1],
                     h.size(), w.size(), channels, to + (h.begin * size + w.begin) * padded, size * padded, padded});
  }

  // The products of a chunk at one point, or adds them: every tile is one term, a row of inputs by a row of gradients.
  void multiply(std::int64_t point, std::int64_t block, std::int64_t tiles, bool accumulate) const {
    const std::int64_t in = p_.in_channels_per_group(), row_blocks = ceil_div(in, k_.max_rows);
    const float* input = input_ + point * l_.input_stride;
    const float* gradient = gradient_ + (block * kPoints + point) * l_.gradient_stride;
    GemmSlice<float> slices[kChain];
    for (std::int64_t first = 0; first < tiles; first += kChain) {
      const std::int64_t count = std::min(kChain, tiles - first);
      for (std::int64_t t = 0; t < count; ++t)
        slices[t] = {input + (first + t) * l_.pitch, gradient + (first + t) * l_.columns};
      GemmTile<float> tile{slices, count, 1, 1, sums_ + (block * kPoints + point) * l_.sum_stride, l_.columns};
      for (std::int64_t i = 0, row = 0; i < row_blocks; ++i) {
        const std::int64_t rows = in * (i + 1) / row_blocks - row;
        k_.gemm(tile, rows, accumulate || first > 0);
        row += rows;
        tile.c += rows * l_.columns;
        for (std::int64_t t = 0; t < count; ++t) slices[t].a += rows;
      }
    }
  }

  // The taps of some input channels with one block of output channels.
  void finish(std::int64_t group, std::int64_t tap, std::int64_t block, std::int64_t channel) {
    constexpr std::int64_t kPixels = kTaps * kTaps;
    alignas(64) static constexpr float kZeros[winograd::kMaxColumns] = {};
    alignas(64) float y[kChannelsATask * kPixels * winograd::kMaxColumns];
    const std::int64_t in = p_.in_channels_per_group(), count = std::min(kChannelsATask, in - channel);
    bool finite = true;
    for (std::int64_t c = 0; c < count; ++c)
      finite &= tile_.output(sums_ + block * kPoints * l_.sum_stride + (channel + c) * l_.columns, l_.sum_stride,
                             kZeros, y + c * kPixels * l_.columns, kTaps * l_.columns, l_.columns);
    if (!finite) finite_ = false;
    const auto& w = a_.weight;
    const std::int64_t first = block * l_.columns, outputs = std::min(l_.columns, p_.out_channels_per_group() - first);
    with_type(p_.output_dtype, [&](auto zero) {
      using Out = decltype(zero);
      Out* to = reinterpret_cast<Out*>(w.data) + group * w.group + first * w.out + tap * w.tap[0] + channel * w.in;
      for (std::int64_t o = 0; o < outputs; ++o)
        for (std::int64_t pixel = 0; pixel < kPixels; ++pixel) {
          Out* at = to + o * w.out + pixel / kTaps * w.tap[1] + pixel % kTaps * w.tap[2];
          const float* from = y + pixel * l_.columns + o;
          for (std::int64_t c = 0; c < count; ++c, at += w.in, from += kPixels * l_.columns)
            if constexpr (sizeof(Out) == 2)
              *at = from_double<Out>(*from);
            else
              *at = static_cast<Out>(*from);
        }
    });
  }

  const ConvProblem& p_;
  const Layout& l_;
  const Operands<Device>& a_;
  const winograd::Kernels& k_ = kernels();
  const winograd::TileKernels& tile_ = k_.tiles[shape_index()];
  float *input_, *gradient_, *sums_;
  std::atomic<bool> finite_{true};
};

class WinogradWeightGradPlan final : public Plan<Device> {
 public:
  WinogradWeightGradPlan(const ConvProblem& p, const Context<Device>& context)
      : p_(p),
        layout_(make_layout(p, kernels().lanes, context.workspace_limit_bytes)),
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

std::int64_t lanes_of(const Traits& t) { return t.vector_bytes / static_cast<std::int64_t>(sizeof(float)); }

Support supports(const ConvProblem& p, const Context<Device>& context) {
  if (p.pass != Pass::weight_grad) return Support::no("it computes the weight gradient only");
  if (p.weight_elements() == 0 || p.output_elements() == 0) return Support::no("there is nothing to sum");
  if (p.input_dilation != Extent3{1, 1, 1}) return Support::no("the input is dilated");
  if (p.dtype == DType::f64) return Support::no("its error is too large for float64");
  if (p.precision == Precision::highest) return Support::no("precision highest allows direct sums only");
  for (const int axis : {1, 2}) {
    if (p.kernel[axis] != kTaps || p.stride[axis] != 1 || p.dilation[axis] != 1)
      return Support::no("it needs a 3x3 kernel without stride and dilation along height and width");
    for (const std::int64_t tap : {std::int64_t{0}, kTaps - 1})
      if (2 * outputs_inside(p, axis, tap).size() < p.output[axis])
        return Support::no("some taps sum too few products for its error bound");
  }
  const Layout l = make_layout(p, lanes_of(context.traits), context.workspace_limit_bytes);
  if (l.tiles > kMaxTiles) return Support::no("its sums are too long for its error bound");
  if (l.bytes() > context.workspace_limit_bytes)
    return Support::no("its sums take " + std::to_string(l.bytes()) + " bytes of workspace");
  return Support::yes();
}

// Costs beside the products: in multiply-adds counted as two at the peak rate, of each float of a transformed array and
// of each weight; and the sums, written, added to and read.
double seconds(const ConvProblem& p, const Context<Device>& context) {
  constexpr double kShare = 0.7, kTransformFlops = 30, kWeightFlops = 60, kSumPasses = 3;
  const Layout l = make_layout(p, lanes_of(context.traits), context.workspace_limit_bytes);
  const double tiles = static_cast<double>(l.tiles), rows = static_cast<double>(p.in_channels_per_group());
  const double pairs = rows * static_cast<double>(l.blocks * l.columns);
  const double floats = tiles * kPoints * static_cast<double>(l.pitch + l.blocks * l.columns);
  const double weights = static_cast<double>(p.weight_elements()) / static_cast<double>(p.groups * p.kernel[0]);
  const double flops = 2 * kPoints * tiles * pairs * (1 + 4 / rows) + kTransformFlops * floats + kWeightFlops * weights;
  const Traits& t = context.traits;
  const double sum_bytes = static_cast<double>(l.sum_floats()) * sizeof(float);
  const double sum_rate =
      2 * sum_bytes > static_cast<double>(t.l3_bytes) ? t.memory_bytes_per_second : t.shared_cache_bytes_per_second;
  const double sections = 1 + 2 * std::ceil(tiles / static_cast<double>(l.chunk));
  return static_cast<double>(p.groups * p.kernel[0]) *
         (flops / (kShare * t.f32_flops_per_second) + kSumPasses * sum_bytes / sum_rate + sections * t.launch_seconds);
}

}  // namespace
}  // namespace winograd_weight_grad

const Algorithm<Device> kWinogradWeightGrad{
    "winograd_weight_grad", winograd_weight_grad::supports, winograd_weight_grad::seconds,
    [](const ConvProblem& p, const Context<Device>& context) -> std::shared_ptr<const Plan<Device>> {
      return std::make_shared<winograd_weight_grad::WinogradWeightGradPlan>(p, context);
    }};

}  // namespace vkconv::cpu
