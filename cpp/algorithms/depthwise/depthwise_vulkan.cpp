// depthwise: one input channel a group, any number of output channels each. No channel is summed with another, so the
// work is bound by memory: every invocation computes a strip of columns for four channels and reads each input column
// of a kernel row once. Any rank, kernel, stride, dilation, padding and size run the same shader, but kernels that fit
// registers walk down the rows instead (depthwise_rows.h). It wins whenever groups == C, but for large filters of one
// channel, which are image_filter's. Source: the direct depthwise kernels of MLX and cuDNN, without their size gates.
#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>

#include "algorithms/depthwise/depthwise_rows.h"
#include "algorithms/registry_vulkan.h"
#include "core/checked.h"
#include "core/planner.h"
#include "vulkan/kernel_params.h"
#include "vulkan/pack_weights.h"

namespace vkconv::vulkan {
namespace {

constexpr std::int64_t kBlockTaps = 48;  // as in depthwise.comp
constexpr std::int64_t kMostTaps = 8, kMostColumns = 8;
constexpr std::int64_t kInvocations = 128;         // a workgroup; every device has them
constexpr std::int64_t kMaxInputColumns = 18;      // in registers, four channels each
constexpr std::int64_t kPackAboveBytes = 1 << 20;  // smaller inputs do not repay a second dispatch

struct Tile {
  std::uint32_t quads, strips, rows;  // of a workgroup
  std::uint32_t columns, taps, stride, dilation;
  std::int32_t column_step;
  std::int64_t input_columns() const { return (columns - 1) * stride + (taps - 1) * dilation + 1; }
};

// The next smaller number of taps that divides kBlockTaps: sums are cut into blocks at the same taps by every tile.
std::uint32_t chunk_below(std::uint32_t taps) {
  do --taps;
  while (kBlockTaps % taps != 0);
  return taps;
}

std::uint32_t power_of_two_below(std::int64_t limit, std::int64_t count) {
  const auto most = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(limit)));
  return narrow(std::min(most, power_of_two_above(count)));
}

// The width of a strip, of at most eight or six outputs, that computes the fewest columns past the edge.
std::uint32_t even_columns(const ConvProblem& p) {
  const std::int64_t most = p.stride[2] > 1 ? 6 : 8;
  if (p.output[2] <= most) return narrow(std::max<std::int64_t>(p.output[2], 1));
  std::int64_t best = most;
  for (std::int64_t c = most - 1; c >= 4; --c)
    if (round_up(p.output[2], c) < round_up(p.output[2], best)) best = c;
  return narrow(best);
}

// A strip of so many columns that takes the taps of a row in chunks, as many at a time as registers hold columns for.
// Columns that stride and dilation both skip are never looked at.
Tile strip_tile(const ConvProblem& p, std::int64_t columns, std::int64_t most_taps) {
  const std::int64_t step = std::gcd(p.stride[2], p.dilation[2]);
  Tile t{};
  t.columns = narrow(columns);
  t.column_step = static_cast<std::int32_t>(step);
  t.stride = static_cast<std::uint32_t>(p.stride[2] / step);
  t.dilation = static_cast<std::uint32_t>(p.dilation[2] / step);
  t.taps = static_cast<std::uint32_t>(std::clamp<std::int64_t>(p.kernel[2], 1, most_taps));
  // The last chunk of such a row would reach the end of a block by some tiles and not by others.
  const bool ragged = p.taps() > kBlockTaps && p.kernel[2] < kBlockTaps && p.kernel[2] > kBlockTaps - kMostTaps;
  const bool near = p.stride[2] <= 8 * step && p.dilation[2] <= 8 * step && !ragged;
  while (near && t.taps > 1 && t.input_columns() > kMaxInputColumns) t.taps = chunk_below(t.taps);
  if (!near || t.taps == 1 || t.input_columns() > kMaxInputColumns) {
    t.taps = t.stride = t.dilation = 1;
    t.column_step = static_cast<std::int32_t>(p.stride[2]);
  }
  return t;
}

// Nanoseconds that an invocation takes for a chunk of taps, and for each input column, tap and product of it; how many
// invocations run as if they were alone on an H200, and others by their rate. Fitted, with kStripsChain, to 336 tiles
// of 14 problems (root mean square of the logarithm's error 0.16).
constexpr double kChunkCost = 12, kColumnCost = 20, kTapCost = 4.4, kProductCost = 18.5, kInvocationsAtOnce = 19300;

double strip_seconds(const ConvProblem& p, const Tile& t, const Traits& traits) {
  const double chunks = double(p.kernel[0] * p.kernel[1]) * double(ceil_div(p.kernel[2], t.taps));
  const double chunk =
      kChunkCost + kColumnCost * double(t.input_columns()) + kTapCost * t.taps + kProductCost * t.columns * t.taps;
  const double rows = double(p.batch) * double(p.output[0]) * double(p.output[1]);
  const double invocations = rows * double(ceil_div(p.output[2], t.columns)) * double(ceil_div(p.out_channels, 4));
  const double at_once = kInvocationsAtOnce * flops_per_second(traits, p.dtype) / kFittedFlopsPerSecond;
  return std::max(1.0, invocations / at_once) * chunks * chunk * 1e-9;
}

