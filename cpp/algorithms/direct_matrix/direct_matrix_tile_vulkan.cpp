#include "algorithms/direct_matrix/direct_matrix_tile.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/checked.h"

namespace vkconv::vulkan {
namespace {

constexpr std::int64_t kOctet = 8, kOctetBytes = 16;
// Registers: matrices of sums a subgroup holds, and octets of a stage an invocation has on their way to shared memory.
constexpr std::uint32_t kMostSums = 14, kMostBlockSums = 8;
constexpr std::int64_t kMostLoads = 16;
constexpr std::int64_t kMostEmulatedLoads = 32;
// A multiprocessor, four schedulers of one subgroup each, and how many of them share the work: those of an H200. In
// cycles: a 16 x 16 x 16 product, what a scheduler waits for operands each step and stage of a subgroup unless another
// one's products fill the time, and the beginning and end of a workgroup. Weights come from L2 at kWeightBytes a cycle.
constexpr double kProcessors = 132, kSchedulers = 4;
constexpr std::int64_t kSharedBytes = 64 << 10, kRegisters = 64 << 10, kMostRegisters = 255;
constexpr double kProductCycles = 12.8, kStepCycles = 120, kStageCycles = 400, kWorkgroupCycles = 4000;
constexpr double kWeightBytes = 40;
constexpr std::int64_t kOtherRegisters = 96;  // than those of sums
constexpr double kMatrixSpeedup = 5;          // over the device's rate for halves
constexpr double kEmulatedEfficiency = 0.02;  // of the fp32 rate

constexpr MatrixTile kEmulatedTile{false, 2, 1, 2, 2, 2};

std::int64_t extent_of(std::int64_t outputs, std::int64_t taps, std::int64_t stride, std::int64_t dilation) {
  return checked_add(checked_add(checked_mul(outputs - 1, stride), checked_mul(taps - 1, dilation)), 1);
}

// Workgroups on a multiprocessor at once, by its registers and shared memory.
double workgroups_at_once(const ConvProblem& p, const MatrixUnit& unit, const MatrixGrid& g) {
  const MatrixTile& t = g.tile;
  const std::int64_t sums = t.fragments_m * t.fragments_n * unit.shape.m * unit.shape.n / unit.lanes;
  const std::int64_t registers = kOtherRegisters + sums * (block_steps(p, unit) != 0 ? 2 : 1);
  const std::int64_t by_registers = kRegisters / (std::min(registers, kMostRegisters) * t.subgroups() * unit.lanes);
  const std::int64_t by_memory = kSharedBytes / (g.shared_octets * kOctetBytes);
  return double(std::clamp<std::int64_t>(std::min(by_registers, by_memory), 1, 8));
}

double estimate(const ConvProblem& p, const MatrixUnit& unit, const MatrixGrid& g, const Traits& traits) {
  const MatrixTile& t = g.tile;
  const double volume = double(unit.shape.m) * unit.shape.n * unit.shape.k / 4096;
  const double at_once = std::min(workgroups_at_once(p, unit, g), std::ceil(double(g.groups) / kProcessors));
  const std::uint32_t parts = parts_of(p.dtype);
  const double products = t.fragments_m * t.fragments_n * kProductCycles * volume * (parts > 1 ? 3 : 1);
  const double weights = double(t.subgroups_n * t.fragments_n) * unit.shape.n * unit.shape.k * 2 * parts / kWeightBytes;
  const double step =
      std::max({at_once * t.subgroups() / kSchedulers * products, products + kStepCycles, at_once * weights});
  const double workgroup = double(g.steps) * step + double(g.stages) * kStageCycles + kWorkgroupCycles;
  const double cycles = std::ceil(double(g.groups) / (kProcessors * at_once)) * workgroup;
  const double flops_per_cycle = 2 * 4096 / kProductCycles * kSchedulers * kProcessors;
  const double rate = unit.emulated ? traits.rates.f32_flops_per_second * kEmulatedEfficiency
                                    : traits.rates.f16_flops_per_second * kMatrixSpeedup;
  return std::max(cycles * flops_per_cycle / rate, p.bytes_moved() / traits.rates.memory_bytes_per_second);
}

bool fits(const ConvProblem& p, const MatrixUnit& unit, const MatrixGrid& g, const Traits& traits) {
  const std::uint32_t most_sums = block_steps(p, unit) != 0 ? kMostBlockSums : kMostSums;
  return g.shared_octets <= most_tile_octets(traits) &&
         g.loads <= (unit.emulated ? kMostEmulatedLoads : kMostLoads / (3 * parts_of(p.dtype) - 2)) &&
         g.tile.fragments_m * g.tile.fragments_n <= most_sums &&
         unit.lanes % (g.tile.fragments_n * unit.shape.n / 4) == 0 &&  // invocations share rows of sums evenly
         g.tile.subgroups() * unit.lanes <= traits.limits.workgroup_invocations;
}

}  // namespace

std::optional<MatrixUnit> matrix_unit(const Traits& traits, DType operand) {
  const bool emulated = traits.type == DeviceType::software;
  std::optional<MatrixUnit> best;
  for (const CooperativeMatrix& s : traits.cooperative_matrices) {
    // An octet runs along k, four sums along n, and an emulated matrix has at most 256 elements.
    const bool usable = s.operand == operand && s.sum == DType::f32 && s.k % kOctet == 0 && s.n % 4 == 0 &&
                        s.m * s.k <= 256 && s.k * s.n <= 256 && s.m * s.n <= 256;
    if (!usable || (best && best->shape.m * best->shape.n * best->shape.k >= s.m * s.n * s.k)) continue;
    best = MatrixUnit{s, emulated, emulated ? s.m : traits.limits.subgroup_size};
  }
  if (!best && emulated) best = MatrixUnit{{16, 16, 16, operand, DType::f32}, true, 16};
  return best;
}

std::int64_t most_tile_octets(const Traits& traits) {
  constexpr std::int64_t other_octets = 1;  // the largest magnitudes of fp32 stages
  return static_cast<std::int64_t>(traits.limits.shared_memory_bytes) / kOctetBytes - other_octets;
}

MatrixGrid matrix_grid(const ConvProblem& p, const MatrixUnit& unit, const MatrixTile& tile, const Traits& traits) {
  MatrixGrid g;
  g.tile = tile;
  g.layout = side_by_side(p);
  const CooperativeMatrix& s = unit.shape;
  g.tiles_x = ceil_div(g.layout.columns(), tile.columns(unit));
  g.tiles_y = ceil_div(p.output[1], tile.rows());
  g.tiles_o = ceil_div(p.out_channels_per_group(), tile.channels(unit));
  g.groups = checked_mul(checked_mul(g.tiles_x, g.tiles_y), checked_mul(g.tiles_o, p.groups));
  g.chunks = ceil_div(p.in_channels_per_group(), tile.chunk_octets * kOctet);
  g.runs = g.tiles_o * tile.subgroups_n;
  g.stages = checked_mul(p.kernel[0], g.chunks);
  g.steps = checked_mul(g.stages, p.kernel[1] * p.kernel[2] * (tile.chunk_octets * kOctet / s.k));
  const std::int64_t halo_rows = extent_of(tile.rows(), p.kernel[1], p.stride[1], p.dilation[1]);
  const std::int64_t halo_columns = extent_of(tile.columns(unit), p.kernel[2], p.stride[2], p.dilation[2]);
  const std::int64_t column = halo_rows * tile.chunk_octets | 1;
  const std::int64_t parts = parts_of(p.dtype);
  g.stage_octets = checked_mul(round_up(halo_columns, p.stride[2]), column * parts);
  const std::int64_t scratch = tile.subgroups() * s.m * (tile.fragments_n * s.n / 4 + 1);
  g.shared_octets = std::max(g.stage_octets * 2, scratch);
  g.loads = ceil_div(checked_mul(halo_rows * tile.chunk_octets, halo_columns), tile.subgroups() * unit.lanes);
  // The step ahead of the last is read and not used.
  g.packed_blocks = checked_mul(checked_mul(p.groups * g.runs, g.steps), tile.fragments_n);
  const std::int64_t block_bytes = parts * s.k * s.n / kOctet * kOctetBytes;
  g.blocks_bytes = static_cast<std::size_t>(checked_mul(checked_add(g.packed_blocks, tile.fragments_n), block_bytes));
  const std::int64_t scales = parts > 1 ? p.groups * g.runs * tile.fragments_n * s.n : 0;
  g.packed_bytes = g.blocks_bytes + static_cast<std::size_t>(scales) * sizeof(float);
  g.seconds = estimate(p, unit, g, traits);
  return g;
}

std::int64_t emulated_iterations(const MatrixGrid& g, const MatrixUnit& unit) {
  const MatrixTile& t = g.tile;
  constexpr std::int64_t most_products = 3;  // of fp32
  const std::int64_t products = t.fragments_m * t.fragments_n * (most_products * (unit.shape.n + 1) + 1);
  const std::int64_t step = products + t.fragments_m + 2 * t.fragments_n + g.loads + 1;
  const std::int64_t stage_and_outputs = 2 * g.loads + 64 * products;
  return checked_add(checked_mul(g.steps, step), stage_and_outputs);
}

std::optional<MatrixGrid> choose_matrix_grid(const ConvProblem& p, const MatrixUnit& unit, const Traits& traits) {
  std::optional<MatrixGrid> best;
  const auto consider = [&](MatrixTile t) {
    t.strip = p.output[1] == 1;
    const MatrixGrid g = matrix_grid(p, unit, t, traits);
    if (fits(p, unit, g, traits) && (!best || g.seconds < best->seconds)) best = g;
  };
  const std::uint32_t least_octets = unit.shape.k / kOctet;
  if (unit.emulated) {
    MatrixTile t = kEmulatedTile;
    for (t.fragments_m = 2; t.fragments_m > 0; --t.fragments_m) {
      t.chunk_octets = std::max(t.chunk_octets, least_octets);
      if (!best) consider(t);
    }
    return best;
  }
  constexpr std::array<std::uint32_t, 3> kPowers{1, 2, 4};
  for (std::uint32_t octets = least_octets; octets <= 8; octets *= 2)
    for (const std::uint32_t subgroups_m : kPowers)
      for (const std::uint32_t subgroups_n : kPowers)
        for (std::uint32_t fragments_m = 1; fragments_m <= 8; ++fragments_m)
          for (const std::uint32_t fragments_n : kPowers)
            if (subgroups_m * subgroups_n >= 2 && subgroups_m * subgroups_n <= 8)
              consider({false, subgroups_m, subgroups_n, fragments_m, fragments_n, octets});
  return best;
}

}  // namespace vkconv::vulkan
