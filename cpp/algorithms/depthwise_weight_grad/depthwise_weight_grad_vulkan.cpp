// depthwise_weight_grad: the weight gradient of a convolution with one input channel a group. Its gradient has few
// elements, each a sum over all output pixels of one channel: every invocation sums a few taps of four or eight
// channels over strips of outputs, chunks of strips are summed apart, and their sums are added in order. Memory bounds
// it for small kernels, multiply-adds for those of 25 taps and more. It wins whenever groups == C. Source: our own.
#include <algorithm>
#include <bit>

#include "algorithms/registry_vulkan.h"
#include "algorithms/weight_grad/chunk_sums.h"
#include "algorithms/weight_grad/weight_grad_support.h"
#include "core/checked.h"
#include "core/geometry.h"

namespace vkconv::vulkan {
namespace {

// Of an invocation: taps of a row, sums, and columns of all its input rows. Wide strips are for problems that fill a
// GPU with them, but not for kernels of one row, which wait for memory only.
constexpr std::int64_t kMostTaps = 8, kMostSums = 9, kMostInputs = 30, kColumns = 4, kWideColumns = 8;
// Of a workgroup. Rows under each other are read again from the first-level cache, which narrow ones leave longer.
constexpr std::int64_t kVectors = 4, kInvocations = 128;
constexpr std::int64_t kEnoughWorkgroups = 4 * kProcessors;
constexpr std::int64_t kMinStrips = 4;     // of an invocation, whose sums are added at the end
constexpr std::int64_t kBlockStrips = 32;  // as in the shader

struct Tile {
  std::uint32_t columns, rows, taps, stride, dilation;  // of an invocation; as in the shader
  std::uint32_t fours;                                  // of output channels, of an invocation
  std::uint32_t vectors, parts;                         // of a workgroup: invocations' channels, and strips at a time
  std::uint32_t group_size() const { return vectors * parts; }
};

struct Grid {
  std::int64_t vectors, pieces;  // workgroups beside each other
  std::int64_t strips, chunks, chunk_strips;
  std::int64_t count() const { return vectors * pieces * chunks; }
};

std::int64_t strips_of(const ConvProblem& p, std::int64_t columns) {
  return p.batch * p.output[0] * p.output[1] * ceil_div(p.output[2], columns);
}

// The strip of at most so many outputs that computes the fewest past the row.
std::int64_t even_columns(const ConvProblem& p, std::int64_t most) {
  std::int64_t best = std::min(p.output[2], most);
  for (std::int64_t c = best - 1; c >= kColumns; --c)
    if (round_up(p.output[2], c) < round_up(p.output[2], best)) best = c;
  return best;
}

bool wide_strips_fill(const ConvProblem& p) {
  const std::int64_t invocations = strips_of(p, kWideColumns) / kMinStrips * ceil_div(p.out_channels, 4);
  return p.kernel[1] > 1 && invocations >= kProcessors * kInvocations;
}

Tile invocation_tile(const ConvProblem& p, const Traits& traits) {
  const bool small = wants_small_tile(p, traits);
  const std::int64_t stride = dense_stride(p, 2), dilation = dense_step(p, 2);
  std::int64_t columns = small ? 1 : even_columns(p, wide_strips_fill(p) ? kWideColumns : kColumns);
  std::int64_t taps = even_part(p.kernel[2], kMostTaps);
  const std::int64_t rows = small ? 1 : even_part(p.kernel[1], std::max<std::int64_t>(1, kMostSums / taps));
  const auto inputs = [&] { return rows * ((columns - 1) * stride + (taps - 1) * dilation + 1); };
  if (inputs() > kMostInputs) columns = std::min(columns, kColumns);
  while (inputs() > kMostInputs && columns > 1) columns = ceil_div(columns, 2);
  while (inputs() > kMostInputs && taps > 1) taps = ceil_div(taps, 2);
  return {narrow(columns), narrow(rows), narrow(taps), narrow(stride), narrow(dilation), 1, 0, 0};
}

Tile choose_tile(const ConvProblem& p, const Traits& traits) {
  const auto most = [](std::int64_t limit, std::int64_t count) {
    return narrow(
        std::min<std::int64_t>(limit, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(count)))));
  };
  Tile t = invocation_tile(p, traits);
  // A row of taps has few sums; others fill the registers, and take 1.1 to 1.3 times as long.
  const bool halves = size_bytes(p.dtype) == 2, dense = p.out_channels_per_group() == 1 && p.out_channels % 8 == 0;
  if (halves && dense && t.rows == 1 && !wants_small_tile(p, traits)) t.fours = 2;
  t.vectors = most(kVectors, ceil_div(p.out_channels, 4 * t.fours));
  t.parts = most((p.dtype == DType::f64 ? kInvocations / 2 : kInvocations) / t.vectors, strips_of(p, t.columns));
  return t;
}