Tile best_strip(const ConvProblem& p, const Traits& traits) {
  if (traits.type == DeviceType::software) return strip_tile(p, even_columns(p), kMostTaps);
  Tile best{};
  double best_seconds = 0;
  for (const std::int64_t taps : {kMostTaps, kMostTaps / 2})
    for (std::int64_t columns = std::clamp<std::int64_t>(p.output[2], 1, kMostColumns); columns > 0; --columns) {
      const Tile t = strip_tile(p, columns, taps);
      const double seconds = strip_seconds(p, t, traits);
      if (best.columns == 0 || seconds < best_seconds) best = t, best_seconds = seconds;
    }
  return best;
}

// The workgroup of a strip.
Tile with_workgroup(const ConvProblem& p, Tile t) {
  const std::int64_t quads = ceil_div(p.out_channels, 4), strips = ceil_div(p.output[2], t.columns);
  t.quads = power_of_two_below(8, quads);
  while (t.quads > 4 && round_up(quads, t.quads) * 8 > quads * 9) t.quads /= 2;
  t.rows = power_of_two_below(kInvocations / t.quads, p.output[1]);
  t.rows = std::min(t.rows, 8u);
  t.strips = power_of_two_below(kInvocations / t.quads / t.rows, strips);
  return t;
}

struct Params {
  OperandParams operands;
  GeometryParams geometry;
  std::int32_t multiplier, column_step;
  std::uint32_t quad_groups, strip_groups, row_groups, groups;
};

struct Grid {
  std::int64_t quads, strips, rows, count;
};

Grid grid_of(const ConvProblem& p, const Tile& t) {
  Grid g{ceil_div(ceil_div(p.out_channels, 4), t.quads), ceil_div(ceil_div(p.output[2], t.columns), t.strips),
         ceil_div(p.output[1], t.rows), 0};
  g.count = checked_mul(checked_mul(checked_mul(g.quads, g.strips), checked_mul(g.rows, p.output[0])), p.batch);
  return g;
}

std::int64_t packed_row(const ConvProblem& p) { return round_up(p.out_channels, 4); }

std::size_t packed_bytes(const ConvProblem& p) {
  return static_cast<std::size_t>(p.taps() * packed_row(p)) * size_bytes(p.dtype);
}

// Tap after tap, the output channels of all groups next to each other.
WeightView<Pointer> packed_view(const ConvProblem& p, Pointer data) {
  WeightView<Pointer> w{data};
  w.out = 1;
  w.group = p.out_channels_per_group();
  w.tap[2] = packed_row(p);
  w.tap[1] = w.tap[2] * p.kernel[2];
  w.tap[0] = w.tap[1] * p.kernel[1];
  return w;
}

// Shares of the multiply-add rate, measured: an H200's of rows, those of columns that are not shared, and a
// rasteriser's that gathers every operand lane by lane.
constexpr double kRowsShare = 0.4, kLoneRowsShare = 0.07, kSoftwareRowsShare = 0.125, kSoftwareShare = 0.1;
constexpr double kLoneLoads = 1.8;  // times longer where four channels are not one load
// Seconds of a dispatch besides, from its first load to its last store.
constexpr double kRowsChain = 2e-6, kStripsChain = 6e-6;

double rows_seconds(const ConvProblem& p, const Traits& traits) {
  const double share = traits.type == DeviceType::software ? kSoftwareRowsShare
                       : DepthwiseRows::shares_columns(p)  ? kRowsShare
                                                           : kLoneRowsShare;
  return p.flops() / (share * flops_per_second(traits, p.dtype));
}

double strips_seconds(const ConvProblem& p, const Tile& t, const Traits& traits) {
  if (traits.type != DeviceType::software) return strip_seconds(p, t, traits);
  const auto channels = static_cast<double>(p.out_channels);
  const double used = channels / static_cast<double>(round_up(p.out_channels, 4));  // of each four
  return p.flops() / (kSoftwareShare * used * flops_per_second(traits, p.dtype));
}

struct Choice {
  Tile tile;  // of strips
  Grid grid;
  bool walks_rows;
  double seconds, chain_seconds;  // siblings wait for the latter at the same time
};

