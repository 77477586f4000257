// unfold_gemm: the input is unfolded, tile by tile, into a matrix whose rows are the windows of output pixels, and
// multiplied by the weights. The tile is as many rows as the workspace limit allows, so that any limit that holds one
// row is honoured and the result is the same, bit for bit, for all of them. It covers every forward problem, dilated
// inputs included, and is fast where windows are short and irregular; it loses to implicit_gemm, which reads the same
// values in place. Source: MLX pull request 3084 (row-tiled unfolding).
#include <algorithm>
#include <memory>
#include <string>

#include "algorithms/registry_cpu.h"
#include "algorithms/unfold_gemm/unfold.h"
#include "core/checked.h"
#include "cpu/estimates.h"
#include "cpu/gemm_kernels.h"

namespace vkconv::cpu {
namespace {

constexpr std::int64_t kTileBytes = 256 << 10;  // of unfolded rows: half of a usual L2
constexpr std::int64_t kMinTileRows = 56, kMaxTileRows = 448;
constexpr std::int64_t kPackTerms = 1024;

class UnfoldPlan final : public Plan<Device> {
 public:
  explicit UnfoldPlan(UnfoldLayout layout) : layout_(std::move(layout)) {}
  std::string describe() const override { return "unfold_gemm"; }
  std::size_t workspace_bytes() const override { return layout_.workspace_bytes(); }
  std::string weight_layout() const override { return "unfold_panels" + std::to_string(layout_.columns); }
  std::size_t prepared_bytes() const override { return layout_.packed_bytes(); }
  PreparedWeights<Device> prepare_in(std::byte* to, Device::Stream&,
                                     const WeightView<std::byte*>& weight) const override {
    pack_unfold(layout_, weight, to);
    return {to};
  }
  void execute(Device::Stream&, const Operands<Device>& operands, std::byte* workspace) const override {
    run_unfold(layout_, operands, workspace);
  }

