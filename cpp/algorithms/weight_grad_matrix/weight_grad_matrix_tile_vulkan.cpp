#include "algorithms/weight_grad_matrix/weight_grad_matrix_tile.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/checked.h"
#include "vulkan/kernel_params.h"
#include "vulkan/matrix_estimate.h"

namespace vkconv::vulkan {
namespace {

// Matrices of sums a subgroup holds.
constexpr std::uint32_t kMostSums = 20, kMostFlushedSums = 18;
constexpr std::int64_t kMostFlushedPixels = 64;   // whose products are added before sums move
constexpr std::int64_t kSharedBytes = 227 << 10;  // of a multiprocessor
// The estimate's constants in cycles of a multiprocessor, fitted to the times of 490 tiles of halves and 380 of fp32 on
// an H200 (root mean square of the logarithm's error 0.08).
struct Cycles {
  double product;    // of 16 x 16 x 16 by a subgroup
  double operand;    // of that size from shared memory to registers
  double wait;       // for an operand, of a subgroup alone
  double stage;      // that a workgroup waits for the next stage
  double load;       // an octet of each invocation's from memory to shared memory
  double workgroup;  // its beginning and end
};
constexpr Cycles kHalves{9.6, 3.3, 19, 610, 8.4, 5600}, kSplit{9.4, 4.4, 13, 1030, 30, 840};
constexpr double kLoneLoad = 2;    // times longer are loads of halves of which an octet holds one
constexpr double kCrowded = 1.12;  // times longer are stages of halves in more registers than kCrowdedRegisters
constexpr std::int64_t kCrowdedRegisters = 220;
constexpr std::int64_t kMostRounds = 4;  // of workgroups on all multiprocessors
constexpr std::int64_t kEmulatedChunkTiles = 8;
constexpr std::int64_t kEmulatedInputLoads = 24, kEmulatedGradLoads = 4;

constexpr std::int64_t kMostTaps = 3;  // of a tile: rows of gradients wait in registers
constexpr std::array<std::array<std::uint32_t, 2>, 9> kSubgroups{
    {{1, 4}, {2, 2}, {4, 1}, {1, 8}, {2, 4}, {4, 2}, {1, 12}, {2, 6}, {4, 3}}};

constexpr std::int64_t kMostTogether = 32;  // channels of groups that are one: all but their diagonal is in vain

constexpr GradientTile kEmulatedTile{false, 2, 2, 1, 2, 2, 2, 2};

std::int64_t sums_registers(const ConvProblem& p, const MatrixUnit& unit, const GradientTile& t) {
  return std::int64_t{t.taps} * t.fragments_m * (t.fragments_n + (flushes(p) ? 1 : 0)) * unit.shape.m * unit.shape.n /
         unit.lanes;
}

// Registers of an invocation: sums, the operands of a run or, for several columns of matrices, of all runs, octets on
// their way to shared memory with where they come from and go, and the rest.
std::int64_t registers(const ConvProblem& p, const MatrixUnit& unit, const GradientGrid& g) {
  constexpr std::int64_t rest = 44;
  const GradientTile& t = g.tile;
  const std::int64_t parts = parts_of(p.dtype);
  const std::int64_t rows = flushes(p) && t.fragments_n > 1 ? t.runs : std::min(t.taps, t.runs);
  const std::int64_t operands =
      (rows * t.fragments_m * unit.shape.m + 2 * unit.shape.n) * unit.shape.k / 2 * parts / unit.lanes;
  return sums_registers(p, unit, t) + operands + (g.input_loads + g.grad_loads) * (parts * kOctetBytes / 4 + 2) + rest;
}

std::int64_t workgroups_at_once(const ConvProblem& p, const MatrixUnit& unit, const GradientGrid& g) {
  const std::int64_t needed = round_up(std::min(registers(p, unit, g), kMostRegisters), 8);
  const std::int64_t by_registers = kRegisters / (needed * g.tile.subgroups() * unit.lanes);
  return std::clamp<std::int64_t>(std::min(by_registers, kSharedBytes / (g.shared_octets * kOctetBytes)), 1, 16);
}

// Cycles that a multiprocessor takes for `workgroups` at once.
double cycles_of(const ConvProblem& p, const MatrixUnit& unit, const GradientGrid& g, std::int64_t workgroups) {
  const GradientTile& t = g.tile;
  const double parts = parts_of(p.dtype), subgroups = double(workgroups) * t.subgroups();
  const Cycles& c = parts > 1 ? kSplit : kHalves;
  const double volume = double(unit.shape.m) * unit.shape.n * unit.shape.k / 4096;
  const double products = t.runs * t.taps * t.fragments_m * t.fragments_n * (parts > 1 ? 3 : 1) * volume;
  const double operands = double(t.runs * t.fragments_m + g.lines * t.fragments_n) * parts;
  const double multiplying = subgroups / double(kSchedulers) * products * c.product;
  const double reading = subgroups * operands * c.operand;
  // The busier of the two bounds, or both where they are near each other.
  const double busy = std::sqrt(std::hypot(multiplying * multiplying, reading * reading));
  const double input_load = parts == 1 && p.in_channels_per_group() == 1 ? kLoneLoad : 1;
  const double stage = std::max(products * c.product + operands * c.wait, busy) + c.stage +
                       (double(g.input_loads) * input_load + double(g.grad_loads)) * subgroups * c.load;
  const bool crowded = parts == 1 && registers(p, unit, g) > kCrowdedRegisters;
  return double(g.chunk_tiles) * stage * (crowded ? kCrowded : 1) + c.workgroup;
}

double estimate(const ConvProblem& p, const MatrixUnit& unit, const GradientGrid& g, const Traits& traits) {
  const double cycles = cycles_of_rounds(g.tiles * g.chunks, workgroups_at_once(p, unit, g),
                                         [&](std::int64_t workgroups) { return cycles_of(p, unit, g, workgroups); });
  const double seconds = seconds_of_cycles(cycles, unit, traits);
  const double bandwidth = traits.rates.memory_bytes_per_second;
  const double sums = 2 * double(g.tiles) * double(g.tile_bytes) / bandwidth + 2 * traits.rates.launch_seconds;
  return std::max(seconds, p.bytes_moved() / bandwidth) + sums;
}

void set_chunks(const ConvProblem& p, const MatrixUnit& unit, std::int64_t chunks, const Traits& traits,
                GradientGrid& g) {
  g.chunk_tiles = ceil_div(g.pixel_tiles, chunks);
  g.chunks = ceil_div(g.pixel_tiles, g.chunk_tiles);
  g.tile_bytes = static_cast<std::size_t>(g.chunks * g.tile.elements(unit)) * sizeof(float);
  g.seconds = estimate(p, unit, g, traits);
}

GradientGrid make_grid(const ConvProblem& p, const MatrixUnit& unit, const GradientTile& t) {
  GradientGrid g;
  g.tile = t;
  g.layout = side_by_side(p, t.pixel_columns(unit));
  const std::int64_t parts = parts_of(p.dtype), threads = std::int64_t{t.subgroups()} * unit.lanes;
  g.pixel_rows = ceil_div(p.output[1], t.pixel_rows());
  g.pixel_tiles = checked_mul(ceil_div(g.layout.columns(), t.pixel_columns(unit)), g.pixel_rows);
  g.channel_chunks = ceil_div(p.in_channels_per_group(), t.chunk_octets * kOctet);
  g.tiles_m = ceil_div(p.out_channels_per_group(), t.rows(unit));
  g.tiles_n = ceil_div(checked_mul(p.kernel[2], t.chunk_octets * kOctet / unit.shape.n), t.matrices_n());
  g.tap_blocks = ceil_div(p.kernel[1], t.taps);
  g.tiles = checked_mul(checked_mul(g.tiles_m, g.tiles_n), checked_mul(p.groups, g.channel_chunks));
  g.tiles = checked_mul(g.tiles, checked_mul(g.tap_blocks, p.kernel[0]));
  const std::int64_t halo_rows = extent_of(t.pixel_rows(), t.taps, p.stride[1], p.dilation[1]);
  const std::int64_t halo_columns = extent_of(t.pixel_columns(unit), p.kernel[2], p.stride[2], p.dilation[2]);
  const std::int64_t grad_octets = t.rows(unit) / kOctet;
  g.lines = t.strip ? t.runs * halo_rows : halo_rows;
  const std::int64_t phase = checked_mul(ceil_div(halo_columns, p.stride[2]), halo_rows * t.chunk_octets | 1);
  g.input_octets = checked_mul(p.stride[2], p.stride[2] == 1 || parts > 1 ? phase : round_up(phase, 8) + 4);
  g.grad_octets = t.pixel_columns(unit) * (t.pixel_rows() * grad_octets | 1);
  g.shared_octets = checked_mul(2 * parts, checked_add(g.input_octets, g.grad_octets));
  g.input_loads = ceil_div(checked_mul(halo_rows * t.chunk_octets, halo_columns), threads);
  g.grad_loads = ceil_div(t.pixel_rows() * t.pixel_columns(unit) * grad_octets, threads);
  return g;
}

// An H200's accumulators cut off up to a 2^24th with each product of 16 pixels: of so many a 16th of a half's roundoff.
std::int64_t least_chunks(const ConvProblem& p, const MatrixUnit& unit, const GradientGrid& g) {
  constexpr std::int64_t most_pixels = 8192;
  if (flushes(p)) return 1;  // which sums leave before
  const std::int64_t tile_pixels = g.tile.pixel_rows() * g.tile.pixel_columns(unit);
  return ceil_div(g.pixel_tiles, std::max<std::int64_t>(most_pixels / tile_pixels, 1));
}

// Matrices that do not fit registers go to memory, which costs time. Those of the count above; accumulators that sums
// leave take some more.
std::int64_t most_registers(const ConvProblem& p, std::int64_t invocations) {
  return std::min<std::int64_t>(256, kRegisters / invocations / 8 * 8 - (flushes(p) ? 12 : 0));
}
// What the driver unrolls without leaving matrices in memory, in matrix products, and in lines: of strided rows there
// are more lines than products. A pixel tile of 18 takes eight times as long on an H200.
std::int64_t most_body(const ConvProblem& p) { return flushes(p) ? 93 : 100; }
constexpr std::int64_t kMostLines = 16;

// Of a load: an octet of halves that is not whole takes several, and what puts them together.
std::int64_t load_weight(const ConvProblem& p, std::int64_t channels) {
  return p.dtype != DType::f32 && channels % kOctet != 0 ? 12 : 3;
}

bool fits(const ConvProblem& p, const MatrixUnit& unit, const GradientGrid& g, const Traits& traits) {
  const GradientTile& t = g.tile;
  if (g.shared_octets > most_tile_octets(traits) || t.subgroups() * unit.lanes > traits.limits.workgroup_invocations)
    return false;
  if (unit.emulated) return g.input_loads <= kEmulatedInputLoads && g.grad_loads <= kEmulatedGradLoads;
  const std::int64_t products = t.runs * t.taps * t.fragments_m * t.fragments_n;
  const std::int64_t loads = g.input_loads * load_weight(p, p.in_channels_per_group()) +
                             g.grad_loads * load_weight(p, p.out_channels_per_group());
  const std::int64_t invocations = t.subgroups() * unit.lanes;
  return registers(p, unit, g) <= most_registers(p, invocations) &&
         products + loads + (p.kernel[0] > 1 ? 10 : 0) <= most_body(p) && g.lines <= kMostLines;
}

// Of these groups.
std::optional<GradientGrid> choose_grid(const ConvProblem& p, const MatrixUnit& unit, const Traits& traits) {
  const std::uint32_t least_octets = std::max(unit.shape.n, 16u) / kOctet;
  std::optional<GradientGrid> best;
  const auto consider = [&](GradientTile t) {
    t.strip = p.output[1] == 1;
    GradientGrid g = make_grid(p, unit, t);
    if (!fits(p, unit, g, traits)) return false;
    if (unit.emulated) {
      g.input_loads = kEmulatedInputLoads;
      g.grad_loads = kEmulatedGradLoads;
      set_chunks(p, unit, ceil_div(g.pixel_tiles, kEmulatedChunkTiles), traits, g);
      best = g;
      return true;
    }
    const std::int64_t a_round = workgroups_at_once(p, unit, g) * kProcessors, least = least_chunks(p, unit, g);
    for (std::int64_t rounds = 1; rounds <= kMostRounds; ++rounds) {
      set_chunks(p, unit, std::clamp(rounds * a_round / g.tiles, least, g.pixel_tiles), traits, g);
      if (!best || g.seconds < best->seconds) best = g;
    }
    return true;
  };
  if (unit.emulated) {
    GradientTile t = kEmulatedTile;
    t.chunk_octets = std::max(t.chunk_octets, least_octets);
    consider(t);
    return best;
  }
  const std::uint32_t most_sums = flushes(p) ? kMostFlushedSums : kMostSums;
  const auto most_taps = static_cast<std::uint32_t>(even_part(p.kernel[1], kMostTaps));
  for (std::uint32_t taps = 1; taps <= most_taps; taps = taps < most_taps ? most_taps : taps + 1)
    for (std::uint32_t octets = least_octets; octets <= 32; octets *= 2) {
      if (octets > least_octets && octets * kOctet >= 2 * p.in_channels_per_group()) break;
      const std::int64_t columns = p.kernel[2] * octets * kOctet / unit.shape.n;
      for (const auto [subgroups_m, subgroups_n] : kSubgroups)
        for (std::uint32_t fragments_m = 1; fragments_m <= 4; ++fragments_m)
          for (const std::uint32_t fragments_n : {1u, 2u, 3u, 4u, 6u}) {
            GradientTile t{false, subgroups_m, subgroups_n, fragments_m, fragments_n, octets, 8, taps};
            const bool wasteful = (t.rows(unit) > 32 && t.rows(unit) >= 2 * p.out_channels_per_group()) ||
                                  (t.matrices_n() > 4 && t.matrices_n() >= 2 * columns);
            if (wasteful || taps * fragments_m * fragments_n > most_sums) continue;
            int considered = 0;
            for (; t.runs > 0 && considered < 3; --t.runs)
              if (!flushes(p) || t.runs * unit.shape.k <= kMostFlushedPixels) considered += consider(t);
          }
    }
  return best;
}

// Groups that may be one. Depthwise gradients have a kernel of their own, which is more exact; the scales of fp32 are
// for the range of a tile, not of the groups around it.
std::int64_t most_together(const ConvProblem& p) {
  const std::int64_t in = p.in_channels_per_group(), out = p.out_channels_per_group();
  return in == 1 || parts_of(p.dtype) > 1 ? 1 : kMostTogether / std::min(in, out);
}

}  // namespace

std::optional<GradientGrid> choose_gradient_grid(const ConvProblem& p, const MatrixUnit& unit, const Traits& traits) {
  std::optional<GradientGrid> best = choose_grid(p, unit, traits);
  const std::int64_t most = most_together(p);
  for (std::int64_t together = 2; together <= most && p.groups % together == 0; together *= 2) {
    std::optional<GradientGrid> g = choose_grid(groups_together(p, together), unit, traits);
    if (!g || (best && best->seconds <= g->seconds)) continue;
    g->together = together;
    best = g;
  }
  return best;
}

}  // namespace vkconv::vulkan