// Of a chunk: an invocation has loop iterations for them, and for each of its sums by parts and by the definition.
std::int64_t most_chunk_strips(const Tile& t) {
  const std::int64_t sums = t.rows * ceil_div(std::int64_t{t.taps} * t.vectors * 4, t.group_size()) * t.fours;
  return std::max<std::int64_t>(1, (kSoftwareLoopIterations - sums * (t.parts + 2)) / (sums * t.columns + 1));
}

Grid make_grid(const ConvProblem& p, const Tile& t, const Traits& traits) {
  Grid g{};
  g.vectors = ceil_div(p.out_channels, 4 * t.fours * t.vectors);
  g.pieces = p.kernel[0] * ceil_div(p.kernel[1], t.rows) * ceil_div(p.kernel[2], t.taps);
  g.strips = strips_of(p, t.columns);
  const std::int64_t most = ceil_div(g.strips, t.parts * kMinStrips);
  g.chunks = kEnoughWorkgroups / checked_mul(g.vectors, g.pieces);
  if (t.rows == 1 && g.chunks > 1) g.chunks *= 2;  // fewer loads of an invocation are under way
  g.chunks = std::clamp<std::int64_t>(g.chunks, 1, most);
  if (traits.type == DeviceType::software) g.chunks = std::max(g.chunks, ceil_div(g.strips, most_chunk_strips(t)));
  g.chunk_strips = ceil_div(g.strips, g.chunks);
  g.chunks = ceil_div(g.strips, g.chunk_strips);
  return g;
}

std::size_t chunk_bytes(const ConvProblem& p, const Grid& g) {
  if (g.chunks == 1) return 0;
  return static_cast<std::size_t>(g.chunks * p.weight_elements()) * size_bytes(accumulator(p.dtype));
}

class DepthwiseWeightGradPlan final : public Plan<Device> {
 public:
  DepthwiseWeightGradPlan(const ConvProblem& p, const Context<Device>& c)
      : p_(p), tile_(choose_tile(p, c.traits)), grid_(make_grid(p, tile_, c.traits)) {}

  std::string describe() const override { return "depthwise_weight_grad"; }
  std::size_t workspace_bytes() const override { return chunk_bytes(p_, grid_); }

  void execute(Stream& stream, const Operands<Device>& a, Pointer workspace) const override {
    WeightGradParams params = weight_grad_params(p_, a, workspace);
    params.pixels = narrow(grid_.strips);
    params.chunk_pixels = narrow(grid_.chunk_strips);
    params.chunks = narrow(grid_.chunks);
    params.tiles_k = narrow(grid_.pieces);
    params.tile_count = narrow(grid_.vectors * grid_.pieces);
    stream.dispatch(kernel(a), params, stream.linear_groups(grid_.count()));
    if (grid_.chunks == 1) return;
    // In the workspace a group's gradient is a tile.
    params.tiles_o = params.tiles_k = 1;
    params.tile_count = narrow(p_.groups);
    add_chunks(stream, p_, params, params.group_out, params.columns);
  }

