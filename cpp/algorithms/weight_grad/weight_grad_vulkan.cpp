// weight_grad: the gradient of a convolution with respect to its weight, as a matrix product of output gradients by
// unfolded inputs that is summed over every output pixel. The pixels are cut into a number of chunks that depends on
// the problem alone; chunk sums are kept in the workspace and added in order, so the bits never depend on the workspace
// limit, which only decides how many tiles of the gradient one pass computes. Any geometry and grouping; tiles are full
// where groups are dense.
// Source: the weight gradient of Chetlur et al., "cuDNN: efficient primitives for deep learning" (2014).
#include <algorithm>
#include <bit>
#include <cmath>

#include "algorithms/registry_vulkan.h"
#include "algorithms/weight_grad/chunk_sums.h"
#include "algorithms/weight_grad/weight_grad_support.h"
#include "core/checked.h"
#include "vulkan/kernel_params.h"

namespace vkconv::vulkan {
namespace {

// What fills a GPU. Chunks have at least as many pixels for each invocation of a workgroup.
constexpr std::int64_t kEnoughInvocations = 256 * 64, kMinChunkPixels = 16;
constexpr std::uint32_t kStep = 16;                                 // pixels in shared memory
constexpr double kGpuEfficiency = 0.17, kSoftwareEfficiency = 0.5;  // share of the multiply-add rate
constexpr std::int64_t kSubgroup = 32;                              // whose idle invocations take as long

struct Tile {
  std::uint32_t o, k, reg_o, reg_k;
  std::uint32_t group_size() const { return o / reg_o * (k / reg_k); }
};

// For every shape, and for so many pixels that the sums of their chunks take much memory.
constexpr Tile kSmallSoftwareTile{16, 32, 4, 4};
constexpr std::int64_t kManyPixels = 4 << 20;

Tile choose_tile(const ConvProblem& p, const Traits& traits) {
  const bool many = traits.type == DeviceType::software && p.batch * p.output_pixels() > kManyPixels;
  if (many || wants_small_tile(p, traits)) return kSmallSoftwareTile;
  const auto extent = [](std::int64_t count, std::int64_t most) {
    return static_cast<std::uint32_t>(
        std::clamp<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(count)), 4, most));
  };
  Tile t{};
  t.o = extent(p.out_channels_per_group(), 64);
  t.k = extent(p.taps() * p.in_channels_per_group(), t.o <= 8 && p.dtype != DType::f64 ? 128 : 64);
  t.reg_o = std::min(t.o, 8u);
  t.reg_k = std::min(t.k, 8u);
  if (t.group_size() < 32) t.reg_k = 4;
  if (t.group_size() < 32) t.reg_o = 4;
  return t;
}

struct Grid {
  std::int64_t columns, tiles_o, tiles_k, tiles;
  std::int64_t chunks, chunk_pixels;
  std::int64_t pass_tiles;           // that one pass computes
  std::size_t tile_workspace_bytes;  // chunk sums of one tile
};

// Of a chunk: an invocation has loop iterations for their products and for each of its sums by the definition.
std::int64_t most_chunk_pixels(const ConvProblem& p, const Tile& t, const Traits& traits) {
  if (traits.type != DeviceType::software) return p.batch * p.output_pixels();
  const std::int64_t repaired = has_padding(p) ? std::int64_t{t.reg_o} * t.reg_k : 0;
  return (kSoftwareLoopIterations - repaired) / (repaired + 2) / kStep * kStep;
}

Grid make_grid(const ConvProblem& p, const Tile& t, const Context<Device>& c) {
  Grid g{};
  const std::int64_t pixels = p.batch * p.output_pixels();
  g.columns = checked_mul(p.taps(), p.in_channels_per_group());
  g.tiles_o = ceil_div(p.out_channels_per_group(), t.o);
  g.tiles_k = ceil_div(g.columns, t.k);
  g.tiles = checked_mul(checked_mul(g.tiles_o, g.tiles_k), p.groups);
  const std::int64_t group = t.group_size();
  g.chunks =
      std::max<std::int64_t>(1, std::min(kEnoughInvocations / (g.tiles * group), pixels / (kMinChunkPixels * group)));
  g.chunks = std::max(g.chunks, ceil_div(pixels, most_chunk_pixels(p, t, c.traits)));
  g.chunk_pixels = round_up(ceil_div(pixels, g.chunks), kStep);
  g.chunks = ceil_div(pixels, g.chunk_pixels);
  g.tile_workspace_bytes =
      g.chunks == 1 ? 0 : static_cast<std::size_t>(g.chunks) * t.o * t.k * size_bytes(accumulator(p.dtype));
  const std::size_t fitting = g.tile_workspace_bytes == 0 ? SIZE_MAX : c.workspace_limit_bytes / g.tile_workspace_bytes;
  g.pass_tiles = static_cast<std::int64_t>(std::min<std::size_t>(fitting, static_cast<std::size_t>(g.tiles)));
  return g;
}

