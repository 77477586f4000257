// depthwise: one input channel a group, any number of output channels each. No channel is summed with another, so the
// work is bound by memory: every invocation computes a strip of columns for four channels and reads each input column
// of a kernel row once. Any rank, kernel, stride, dilation, padding and size run the same shader, but kernels that fit
// registers walk down the rows instead (depthwise_rows.h). It wins whenever groups == C. Source: the direct depthwise
// kernels of MLX and cuDNN, without their size gates.
#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>

#include "algorithms/depthwise/depthwise_rows.h"
#include "algorithms/registry_vulkan.h"
#include "core/checked.h"
#include "vulkan/kernel_params.h"
#include "vulkan/pack_weights.h"

namespace vkconv::vulkan {
namespace {

constexpr std::int64_t kBlockTaps = 49;            // as in depthwise.comp
constexpr std::int64_t kInvocations = 128;         // a workgroup; every device has them
constexpr std::int64_t kMaxInputColumns = 18;      // in registers, four channels each
constexpr std::int64_t kPackAboveBytes = 1 << 20;  // smaller inputs do not repay a second dispatch

struct Tile {
  std::uint32_t quads, strips, rows;  // of a workgroup
  std::uint32_t columns, taps, stride, dilation;
  std::int32_t column_step;
  std::int64_t input_columns() const { return (columns - 1) * stride + (taps - 1) * dilation + 1; }
};

std::uint32_t power_of_two_below(std::int64_t limit, std::int64_t count) {
  const auto most = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(limit)));
  return narrow(std::min(most, power_of_two_above(count)));
}

// The width from 8 down to 4 that computes the fewest columns past the edge; narrow outputs take one strip.
std::uint32_t best_columns(std::int64_t outputs) {
  if (outputs <= 8) return static_cast<std::uint32_t>(std::max<std::int64_t>(outputs, 1));
  std::int64_t best = 8;
  for (std::int64_t c = 7; c >= 4; --c)
    if (round_up(outputs, c) < round_up(outputs, best)) best = c;
  return static_cast<std::uint32_t>(best);
}

// Columns that stride and dilation both skip are never looked at.
void set_column_sharing(Tile& t, const ConvProblem& p) {
  const std::int64_t step = std::gcd(p.stride[2], p.dilation[2]);
  t.stride = static_cast<std::uint32_t>(p.stride[2] / step);
  t.dilation = static_cast<std::uint32_t>(p.dilation[2] / step);
  t.column_step = static_cast<std::int32_t>(step);
  t.taps = static_cast<std::uint32_t>(std::clamp<std::int64_t>(p.kernel[2], 1, 8));
  if (p.stride[2] > 8 * step || p.dilation[2] > 8 * step || t.input_columns() > kMaxInputColumns) {
    t.taps = t.stride = t.dilation = 1;
    t.column_step = static_cast<std::int32_t>(p.stride[2]);
  }
}