// Both kernels add the taps in the same order, so that the batch may decide.
Choice choose(const ConvProblem& p, const Traits& traits) {
  const Tile strip = best_strip(p, traits), tile = with_workgroup(p, strip);
  const bool software = traits.type == DeviceType::software;
  const double in_rows = rows_seconds(p, traits), in_strips = strips_seconds(p, strip, traits);
  const bool rows = DepthwiseRows::supports(p) && in_rows <= in_strips + (software ? 0 : kStripsChain);
  const double memory = p.bytes_moved() / 0.8 / traits.rates.memory_bytes_per_second;
  const double work = std::max(rows ? in_rows : in_strips, memory);
  if (software) return {tile, grid_of(p, tile), rows, work, 0};
  const std::int64_t multiplier = p.out_channels_per_group();
  const bool near = rows ? multiplier % 4 == 0 || 4 % multiplier == 0 : multiplier == 1 || p.dtype == DType::f32;
  const bool fours = p.out_channels % 4 == 0 && near;
  return {tile, grid_of(p, tile), rows, work * (fours ? 1 : kLoneLoads), rows ? kRowsChain : kStripsChain};
}

Choice choice_of(const ConvProblem& p, const Context<Device>& c) {
  return c.planner.remembered({p, "depthwise", 0}, [&] { return choose(p, c.traits); });
}

class DepthwisePlan final : public Plan<Device> {
 public:
  DepthwisePlan(const ConvProblem& p, const Context<Device>& c)
      : p_(p),
        choice_(choice_of(p, c)),
        rows_(choice_.walks_rows ? std::optional<DepthwiseRows>(std::in_place, p, c.traits) : std::nullopt),
        branches_(c.traits.type != DeviceType::software),
        packs_(branches_ && !rows_ && p.bytes_moved() > double(kPackAboveBytes) &&
               packed_bytes(p) <= c.workspace_limit_bytes) {}

  std::string describe() const override { return "depthwise"; }
  std::size_t workspace_bytes() const override { return packs_ ? packed_bytes(p_) : 0; }
  std::size_t prepared_workspace_bytes() const override { return 0; }
  std::string weight_layout() const override { return "depthwise: taps, channels"; }

  std::size_t prepared_bytes() const override { return packed_bytes(p_); }
  PreparedWeights<Device> prepare_in(Pointer to, Stream& stream, const WeightView<Pointer>& weight) const override {
    pack_weights(stream, p_, weight, packed_view(p_, to));
    return {to};
  }

  void execute(Stream& stream, const Operands<Device>& a, Pointer workspace) const override {
    const WeightView<Pointer> weight = a.prepared ? packed_view(p_, a.prepared->data) : a.weight;
    if (rows_) return rows_->run(stream, a, weight, choice_.seconds);
    if (a.prepared) return run(stream, a, weight, true);
    if (!packs_) return run(stream, a, a.weight, false);
    pack_weights(stream, p_, a.weight, packed_view(p_, workspace));
    run(stream, a, packed_view(p_, workspace), true);
  }

 private:
  void run(Stream& stream, const Operands<Device>& a, const WeightView<Pointer>& weight, bool packed) const {
    const Grid& grid = choice_.grid;
    const Params params{operand_params(p_, a, weight),
                        geometry_params(p_),
                        static_cast<std::int32_t>(p_.out_channels_per_group()),
                        choice_.tile.column_step,
                        narrow(grid.quads),
                        narrow(grid.strips),
                        narrow(grid.rows),
                        narrow(grid.count)};
    stream.dispatch(kernel(a, packed), params, stream.linear_groups(grid.count), choice_.seconds);
  }

  Kernel kernel(const Operands<Device>& a, bool packed) const {
    Kernel k{shader_name("depthwise", p_.dtype), epilogue_constants(p_, a)};
    const bool fours = p_.out_channels_per_group() == 1 && aligned_to(4, a.input, p_.in_channels, p_.dtype);
    const bool zeros = p_.input_dilated();
    const Tile& t = choice_.tile;
    for (const std::uint32_t v :
         {t.quads, t.strips, t.rows, t.columns, t.taps, t.stride, t.dilation, std::uint32_t{fours},
          std::uint32_t{packed}, std::uint32_t{zeros}, std::uint32_t{p_.taps() > kBlockTaps}, std::uint32_t{branches_}})
      k.constants.push_back(v);
    return k;
  }

  ConvProblem p_;
  Choice choice_;
  std::optional<DepthwiseRows> rows_;
  bool branches_;
  bool packs_;
};

Support supports(const ConvProblem& p, const Context<Device>& c) {
  if (Support s = forward_support(p); !s) return s;
  if (!p.depthwise()) return Support::no("needs one input channel a group");
  if (Support s = kernel_support(p, c.traits); !s) return s;
  if (Support s = weights_support(p); !s) return s;
  return workgroup_support(choice_of(p, c).grid.count);
}

double seconds(const ConvProblem& p, const Context<Device>& c) {
  const Choice choice = choice_of(p, c);
  return launch_seconds(c) + choice.seconds + choice.chain_seconds / c.siblings;
}

}  // namespace

const Algorithm<Device> kDepthwise{"depthwise", supports, seconds, make_plan<DepthwisePlan>};

}  // namespace vkconv::vulkan
