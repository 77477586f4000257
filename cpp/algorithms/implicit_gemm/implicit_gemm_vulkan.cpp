// implicit_gemm: the forward pass as a matrix product of output pixels by output channels whose left factor, the
// unfolded input, exists only a tile at a time in shared memory. It is the general fast path: any rank, kernel, stride,
// dilation, padding and grouping run the same shader. Where the outputs are too few to fill a GPU the sum is split over
// workgroups and added in a fixed order by a second pass.
// Source: the register blocking of Volkov & Demmel, "Benchmarking GPUs to tune dense linear algebra" (2008), and the
// implicit product of Chetlur et al., "cuDNN: efficient primitives for deep learning" (2014).
#include <algorithm>
#include <bit>

#include "algorithms/registry_vulkan.h"
#include "core/checked.h"
#include "vulkan/kernel_params.h"

namespace vkconv::vulkan {
namespace {

constexpr std::int64_t kBlockQuads = 64;        // terms of a block sum, in fours
constexpr std::int64_t kEnoughWorkgroups = 256;  // to fill a GPU
constexpr std::uint32_t kSumGroupSize = 64;

// Share of the device's multiply-add rate that full tiles reach.
constexpr double kGpuEfficiency = 0.6, kSoftwareEfficiency = 0.9;

struct Tile {
  std::uint32_t m, n, quads, reg_m, reg_n;
  std::uint32_t group_size() const { return m / reg_m * (n / reg_n); }
  std::size_t shared_bytes(DType t) const { return std::size_t{m + n} * (quads + 1) * 4 * size_bytes(accumulator(t)); }
};

// The width that computes the fewest columns past the edge; narrower tiles read A more often.
std::uint32_t tile_width(std::int64_t channels) {
  if (channels <= 32) return static_cast<std::uint32_t>(std::bit_ceil(static_cast<std::uint64_t>(channels)));
  return round_up(channels, 32) * 10 < round_up(channels, 64) * 9 ? 32 : 64;
}

Tile choose_tile(const ConvProblem& p, const Traits& traits) {
  const std::int64_t pixels = p.batch * p.output_pixels();
  Tile t{128, tile_width(p.out_channels_per_group()), 4, 8, 8};
  t.reg_n = std::min(t.n >= 32 ? 8u : 4u, t.n);
  if (t.n < 16) t.m = 256, t.reg_m = t.n < 8 ? 4 : 8;
  while (t.m > 16 && pixels * 2 <= t.m) t.m /= 2;
  while (t.quads > 1 && t.shared_bytes(p.dtype) > traits.limits.shared_memory_bytes) t.quads /= 2;
  while (t.shared_bytes(p.dtype) > traits.limits.shared_memory_bytes) t.m /= 2;
  while (t.reg_m > 1 && t.group_size() < 32) t.reg_m /= 2;
  while (t.group_size() > std::min(traits.limits.workgroup_invocations, 256u)) t.m /= 2;
  return t;
}

// How the products of a problem are cut into workgroups.
struct Grid {
  std::int64_t k_size = 0;  // fours along k, or single values when channels do not come in fours
  bool flat = false;
  std::int64_t steps = 0, block_steps = 0, blocks = 0;
  std::int64_t tiles_m = 0, tiles_n = 0, groups = 0;
  bool partial = false;     // block sums through the workspace
  std::size_t workspace_bytes = 0;
};

Grid make_grid(const ConvProblem& p, const Tile& t, const Context<Device>& c) {
  Grid g;
  g.flat = p.in_channels_per_group() % 4 != 0;
  g.k_size = checked_mul(p.taps(), g.flat ? p.in_channels_per_group() : p.in_channels_per_group() / 4);
  g.steps = ceil_div(g.flat ? ceil_div(g.k_size, 4) : g.k_size, t.quads);
  g.block_steps = kBlockQuads / t.quads;
  g.blocks = ceil_div(g.steps, g.block_steps);
  const std::int64_t pixels = p.batch * p.output_pixels();
  g.tiles_m = ceil_div(pixels, t.m);
  g.tiles_n = ceil_div(p.out_channels_per_group(), t.n);
  const std::int64_t tiles = checked_mul(checked_mul(g.tiles_m, g.tiles_n), p.groups);
  const std::int64_t sums = checked_mul(checked_mul(pixels, p.out_channels), g.blocks);
  const std::size_t bytes = static_cast<std::size_t>(sums) * size_bytes(accumulator(p.dtype));
  g.partial = c.traits.type != DeviceType::software && g.blocks > 1 && tiles < kEnoughWorkgroups &&
              bytes <= c.workspace_limit_bytes;
  g.groups = g.partial ? tiles * g.blocks : tiles;
  g.workspace_bytes = g.partial ? bytes : 0;
  return g;
}

double estimate(const ConvProblem& p, const Tile& t, const Grid& g, const Traits& traits) {
  const double rows = double(g.tiles_m) * t.m, columns = double(g.tiles_n) * t.n * double(p.groups);
  const double flops = 2 * rows * columns * double(g.steps) * t.quads * 4;
  const bool software = traits.type == DeviceType::software;
  const double occupancy = software ? 1 : std::min(1.0, double(g.groups) / kEnoughWorkgroups);
  // Narrow register tiles read shared memory more often a multiply-add.
  const double reads = (1.0 / t.reg_m + 1.0 / t.reg_n) / (1.0 / 8 + 1.0 / 8);
  const double rate = flops_per_second(traits, p.dtype) * (software ? kSoftwareEfficiency : kGpuEfficiency) * occupancy;
  const double bytes = p.bytes_moved() + 2 * double(g.workspace_bytes);
  return flops * std::max(1.0, reads * 0.7) / rate + bytes / traits.rates.memory_bytes_per_second;
}

struct Params {
  Pointer input, weight, output, workspace;
  Strides4 input_stride, output_stride;
  std::int64_t weight_group, weight_out, weight_in;
  Extent3 weight_tap;
  EpilogueParams epilogue;
  GeometryParams geometry;
  std::uint32_t pixels, k_size, tiles_n, tiles_m, blocks, groups;
};

bool weight_fours(const WeightView<Pointer>& w, DType t) {
  const auto fours = [](std::int64_t stride) { return stride % 4 == 0; };
  return w.in == 1 && w.data % (4 * size_bytes(t)) == 0 && fours(w.group) && fours(w.out) &&
         std::ranges::all_of(w.tap, fours);
}

class ImplicitGemmPlan final : public Plan<Device> {
 public:
  ImplicitGemmPlan(const ConvProblem& p, const Context<Device>& c)
      : p_(p),
        tile_(choose_tile(p, c.traits)),
        grid_(make_grid(p, tile_, c)),
        seconds_(estimate(p, tile_, grid_, c.traits)),
        quad_columns_(c.traits.type == DeviceType::software && tile_.reg_n % 4 == 0) {}

