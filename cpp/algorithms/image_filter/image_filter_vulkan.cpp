// image_filter: one input channel a group, neighbouring outputs along width in registers. Where channels are few, or
// kernels large, the depthwise kernels wait for loads: they fetch an input for one output channel of one column. Here a
// workgroup shares the input of a tile of pixels, each invocation multiplies a row that it holds by the weights of up
// to four kernel rows, and a load from shared memory feeds some eight multiply-adds. Bound: the FMA units, or, for
// small kernels, memory. It wins for images (C = 1), banks of filters over one, and kernels from about 9 x 9 on.
// Source: register-tiled stencils, as in Halide (Ragan-Kelley et al. 2013).
#include <algorithm>
#include <string>

#include "algorithms/registry_vulkan.h"
#include "core/checked.h"
#include "vulkan/kernel_params.h"

namespace vkconv::vulkan {
namespace {

constexpr std::int64_t kInvocations = 128;                // a workgroup; every device has them
constexpr std::int64_t kColumns = 8;                      // of an invocation, as in image_filter.comp
constexpr std::int64_t kMostBlockH = 6, kMostTapsW = 16;  // of the kernel, multiplied at a time
constexpr std::int64_t kSoftwareTapsW = 4;                // unrolled code that is compiled in a fraction of a second
constexpr std::int64_t kMostRows = 4, kMostLanesO = 4;
constexpr std::int64_t kBlockTaps = 96;               // the longest chain of additions
constexpr std::int64_t kEnoughInvocations = 1 << 14;  // to fill a GPU

// Of the multiply-add rate: of one output channel, of four, and a rasteriser's.
constexpr double kRateShare = 0.65, kFourChannelsShare = 0.45, kSoftwareRateShare = 0.05;
// An input moved to shared memory costs as many, more where its neighbours are of other channels, as does an output
// stored there; and an output rounded to 16 bits.
constexpr double kStagingFlops = 110, kScatteredFlops = 220, kFloat16Flops = 30, kBFloat16Flops = 5;
constexpr double kChain = 3e-6;      // seconds of a dispatch besides, from its first load to its last store
constexpr double kSectorBytes = 32;  // the least a load moves,
constexpr double kCacheRate = 2;     // from a cache of so many times memory's rate

struct Params {
  OperandParams operands;
  GeometryParams geometry;
  std::uint32_t tiles_o, tiles_x, tiles_y, workgroups;
};

// Of a workgroup: lanes along output channels, width and height, and what each computes.
struct Tile {
  std::int64_t lanes_o = 1, lanes_x = 1, lanes_y = 1;
  std::int64_t rows = 1, channels = 1;
  std::int64_t taps_h = 1, taps_w = 1;  // of the kernel in shared memory at a time
  std::int64_t block_h = 1;             // rows of them, of which a part of a block is