 private:
  UnfoldLayout layout_;
};

Support supports(const ConvProblem& p, const Context<Device>& c) {
  if (Support s = forward_support(p); !s) return s;
  const UnfoldLayout s = unfold_layout(p, c, register_tile(c.traits, p.dtype));
  return workspace_support("one unfolded row and a block of weights", s.workspace_bytes(), c);
}

// Measured: unfolding one value (a copy inside the cache, and its share of the index arithmetic); one row of one panel
// on its way out; the product's share of the peak rate, and the rows of a tile from which it has that.
constexpr double kUnfoldSeconds = 0.15e-9, kRowSeconds = 45e-9, kProductShare = 0.65, kRowsForPeak = 5;

double seconds(const ConvProblem& p, const Context<Device>& c) {
  const UnfoldLayout s = unfold_layout(p, c, register_tile(c.traits, p.dtype));
  const double values = static_cast<double>(s.rows * p.groups) * static_cast<double>(s.terms);
  const double height = std::min(1.0, static_cast<double>(s.tile_rows) / kRowsForPeak);
  const double rate = kProductShare * height * flops_per_second(c.traits, accumulator(p.dtype));
  const std::int64_t tiles = ceil_div(s.rows, s.tile_rows), tasks = tiles * p.groups, threads = c.traits.threads;
  // Every tile reads the panels of its group again.
  const double panel_bytes = static_cast<double>(tiles) * static_cast<double>(s.packed_bytes());
  const bool in_l2 = 2 * s.packed_bytes() / static_cast<std::size_t>(p.groups) <= c.traits.l2_bytes;
  const double panel_rate = in_l2 ? c.traits.cache_bytes_per_second : c.traits.shared_cache_read_bytes_per_second;
  const double product =
      partly_hidden(2 * values * static_cast<double>(s.panels * s.columns) / rate, panel_bytes / panel_rate);
  const double packs = s.shared_weights ? 1 : static_cast<double>(tiles);
  // Packed weights that L3 does not hold are written to memory and read from there.
  const bool in_l3 = s.packed_bytes() <= c.traits.l3_bytes;
  const double far = in_l3 ? c.traits.shared_cache_bytes_per_second : c.traits.memory_bytes_per_second;
  const double packing = kWeightShare * packs * static_cast<double>(p.weight_elements()) *
                         (8 / c.traits.cache_bytes_per_second + 12 / far) *
                         uneven_share(c.traits, s.shared_weights ? p.groups * s.panels : tasks);
  const double handing = s.shared_weights ? kWeightShare * handing_over_seconds(c.traits, p.weight_elements()) : 0;
  const double moving = values * kUnfoldSeconds + static_cast<double>(s.rows * p.groups * s.panels) * kRowSeconds;
  const double work =
      packing + handing + uneven_share(c.traits, tasks) * (product + moving / static_cast<double>(threads));
  return c.traits.launch_seconds + section_seconds(c.traits, work, p.bytes_moved());
}

std::shared_ptr<const Plan<Device>> make(const ConvProblem& p, const Context<Device>& c) {
  return std::make_shared<UnfoldPlan>(unfold_layout(p, c, register_tile(accumulator(p.dtype))));
}

// Vectors of a panel, of which all are computed: the fastest, unless they are a tenth more than those of two.
std::int64_t panel_vectors(std::int64_t channels, RegisterTile tile) {
  if (channels <= tile.lanes) return 1;
  const std::int64_t most = tile.vectors(ceil_div(channels, tile.lanes)),
                     columns = round_up(channels, most * tile.lanes);
  return 10 * columns <= 11 * round_up(channels, 2 * tile.lanes) ? most : 2;
}

}  // namespace

AxisTaps::AxisTaps(const ConvProblem& p, int axis_index) {
  const auto axis = static_cast<std::size_t>(axis_index);
  stride_ = p.stride[axis], dilation_ = p.dilation[axis], input_dilation_ = p.input_dilation[axis];
  pad_lo_ = p.pad_lo[axis], kernel_ = p.kernel[axis], input_ = p.input[axis];
  taps_ = Congruence(dilation_, input_dilation_);
}

MetTaps AxisTaps::at(std::int64_t o) const {
  MetTaps t;
  const std::int64_t base = o * stride_ - pad_lo_, step = taps_.period(), smallest = taps_.least(-base);
  if (smallest < 0 || smallest >= kernel_) return t;
  t.step = step;
  t.advance = step * dilation_ / input_dilation_;
  t.first = smallest;
  if (base + smallest * dilation_ < 0) t.first += ceil_div(-(base + smallest * dilation_), step * dilation_) * step;
  t.element = (base + t.first * dilation_) / input_dilation_;
  if (t.element >= input_) return {};
  t.end = std::min(kernel_, t.first + ((input_ - 1 - t.element) / t.advance) * step + 1);
  return t;
}

std::int64_t UnfoldLayout::slot_elements() const {
  return round_up(checked_add(checked_mul(tile_rows, checked_add(terms, columns)), pack_terms * columns), 64);
}
std::size_t UnfoldLayout::packed_bytes() const {
  return static_cast<std::size_t>(round_up(checked_mul(p.groups * panels * columns, terms), 64)) * accumulator_bytes();
}
std::size_t UnfoldLayout::workspace_bytes() const {
  const std::size_t slot = static_cast<std::size_t>(slot_elements()) * accumulator_bytes();
  return slot * static_cast<std::size_t>(slots) + (shared_weights ? packed_bytes() : 0);
}

UnfoldLayout unfold_layout(const ConvProblem& p, const Context<Device>& context, RegisterTile tile) {
  UnfoldLayout s;
  s.p = p;
  for (int axis = 0; axis < 3; ++axis) s.taps[static_cast<std::size_t>(axis)] = AxisTaps(p, axis);
  s.lanes = tile.lanes;
  s.columns = panel_vectors(p.out_channels_per_group(), tile) * tile.lanes;
  s.panels = ceil_div(p.out_channels_per_group(), s.columns);
  s.terms = p.taps() * p.in_channels_per_group();
  s.rows = p.batch * p.output_pixels();
  s.slots = context.traits.threads;
  const std::int64_t row_bytes = checked_mul(s.terms, static_cast<std::int64_t>(s.accumulator_bytes()));
  s.tile_rows = std::min(s.rows, std::clamp(kTileBytes / row_bytes, kMinTileRows, kMaxTileRows));
  // Even tiles, and one for every thread.
  const std::int64_t tiles = round_up(ceil_div(s.rows, s.tile_rows) * p.groups, s.slots) / p.groups;
  s.tile_rows = ceil_div(s.rows, std::clamp<std::int64_t>(tiles, 1, s.rows));
  const auto fits = [&] { return s.workspace_bytes() <= context.workspace_limit_bytes; };
  s.shared_weights = true;
  if (fits()) return s;
  // Too little for all the weights: each tile packs them again, a block of terms at a time.
  s.shared_weights = false;
  const std::int64_t block = block_terms(s.terms);
  s.pack_terms = std::min(round_up(s.terms, block), round_up(kPackTerms, block));
  while (!fits() && s.slots > 1) s.slots = (s.slots + 1) / 2;
  while (!fits() && s.tile_rows > 1) s.tile_rows = (s.tile_rows + 1) / 2;
  if (!fits()) s.pack_terms = block;
  return s;
}

const Algorithm<Device> kUnfoldGemm{"unfold_gemm", supports, seconds, make};

}  // namespace vkconv::cpu