  std::string describe() const override { return grid_.partial ? "implicit_gemm(split k)" : "implicit_gemm"; }
  std::size_t workspace_bytes() const override { return grid_.workspace_bytes; }

  void execute(Stream& stream, const Operands<Device>& a, Pointer workspace) const override {
    const Params params = make_params(a, workspace);
    stream.barrier();
    stream.dispatch(product_kernel(a), params, stream.linear_groups(static_cast<std::uint64_t>(grid_.groups)), seconds_);
    if (!grid_.partial) return;
    stream.barrier();
    const std::int64_t outputs = p_.batch * p_.output_pixels() * p_.out_channels;
    Kernel sum{shader_name("implicit_gemm_sum", p_.dtype), epilogue_constants(p_, a)};
    sum.constants.insert(sum.constants.end(), {kSumGroupSize, has_padding(p_)});
    stream.dispatch(sum, params, stream.linear_groups(static_cast<std::uint64_t>(ceil_div(outputs, kSumGroupSize))));
  }

 private:
  Params make_params(const Operands<Device>& a, Pointer workspace) const {
    const auto narrow = [](std::int64_t v) { return static_cast<std::uint32_t>(v); };
    return {a.input.data,
            a.weight.data,
            a.output.data,
            workspace,
            pixel_strides(a.input),
            pixel_strides(a.output),
            a.weight.group,
            a.weight.out,
            a.weight.in,
            a.weight.tap,
            epilogue_params(p_, a),
            geometry_params(p_),
            narrow(p_.batch * p_.output_pixels()),
            narrow(grid_.k_size),
            narrow(grid_.tiles_n),
            narrow(grid_.tiles_m),
            narrow(grid_.partial ? grid_.blocks : 1),
            narrow(grid_.groups)};
  }

  Kernel product_kernel(const Operands<Device>& a) const {
    Kernel k{shader_name("implicit_gemm", p_.dtype), epilogue_constants(p_, a)};
    if (p_.out_channels_per_group() % 4 != 0) k.constants[4] = 0;  // a group's fours straddle its neighbour's
    const bool zeros = std::ranges::any_of(p_.input_dilation, [](std::int64_t d) { return d > 1; });
    const bool input_fours = aligned_to_fours(a.input, p_.in_channels_per_group(), p_.dtype);
    for (const std::uint32_t v :
         {tile_.group_size(), tile_.m, tile_.n, tile_.quads, tile_.reg_m, tile_.reg_n, std::uint32_t{grid_.flat},
          std::uint32_t{input_fours}, std::uint32_t{weight_fours(a.weight, p_.dtype)}, std::uint32_t{zeros},
          std::uint32_t{has_padding(p_)}, std::uint32_t{grid_.blocks > 1}, std::uint32_t{grid_.partial},
          std::uint32_t{quad_columns_}, static_cast<std::uint32_t>(grid_.block_steps)})
      k.constants.push_back(v);
    return k;
  }

  ConvProblem p_;
  Tile tile_;
  Grid grid_;
  double seconds_;
  bool quad_columns_;
};

Support supports(const ConvProblem& p, const Context<Device>& c) {
  if (p.pass != Pass::forward) return Support::no("computes forward convolutions only");
  if (p.empty_sum() || p.output_elements() == 0) return Support::no("nothing to sum");
  if (Support s = kernel_support(p, c.traits); !s) return s;
  constexpr std::int64_t limit = std::int64_t{1} << 31;
  if (p.batch * p.output_pixels() >= limit) return Support::no("there are over 2^31 output pixels");
  if (p.taps() * p.in_channels_per_group() >= limit) return Support::no("a sum has over 2^31 terms");
  const Tile t = choose_tile(p, c.traits);
  if (make_grid(p, t, c).groups >= limit) return Support::no("the output needs over 2^31 workgroups");
  return Support::yes();
}

}  // namespace

const Algorithm<Device> kImplicitGemm{
    "implicit_gemm", supports,
    [](const ConvProblem& p, const Context<Device>& c) {
      const Tile t = choose_tile(p, c.traits);
      const Grid g = make_grid(p, t, c);
      return c.traits.rates.launch_seconds * (g.partial ? 2 : 1) + estimate(p, t, g, c.traits);
    },
    [](const ConvProblem& p, const Context<Device>& c) -> std::shared_ptr<const Plan<Device>> {
      return std::make_shared<ImplicitGemmPlan>(p, c);
    }};

}  // namespace vkconv::vulkan