  std::int64_t invocations() const { return lanes_o * lanes_x * lanes_y; }
  // Parts whose products are added up before they join the total.
  std::int64_t block_parts() const { return std::max<std::int64_t>(kBlockTaps / (block_h * taps_w), 1); }
  std::int64_t width() const { return lanes_x * kColumns; }
  std::int64_t height() const { return lanes_y * rows; }
  std::int64_t depth() const { return lanes_o * channels; }
  std::int64_t input_elements() const {
    const std::int64_t quads = width() / 4 + (kColumns + taps_w + 2) / 4 - kColumns / 4;
    return (height() + taps_h - 1) * (quads + quads / 2) * 4;
  }
  std::int64_t shared_elements() const { return input_elements() + taps_h * taps_w * depth(); }
};

struct Grid {
  Tile tile;
  std::int64_t tiles_o = 0, tiles_x = 0, tiles_y = 0, workgroups = 0;
};

Grid grid_of(const ConvProblem& p, const Tile& t) {
  Grid g{t, ceil_div(p.out_channels_per_group(), t.depth()), ceil_div(p.output[2], t.width()),
         ceil_div(p.output[1], t.height())};
  g.workgroups = checked_mul(checked_mul(g.tiles_o, p.groups), checked_mul(g.tiles_x, g.tiles_y));
  g.workgroups = checked_mul(g.workgroups, checked_mul(p.output[0], p.batch));
  return g;
}

// Lanes go to channels first, then to as many columns as compute few past the edge, then to rows.
Tile shape_tile(const ConvProblem& p, const Traits& traits) {
  const bool software = traits.type == DeviceType::software;
  Tile t;
  t.channels = p.out_channels_per_group() >= 4 ? 4 : 1;
  t.lanes_o = std::min(power_of_two_above(ceil_div(p.out_channels_per_group(), t.channels)), kMostLanesO);
  t.rows = t.channels > 1 || software ? 1 : std::min(power_of_two_above(p.output[1]), kMostRows);
  t.taps_h = even_part(p.kernel[1], kMostBlockH);
  t.taps_w = even_part(p.kernel[2], software ? kSoftwareTapsW : kMostTapsW);
  const std::int64_t lanes = kInvocations / t.lanes_o;
  const std::int64_t most_y = std::min(power_of_two_above(ceil_div(p.output[1], t.rows)), lanes);
  t.lanes_x = std::max<std::int64_t>(lanes / most_y, 1);
  const auto computed = [&](std::int64_t x) { return round_up(p.output[2], x * kColumns); };
  for (std::int64_t x = t.lanes_x * 2; x <= lanes / 4 && computed(x) <= computed(t.lanes_x); x *= 2) t.lanes_x = x;
  t.lanes_y = std::min(lanes / t.lanes_x, most_y);
  return t;
}

// The taps of a block decide the order of additions: they depend on neither batch nor extents beyond the tile's shape.
Grid choose_grid(const ConvProblem& p, const Traits& traits) {
  Tile t = shape_tile(p, traits);
  const auto room = static_cast<std::int64_t>(traits.limits.shared_memory_bytes / size_bytes(accumulator(p.dtype)));
  for (std::int64_t* part : {&t.taps_h, &t.rows, &t.lanes_y, &t.lanes_x})
    while (*part > 1 && t.shared_elements() > room) *part = part == &t.taps_h ? ceil_div(*part, 2) : *part / 2;
  while (t.rows > 1 && grid_of(p, t).workgroups * t.invocations() < kEnoughInvocations) t.rows /= 2;
  t.block_h = t.taps_h;
  const std::int64_t blocks = ceil_div(p.kernel[1], t.block_h);
  // Workgroups that have a multiprocessor for themselves fill its shared memory.
  const bool alone = grid_of(p, t).workgroups <= kProcessors;
  for (std::int64_t parts = 1; alone && parts < blocks; ++parts) {
    Tile higher = t;
    higher.taps_h = ceil_div(blocks, parts) * t.block_h;
    if (higher.shared_elements() <= room) return grid_of(p, higher);
  }
  return grid_of(p, t);
}

// Whether zeros are read beside the input or the kernel.
bool has_zeros(const ConvProblem& p, const Tile& t) { return has_padding(p) || p.kernel[2] % t.taps_w != 0; }

// Of an invocation: a tap at a time, and its outputs by the definition.
std::int64_t loop_iterations(const ConvProblem& p, const Tile& t) {
  return checked_add(p.taps(), definition_iterations(p, has_zeros(p, t) ? kColumns * t.rows * t.channels : 0));
}

double rounding_flops(DType t) { return t == DType::f16 ? kFloat16Flops : t == DType::bf16 ? kBFloat16Flops : 0; }

double estimate(const ConvProblem& p, const Traits& traits) {
  const Grid g = choose_grid(p, traits);
  const Tile& t = g.tile;
  const auto groups = static_cast<double>(g.workgroups);
  const auto blocks =
      static_cast<double>(p.kernel[0] * ceil_div(p.kernel[1], t.taps_h) * ceil_div(p.kernel[2], t.taps_w));
  const double sums = 2.0 * static_cast<double>(t.width() * t.height() * t.depth() * t.taps_h * t.taps_w);
  const double staged = static_cast<double>(t.input_elements());
  const bool software = traits.type == DeviceType::software;
  const double share = software ? kSoftwareRateShare : t.channels == 4 ? kFourChannelsShare : kRateShare;
  const double staging = groups * blocks * staged * (p.groups > 1 ? kScatteredFlops : kStagingFlops);
  const double storing = (p.out_channels > 1 && t.channels == 1 ? kScatteredFlops : 0) + rounding_flops(p.output_dtype);
  const double flops = groups * blocks * sums + staging + storing * static_cast<double>(p.output_elements());
  const double compute = flops / (share * flops_per_second(traits, p.dtype));
  // A load of one channel moves those beside it.
  const double bytes = std::min<double>(kSectorBytes, static_cast<double>(p.in_channels) * double(size_bytes(p.dtype)));
  const double moved =
      std::max(p.bytes_moved() / 0.8, p.groups > 1 ? groups * blocks * staged * bytes / kCacheRate : 0);
  return std::max(compute, moved / traits.rates.memory_bytes_per_second);
}

class FilterPlan final : public Plan<Device> {
 public:
  FilterPlan(const ConvProblem& p, const Context<Device>& c)
      : p_(p), grid_(choose_grid(p, c.traits)), seconds_(estimate(p, c.traits)) {}

