// winograd: convolution through fewer products. A tile of outputs is a polynomial product, evaluated at a few points
// (Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015; points chosen for their error as in
// Barabasz et al., Error Analysis and Improving the Accuracy of Winograd Convolution, 2018): F(4x4) of a 3x3 kernel
// multiplies 36 values where the definition multiplies 144. At each point the products over all tiles are one matrix
// product. Kernels are tiled along two axes or along one, and the taps of one more axis, of any stride and dilation,
// are summed in the transform domain: a 3x3x3 kernel transforms every slice once. Or they are tiled too: F(4x4x4)
// multiplies 216 values where the definition multiplies 1,728, and reads weights eight times as large. Summed are also
// the parts of a larger or strided kernel (Huang et al., DWM: A Decomposable Winograd Method for Convolution
// Acceleration, 2020). It wins on dense kernels with enough channels to pay for the transforms. Its error is a few
// times that of a direct sum, so precision highest never uses it, and the tiles with the largest error are for
// precision fast. A tile with an output that is not finite is computed again by definition, so an infinity or NaN goes
// where the sums take it.
#include <limits>

#include "algorithms/registry_cpu.h"
#include "algorithms/winograd/winograd_execution.h"
#include "core/planner.h"
#include "cpu/estimates.h"

namespace vkconv::cpu {
namespace {
using namespace winograd;

// Rounding in a tile is relative to all its products: an output that sums few of them could be off by many of its own
// roundings.
constexpr std::int64_t kShortestSum = 16;
constexpr std::int64_t kMostTimesShortest = 4;  // the products of a whole sum, for tiles of medium error
constexpr std::int64_t kFewTerms = 16;          // of the first axis and the channels

// Whether the error of the tiles suits the precision. The error of a medium tile is small where few terms are summed,
// and nothing beside the rounding of 16-bit results. Between, in sums of less than a chain, results are so small that
// tests compare them at 1e-4 of a normally distributed input's unit, which medium tiles miss. Neither do they suit
// padding as wide as the kernel, whose corners sum one tap of nine, nor do deep tiles: one of twenty-seven.
bool allowed(const Geometry& g, const ConvProblem& p) {
  if (p.precision == Precision::fast) return true;
  if (g.shape.error == TileError::large) return false;
  const std::int64_t tiled_taps = g.problem.taps() / g.summed_taps(), summed = g.problem.kernel[0] * g.channels();
  const bool even = tiled_taps * g.in_channels <= kMostTimesShortest * g.shortest_sum();
  if (g.shape.error == TileError::small) return even || !g.shape.deep();
  return size_bytes(p.dtype) == 2 || (even && (summed <= kFewTerms || summed >= kMaxChainTerms));
}

// With weights prepared, but for a share of calls. What is longer than `limit` with all of them prepared is not looked
// at further.
double mean_seconds(const Geometry& g, const Traits& traits, double share, double limit) {
  const auto seconds = [&](bool prepared) {
    return choose_blocking(g, traits, register_tile(traits, DType::f32), prepared,
                           std::numeric_limits<std::size_t>::max())
        ->seconds;
  };
  const double prepared = seconds(true);
  return share == 0 || prepared > limit ? prepared : (1 - share) * prepared + share * seconds(false);
}

// The same geometry for every batch, thread count and limit, so that results do not depend on them. The weights of deep
// tiles are so many that the time to transform them counts where such tiles may apply.
std::optional<Geometry> search_geometry(const ConvProblem& p, const Traits& device) {
  const Traits traits = one_thread(device);
  ConvProblem single = p;
  single.batch = 1;
  std::optional<Geometry> best;
  double best_seconds = std::numeric_limits<double>::infinity();
  const bool deep = std::ranges::min(p.kernel) > 1;
  for (Geometry& g : geometries(single)) {
    if (!allowed(g, p)) continue;
    const double seconds = mean_seconds(g, traits, deep ? kWeightShare : 0, best_seconds);
    if (seconds < best_seconds) {
      best_seconds = seconds;
      best = std::move(g);
    }
  }
  if (best) {
    best->problem.batch = p.batch;
    best->positions *= p.batch;
  }
  return best;
}

std::optional<Geometry> choose_geometry(const ConvProblem& p, const Context<Device>& c) {
  return c.planner.remembered({p, "winograd", 0}, [&] { return search_geometry(p, c.traits); });
}

class WinogradPlan final : public Plan<Device> {
 public:
  WinogradPlan(Geometry g, const Blocking& prepared, const Blocking& per_call)
      : geometry_(std::move(g)), prepared_(prepared), per_call_(per_call) {}