 private:
  Kernel kernel(const Operands<Device>& a) const {
    const Tile& t = tile_;
    const bool fours = p_.out_channels_per_group() == 1 && aligned_to(4, a.input, p_.in_channels, p_.dtype);
    const bool grad_fours = aligned_to(4, a.output, p_.out_channels, p_.dtype);
    const bool eights = t.fours == 2 && fours && grad_fours && aligned_to(8, a.input, p_.in_channels, p_.dtype) &&
                        aligned_to(8, a.output, p_.out_channels, p_.dtype);
    const bool blocks = ceil_div(grid_.chunk_strips, t.parts) > kBlockStrips;
    const bool zeros = has_padding(p_) || p_.output[2] % t.columns != 0;
    return {shader_name("depthwise_weight_grad", p_.dtype),
            {t.group_size(), p_.output_dtype != p_.dtype, t.vectors, t.columns, t.rows, t.taps, t.stride, t.dilation,
             fours, grad_fours, zeros, grid_.chunks > 1, p_.input_dilated(), blocks, t.fours, eights}};
  }

  ConvProblem p_;
  Tile tile_;
  Grid grid_;
};

Support supports(const ConvProblem& p, const Context<Device>& c) {
  if (Support s = weight_grad_support(p); !s) return s;
  if (!p.depthwise()) return Support::no("needs one input channel a group");
  if (Support s = kernel_support(p, c.traits); !s) return s;
  if (Support s = pixels_support(p); !s) return s;
  if (Support s = weights_support(p); !s) return s;
  const Grid g = make_grid(p, choose_tile(p, c.traits), c.traits);
  if (Support s = workgroup_support(g.count()); !s) return s;
  return workspace_support("the sums of chunks", chunk_bytes(p, g), c);
}

// Seconds of an invocation: of a strip, of each load of four channels, and of each part whose sum of a row of taps it
// adds; loads in place of one where channels come one by one, or eight together; invocations that an H200 runs as if
// they were alone, and other GPUs by their rate. Fitted to 80 layers (root mean square of the logarithm's error 0.26).
constexpr double kStripSeconds = 2.5e-7, kLoadSeconds = 5.5e-8, kPartSeconds = 2.8e-8;
constexpr double kLoneLoads = 3.5, kEightLoad = 1.6, kInvocationsAtOnce = 37'000;
constexpr double kBandwidth = 0.6, kSoftwareRate = 0.1;  // shares of memory's rate, and of a rasteriser's multiply-adds

double software_seconds(const ConvProblem& p, const Traits& traits) {
  const double used = double(p.out_channels) / double(round_up(p.out_channels, 4));
  return p.flops() / (kSoftwareRate * used * flops_per_second(traits, p.dtype));
}

double gpu_seconds(const ConvProblem& p, const Traits& traits) {
  const Tile t = choose_tile(p, traits);
  const Grid g = make_grid(p, t, traits);
  const double strips = double(ceil_div(g.chunk_strips, t.parts));
  const double input_loads = t.rows * ((t.columns - 1) * t.stride + (t.taps - 1) * t.dilation + 1.0);
  const double fours = t.fours == 2 ? kEightLoad : 1;
  const double loads = input_loads * (p.out_channels_per_group() == 1 && p.in_channels % 4 == 0 ? fours : kLoneLoads) +
                       t.columns * (p.out_channels % 4 == 0 ? fours : kLoneLoads);
  const double invocation = strips * (kStripSeconds + loads * kLoadSeconds) + double(t.rows * t.parts) * kPartSeconds;
  const double at_once = kInvocationsAtOnce * flops_per_second(traits, p.dtype) / kFittedFlopsPerSecond;
  return invocation * std::max(1.0, double(g.count() * t.group_size()) / at_once);
}

double seconds(const ConvProblem& p, const Context<Device>& c) {
  const double work = c.traits.type == DeviceType::software ? software_seconds(p, c.traits) : gpu_seconds(p, c.traits);
  const double memory = p.bytes_moved() / (kBandwidth * c.traits.rates.memory_bytes_per_second);
  return 2 * c.traits.rates.launch_seconds + std::max(work, memory);
}

}  // namespace

const Algorithm<Device> kDepthwiseWeightGrad{"depthwise_weight_grad", supports, seconds,
                                             make_plan<DepthwiseWeightGradPlan>};

}  // namespace vkconv::vulkan