  std::string describe() const override { return "image_filter"; }

  void execute(Stream& stream, const Operands<Device>& a, Pointer) const override {
    const Params params{operand_params(p_, a, a.weight), geometry_params(p_),   narrow(grid_.tiles_o),
                        narrow(grid_.tiles_x),           narrow(grid_.tiles_y), narrow(grid_.workgroups)};
    stream.dispatch(kernel(a), params, stream.linear_groups(grid_.workgroups), seconds_);
  }

 private:
  Kernel kernel(const Operands<Device>& a) const {
    const Tile& t = grid_.tile;
    // Weights past the kernel's end are zeros, too.
    const bool padded = has_zeros(p_, t);
    Kernel k{shader_name("image_filter", p_.dtype), group_epilogue_constants(p_, a)};
    for (const std::int64_t v : {t.invocations(), t.lanes_o, t.lanes_x, t.rows, t.channels, t.taps_h, t.taps_w,
                                 std::int64_t{p_.taps() > kBlockTaps}, std::int64_t{padded},
                                 std::int64_t{has_column_fours(a.output)}, t.block_h, t.block_parts()})
      k.constants.push_back(narrow(v));
    return k;
  }

  // Whether four outputs from a multiple of four on are aligned neighbours.
  bool has_column_fours(const View<Pointer>& output) const {
    const auto aligned = [](std::int64_t stride) { return stride % 4 == 0; };
    return p_.out_channels == 1 && output.stride[3] == 1 &&
           std::all_of(&output.stride[0], &output.stride[3], aligned) &&
           output.data % (4 * size_bytes(p_.output_dtype)) == 0;
  }

  ConvProblem p_;
  Grid grid_;
  double seconds_;
};

Support supports(const ConvProblem& p, const Context<Device>& c) {
  if (Support s = forward_support(p); !s) return s;
  if (!p.depthwise()) return Support::no("needs one input channel a group");
  if (p.input_dilated()) return Support::no("the input is dilated");
  for (int axis = 1; axis < 3; ++axis)
    if (p.stride[axis] != 1 || p.dilation[axis] != 1)
      return Support::no("neighbouring outputs or taps do not read neighbouring inputs");
  if (Support s = kernel_support(p, c.traits); !s) return s;
  const Grid grid = choose_grid(p, c.traits);
  if (c.traits.type == DeviceType::software)
    if (Support s = loop_support(loop_iterations(p, grid.tile)); !s) return s;
  return workgroup_support(grid.workgroups);
}

double seconds(const ConvProblem& p, const Context<Device>& c) {
  const double chain = c.traits.type == DeviceType::software ? 0 : kChain / c.siblings;  // siblings wait together
  return launch_seconds(c) + estimate(p, c.traits) + chain;
}

}  // namespace

const Algorithm<Device> kImageFilter{"image_filter", supports, seconds, make_plan<FilterPlan>};

}  // namespace vkconv::vulkan