  void execute(Device::Stream&, const Operands<Device>& operands, std::byte* workspace) const override {
    const Operands<Device> a = geometry_.orientation.apply(operands);
    Execution(geometry_, a.prepared ? prepared_ : per_call_, a).run(workspace);
  }

  std::size_t workspace_bytes() const override {
    return std::max(prepared_.workspace_bytes, per_call_.workspace_bytes);
  }
  std::string describe() const override { return geometry_.name(); }
  std::string weight_layout() const override {
    const ConvProblem& p = geometry_.problem;
    return geometry_.name() + "_c" + std::to_string(prepared_.columns) + geometry_.orientation.axes_text() + "_s" +
           std::to_string(p.stride[1]) + "x" + std::to_string(p.stride[2]);
  }

  std::size_t prepared_bytes() const override {
    return static_cast<std::size_t>(panel_layout(geometry_, prepared_.columns).floats()) * sizeof(float);
  }
  PreparedWeights<Device> prepare_in(std::byte* to, Device::Stream&,
                                     const WeightView<std::byte*>& weight) const override {
    Operands<Device> a;
    a.weight = geometry_.orientation.apply(weight);
    Execution(geometry_, prepared_, a).transform_weights(reinterpret_cast<float*>(to));
    return {to};
  }

 private:
  Geometry geometry_;
  Blocking prepared_, per_call_;
};

Support supports(const ConvProblem& p, const Context<Device>& context) {
  if (Support s = forward_support(p); !s) return s;
  if (p.input_dilated()) return Support::no("the input is dilated");
  if (p.dtype == DType::f64) return Support::no("its error is too large for float64");
  if (p.precision == Precision::highest) return Support::no("precision highest allows direct sums only");
  const auto g = choose_geometry(p, context);
  if (!g)
    return Support::no(
        "no tile fits: it needs an axis without dilation that has two taps or more in a phase of its stride");
  if (g->shortest_sum() < kShortestSum) return Support::no("some outputs sum too few products for its error bound");
  const auto fits = [&](bool prepared) {
    return choose_blocking(*g, context.traits, register_tile(context.traits, DType::f32), prepared,
                           context.workspace_limit_bytes);
  };
  if (!fits(false) || !fits(true)) return Support::no("the workspace limit is smaller than one transformed tile");
  return Support::yes();
}

// The transforms, which read and write the arrays, and the products follow each other, so the time of memory is not
// hidden; that of weights in a cache is part of the blocking. Pixels wider than a panel reach memory in pieces, a
// panel's channels at a time, which takes four times as long. In a network, for which half of the calls count,
// other layers push the weights out of every cache, and the products hide half of the time memory takes for them.
double seconds(const ConvProblem& p, const Context<Device>& context) {
  constexpr double kMoreForPieces = 3, kFirstRead = 0.25;
  const Geometry g = *choose_geometry(p, context);
  const Traits& t = context.traits;
  const auto blocking = [&](bool prepared) {
    return *choose_blocking(g, t, register_tile(t, DType::f32), prepared, context.workspace_limit_bytes);
  };
  const Blocking prepared = blocking(true), per_call = blocking(false);
  const double products = prepared.seconds + kWeightShare * (per_call.seconds - prepared.seconds);
  const double weight_bytes = static_cast<double>(p.weight_elements()) * static_cast<double>(size_bytes(p.dtype));
  double bytes = p.bytes_moved() - weight_bytes;
  if (p.bytes_moved() > static_cast<double>(t.l3_bytes) / 2 && p.out_channels > prepared.columns)
    bytes +=
        kMoreForPieces * static_cast<double>(p.output_elements()) * static_cast<double>(size_bytes(p.output_dtype));
  const double panel_bytes =
      g.used_share() * static_cast<double>(panel_layout(g, prepared.columns).floats()) * sizeof(float);
  const double first_read = fit_shared_cache(t, panel_bytes) ? kFirstRead * panel_bytes : 0;
  return t.launch_seconds + products + bytes / t.memory_bytes_per_second + first_read / t.memory_read_bytes_per_second;
}

std::shared_ptr<const Plan<Device>> make(const ConvProblem& p, const Context<Device>& context) {
  // The kernels of this process, whatever machine was described.
  const RegisterTile tile = register_tile(DType::f32);
  const Geometry g = *choose_geometry(p, context);
  const auto prepared = choose_blocking(g, context.traits, tile, true, context.workspace_limit_bytes);
  const auto per_call = choose_blocking(g, context.traits, tile, false, context.workspace_limit_bytes);
  return std::make_shared<WinogradPlan>(g, *prepared, *per_call);
}

}  // namespace

const Algorithm<Device> kWinograd{"winograd", supports, seconds, make};

}  // namespace vkconv::cpu