// Of the loads of a chunk on a GPU, where an invocation waits for one after the other, each channel for itself unless
// four of them lie in one tap.
double waiting_seconds(const ConvProblem& p, const Tile& t, const Grid& g) {
  constexpr double kLoadSeconds = 2.3e-7;
  const std::int64_t width = p.in_channels_per_group() % 4 == 0 ? 4 : 1;
  const auto steps = static_cast<double>(g.chunk_pixels) / kStep;
  return steps * kLoadSeconds * static_cast<double>(kStep * (t.o + t.k) / width) / t.group_size();
}

double estimate(const ConvProblem& p, const Tile& t, const Grid& g, const Traits& traits) {
  const double flops = 2.0 * double(g.tiles) * t.o * t.k * double(g.chunks) * double(g.chunk_pixels);
  const bool software = traits.type == DeviceType::software;
  const double used = double(t.group_size()) / double(round_up(t.group_size(), kSubgroup));
  const double invocations = double(g.tiles * g.chunks * t.group_size());
  const double busy = software ? 1 : std::min(used, invocations / kEnoughInvocations);
  const double narrow = 0.125 * (4.0 / t.reg_o + 4.0 / t.reg_k);  // 1/8 at 8 x 8
  const double rate = flops_per_second(traits, p.dtype) * (software ? kSoftwareEfficiency : kGpuEfficiency) * busy;
  const double sums = 2.0 * double(g.tiles) * double(g.tile_workspace_bytes);
  const double waiting = software ? 0 : waiting_seconds(p, t, g);
  return std::max(waiting, flops * std::max(1.0, 8 * narrow) / rate) +
         (p.bytes_moved() + sums) / traits.rates.memory_bytes_per_second;
}

class WeightGradPlan final : public Plan<Device> {
 public:
  WeightGradPlan(const ConvProblem& p, const Context<Device>& c)
      : p_(p),
        tile_(choose_tile(p, c.traits)),
        grid_(make_grid(p, tile_, c)),
        seconds_(estimate(p, tile_, grid_, c.traits)) {}

  std::string describe() const override { return "weight_grad"; }
  std::size_t workspace_bytes() const override {
    return grid_.tile_workspace_bytes * static_cast<std::size_t>(grid_.pass_tiles);
  }

  void execute(Stream& stream, const Operands<Device>& a, Pointer workspace) const override {
    WeightGradParams params = make_params(a, workspace);
    for (std::int64_t first = 0; first < grid_.tiles; first += grid_.pass_tiles) {
      const std::int64_t tiles = std::min(grid_.pass_tiles, grid_.tiles - first);
      params.first_tile = narrow(first);
      params.tile_count = narrow(tiles);
      stream.dispatch(product_kernel(a), params, stream.linear_groups(tiles * grid_.chunks),
                      seconds_ * double(tiles) / double(grid_.tiles));
      if (grid_.chunks > 1) add_chunks(stream, p_, params, tile_.o, tile_.k);
    }
  }

 private:
  Kernel product_kernel(const Operands<Device>& a) const {
    const bool flat = p_.in_channels_per_group() % 4 != 0;
    const bool zeros = p_.input_dilated();
    const bool input_fours = aligned_to(4, a.input, p_.in_channels_per_group(), p_.dtype);
    const bool grad_fours = aligned_to(4, a.output, p_.out_channels_per_group(), p_.dtype);
    return {shader_name("weight_grad", p_.dtype),
            {tile_.group_size(), p_.output_dtype != p_.dtype, tile_.o, tile_.k, tile_.reg_o, tile_.reg_k, kStep, flat,
             input_fours, grad_fours, has_padding(p_), grid_.chunks > 1, zeros}};
  }

  WeightGradParams make_params(const Operands<Device>& a, Pointer workspace) const {
    WeightGradParams params = weight_grad_params(p_, a, workspace);
    params.pixels = narrow(p_.batch * p_.output_pixels());
    params.chunk_pixels = narrow(grid_.chunk_pixels);
    params.chunks = narrow(grid_.chunks);
    params.tiles_o = narrow(grid_.tiles_o);
    params.tiles_k = narrow(grid_.tiles_k);
    params.block_steps = narrow(std::max(1L, std::lround(block_length(grid_.chunk_pixels) / kStep)));
    return params;
  }

  ConvProblem p_;
  Tile tile_;
  Grid grid_;
  double seconds_;
};

Support supports(const ConvProblem& p, const Context<Device>& c) {
  if (Support s = weight_grad_support(p); !s) return s;
  if (Support s = kernel_support(p, c.traits); !s) return s;
  if (Support s = pixels_support(p); !s) return s;
  if (Support s = weights_support(p); !s) return s;
  const Grid g = make_grid(p, choose_tile(p, c.traits), c);
  if (Support s = workgroup_support(g.tiles * g.chunks); !s) return s;
  return workspace_support("the chunk sums of one tile", g.tile_workspace_bytes, c);
}

double seconds(const ConvProblem& p, const Context<Device>& c) {
  const Tile t = choose_tile(p, c.traits);
  const Grid g = make_grid(p, t, c);
  const double passes = double(ceil_div(g.tiles, std::max<std::int64_t>(g.pass_tiles, 1)));
  return c.traits.rates.launch_seconds * 2 * passes + estimate(p, t, g, c.traits);
}

}  // namespace

const Algorithm<Device> kWeightGrad{"weight_grad", supports, seconds, make_plan<WeightGradPlan>};

}  // namespace vkconv::vulkan