Tile choose_tile(const ConvProblem& p) {
  Tile t{};
  t.columns = best_columns(p.output[2]);
  if (p.stride[2] > 1) t.columns = std::min(t.columns, 6u);
  set_column_sharing(t, p);
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

// Shares of the multiply-add rate, measured: an H200's, and a rasteriser's that gathers every operand lane by lane.
constexpr double kRowsShare = 0.4, kShare = 0.04, kSoftwareRowsShare = 0.125, kSoftwareShare = 0.1;

double estimate(const ConvProblem& p, const Traits& traits) {
  const bool rows = DepthwiseRows::supports(p), software = traits.type == DeviceType::software;
  const double share = rows ? (software ? kSoftwareRowsShare : kRowsShare) : (software ? kSoftwareShare : kShare);
  const auto channels = static_cast<double>(p.out_channels);
  const double used = rows ? 1 : channels / static_cast<double>(round_up(p.out_channels, 4));  // of each four
  return std::max(p.flops() / (share * used * flops_per_second(traits, p.dtype)),
                  p.bytes_moved() / 0.8 / traits.rates.memory_bytes_per_second);
}

class DepthwisePlan final : public Plan<Device> {
 public:
  DepthwisePlan(const ConvProblem& p, const Context<Device>& c)
      : p_(p),
        tile_(choose_tile(p)),
        grid_(grid_of(p, tile_)),
        seconds_(estimate(p, c.traits)),
        rows_(DepthwiseRows::supports(p) ? std::optional<DepthwiseRows>(std::in_place, p, c.traits) : std::nullopt),
        branches_(c.traits.type != DeviceType::software),
        packs_(branches_ && !rows_ && p.bytes_moved() > double(kPackAboveBytes) &&
               packed_bytes(p) <= c.workspace_limit_bytes) {}

  std::string describe() const override { return "depthwise"; }
  std::size_t workspace_bytes() const override { return packs_ ? packed_bytes(p_) : 0; }
  std::string weight_layout() const override { return "depthwise: taps, channels"; }

  PreparedWeights<Device> prepare(Stream& stream, const WeightView<Pointer>& weight) const override {
    PreparedWeights<Device> prepared{stream.allocate(packed_bytes(p_)), {}};
    pack_weights(stream, p_, weight, packed_view(p_, prepared.data.pointer()));
    return prepared;
  }

  void execute(Stream& stream, const Operands<Device>& a, Pointer workspace) const override {
    const WeightView<Pointer> weight = a.prepared ? packed_view(p_, a.prepared->data.pointer()) : a.weight;
    if (rows_ && rows_->run(stream, a, weight, seconds_)) return;
    if (a.prepared) return run(stream, a, weight, true);
    if (!packs_) return run(stream, a, a.weight, false);
    stream.barrier();
    pack_weights(stream, p_, a.weight, packed_view(p_, workspace));
    stream.barrier();
    run(stream, a, packed_view(p_, workspace), true);
  }

 private:
  void run(Stream& stream, const Operands<Device>& a, const WeightView<Pointer>& weight, bool packed) const {
    const Params params{operand_params(p_, a, weight),
                        geometry_params(p_),
                        static_cast<std::int32_t>(p_.out_channels_per_group()),
                        tile_.column_step,
                        narrow(grid_.quads),
                        narrow(grid_.strips),
                        narrow(grid_.rows),
                        narrow(grid_.count)};
    stream.dispatch(kernel(a, packed), params, stream.linear_groups(static_cast<std::uint64_t>(grid_.count)), seconds_);
  }

  Kernel kernel(const Operands<Device>& a, bool packed) const {
    Kernel k{shader_name("depthwise", p_.dtype), epilogue_constants(p_, a)};
    const bool fours = p_.out_channels_per_group() == 1 && aligned_to_fours(a.input, p_.in_channels, p_.dtype);
    const bool zeros = p_.input_dilated();
    for (const std::uint32_t v : {tile_.quads, tile_.strips, tile_.rows, tile_.columns, tile_.taps, tile_.stride,
                                  tile_.dilation, std::uint32_t{fours}, std::uint32_t{packed}, std::uint32_t{zeros},
                                  std::uint32_t{p_.taps() > kBlockTaps}, std::uint32_t{branches_}})
      k.constants.push_back(v);
    return k;
  }

  ConvProblem p_;
  Tile tile_;
  Grid grid_;
  double seconds_;
  std::optional<DepthwiseRows> rows_;
  bool branches_;
  bool packs_;
};

Support supports(const ConvProblem& p, const Context<Device>& c) {
  if (Support s = forward_support(p); !s) return s;
  if (!p.depthwise()) return Support::no("needs one input channel a group");
  if (Support s = kernel_support(p, c.traits); !s) return s;
  if (!supports_packing(p)) return Support::no("the weights exceed 2^31 elements");
  return workgroup_support(grid_of(p, choose_tile(p)).count);
}

double seconds(const ConvProblem& p, const Context<Device>& c) {
  return c.traits.rates.launch_seconds + estimate(p, c.traits);
}

}  // namespace

const Algorithm<Device> kDepthwise{"depthwise", supports, seconds, make_plan<DepthwisePlan>};

}  // namespace vkconv::vulkan
