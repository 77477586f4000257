#include "algorithms/direct_matrix/direct_matrix_tile.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/checked.h"
#include "vulkan/kernel_params.h"
#include "vulkan/matrix_estimate.h"

namespace vkconv::vulkan {
namespace {

constexpr std::uint32_t kMostSums = 16, kMostBlockSums = 8;  // matrices of sums of a subgroup; of fp32 in blocks
constexpr std::uint32_t kMostSplitSums = 4;                  // of two subgroups' along k: more gain nothing from it
constexpr std::uint32_t kMostWorkgroupSums = 96;             // more leave a multiprocessor to one workgroup that waits
constexpr std::int64_t kMostEmulatedLoads = 32;
// Workgroups run side by side as if a multiprocessor of an H200 had this much shared memory (driver 580).
constexpr std::int64_t kSharedBytes = 100 << 10;
// The estimate's constants in cycles of a multiprocessor, fitted to the times of 250 tiles of halves, 322 of halves
// under kernels of one tap, whose stages are short, and 361 of fp32 on an H200 (root mean square of the logarithm's
// error 0.17, 0.12 and 0.09; the tile chosen takes 2.5 %, 1.1 % and 0.8 % longer than the best). Kernels whose taps all
// become channels have stages as short, but gather them.
struct Cycles {
  double product;                // of 16 x 16 x 16 by a subgroup
  double operand;                // of that size from shared memory or L1 to registers
  double weight;                 // a byte of weights on its way to registers
  double step;                   // that a subgroup alone waits each step
  double barrier;                // at the end of a stage, for each subgroup
  double load;                   // an octet of each invocation's from memory to shared memory
  double gather;                 // the same, of eight channels that are not side by side
  double load_wait;              // for either, whatever the number of subgroups
  double quad;                   // four sums of each invocation's on their way to the output
  double quad_wait;              // for those
  double workgroup;              // its beginning and end
  double block;                  // a matrix of sums that leaves its accumulators
  std::int64_t other_registers;  // of an invocation than the ones that registers() counts
};
constexpr Cycles kHalves{12.8, 4, 0.0161, 75, 130, 6, 45, 0, 8.6, 0, 4500, 45, 100},
    kHalvesOneTap{16.3, 5.28, 0.0087, 57, 49, 3.2, 0, 52, 18.4, 91, 0, 45, 92},
    kHalvesGathered{14.3, 1.45, 0.0049, 33, 11.5, 0, 45, 0, 24.8, 0, 616, 45, 100},
    kSplit{12.7, 2.82, 0.0136, 93, 96, 14.8, 53, 193, 14.6, 150, 517, 0, 60};
constexpr double kSplitRuns = 1.1;         // times longer are steps of fp32 in runs: octets on their way hold registers
constexpr double kRunCycles = 200;         // a run of steps that is not the whole stage
constexpr double kLoneStageCycles = 1500;  // that a workgroup waits for its only stage of halves under several taps
constexpr double kCrowded = 1.1;  // times longer are those of halves with the most sums beside octets on their way
constexpr std::int64_t kMostShares = 8, kSharedGroups = 8 * kProcessors;  // of sums, and workgroups that then run
constexpr std::int64_t kMostSharedSums = 48 << 20;  // where more workgroups run: a workspace limit may not allow more

constexpr MatrixTile kEmulatedTile{false, 2, 1, 2, 3, 2};

// Terms of a sum of fp32 that leave its accumulators together: those cut off instead of rounding to nearest.
constexpr std::int64_t kBlockTerms = 80;
// Terms of a sum of 16-bit results that stays in its accumulators, and of a block of a longer one, by which an H100
// (driver 580) rounds terms / 210,000 of all outputs wrongly in float16, an eighth of them in bfloat16. Sums in blocks
// take 3 to 17 % longer, so these are a compromise: at least 98.9 % of the outputs are correctly rounded.
constexpr std::int64_t kLongSum = 2304, kLongSumBlock = kLongSum / 2, kCoarserInBf16 = 8;

// Of halves blocks are whole runs, of fp32 results one: those are parts of sums that become halves in the end, for what
// a total leaves in its accumulator, a 128th, is cut off again.
std::int64_t block_steps_of_halves(const ConvProblem& p, const MatrixUnit& unit, const MatrixGrid& g) {
  constexpr std::int64_t emulated_part = 16;  // sums that software devices can take are blocks too, which tests them
  const std::int64_t steps = g.share_stages * g.stage_steps, terms = steps * unit.shape.k;
  if (steps == g.body_steps) return 0;
  if (p.output_dtype == DType::f32) return g.body_steps;
  const std::int64_t times = p.output_dtype == DType::bf16 ? kCoarserInBf16 : 1;
  const std::int64_t part = unit.emulated ? emulated_part : 1;
  if (terms <= kLongSum * times / part) return 0;
  return ceil_div(steps / g.body_steps, ceil_div(terms, kLongSumBlock * times / part)) * g.body_steps;
}

// Steps along k after which sums leave the matrices' accumulators: of fp32 in equal parts of a body.
std::int64_t block_steps(const ConvProblem& p, const MatrixUnit& unit, const MatrixGrid& g) {
  if (parts_of(p.dtype) == 1) return block_steps_of_halves(p, unit, g);
  const std::int64_t blocks = ceil_div(g.body_steps * unit.shape.k, kBlockTerms);
  return blocks == 1 && g.stages == 1 && g.stage_steps == g.body_steps ? 0 : ceil_div(g.body_steps, blocks);
}

double cube(double v) { return v * v * v; }

// Steps that a loop's body holds: the most that divide a stage's and that the driver unrolls. It weighs the code of a
// step before it simplifies it; the measure and its limits were found on an H200 (driver 580), where kernels beyond
// them take twice as long, and those of fp32 may be wrong. Fp32 sums of halves leave their accumulators with a body.
std::int64_t body_steps(const MatrixProblem& problem, const MatrixUnit& unit, const MatrixGrid& g) {
  const bool split = parts_of(problem.p.dtype) > 1;
  const double loads = problem.taps_are_channels ? 0 : double(g.loads);  // those come between stages
  const double sums = g.tile.fragments_m * g.tile.fragments_n;
  const double step = g.tile.fragments_m / 2.0 + (split ? 2.5 : 0.85) * loads + sums * (split ? 0.75 : 0.25);
  const double limit = split ? 200 : 232;
  std::int64_t steps = std::clamp<std::int64_t>(static_cast<std::int64_t>(limit / step), 1, g.stage_steps);
  if (!split && problem.p.output_dtype == DType::f32) steps = std::min(steps, kBlockTerms / unit.shape.k);
  while (g.stage_steps % steps != 0) --steps;
  return steps;
}

// Registers of an invocation: sums, weights held and in use, a row of the input and the one ahead, and octets on their
// way to shared memory with where they come from, which wait while matrices multiply, or before in halves' only stage.
// Those of strips take more: with five of them beside sixteen sums an H200's kernels take up to 1.7 times as long.
std::int64_t registers(const MatrixProblem& problem, const MatrixUnit& unit, const MatrixGrid& g) {
  const MatrixTile& t = g.tile;
  const std::int64_t parts = parts_of(problem.p.dtype);
  const std::int64_t sums = t.fragments_m * t.fragments_n * unit.shape.m * unit.shape.n;
  const std::int64_t weights = t.fragments_n * unit.shape.k * unit.shape.n, input = unit.shape.m * unit.shape.k;
  const std::int64_t operands = parts * (weights + input);
  const std::int64_t totals = g.block_steps == 0 ? 0 : parts > 1 ? sums : sums / 2;
  const std::int64_t multiplying = (sums + totals + operands) / unit.lanes;
  const std::int64_t waiting = problem.taps_are_channels ? 0 : g.loads * (parts > 1 ? 8 : t.strip ? 7 : 5);
  if (g.stages > 1) return multiplying + waiting;
  return parts > 1 ? multiplying : std::max(multiplying, weights / unit.lanes + waiting);
}

const Cycles& cycles_for(const MatrixProblem& problem) {
  const ConvProblem& p = problem.p;
  if (parts_of(p.dtype) > 1) return kSplit;
  if (p.kernel[0] * p.kernel[1] * p.kernel[2] > 1) return kHalves;
  return problem.taps_are_channels ? kHalvesGathered : kHalvesOneTap;
}

// Workgroups on a multiprocessor at once, by its registers and shared memory.
std::int64_t workgroups_at_once(const MatrixProblem& problem, const MatrixUnit& unit, const MatrixGrid& g) {
  const std::int64_t invocations = g.tile.subgroups() * unit.lanes;
  const std::int64_t held = registers(problem, unit, g) + cycles_for(problem).other_registers;
  const std::int64_t by_registers = kRegisters / (std::min(held, kMostRegisters) * invocations);
  const std::int64_t by_memory = kSharedBytes / (g.shared_octets * kOctetBytes);
  return std::clamp<std::int64_t>(std::min(by_registers, by_memory), 1, 16);
}

// Fours of sums that an invocation finishes of a subgroup's row of matrices, idle ones included: two neighbours of
// halves at once, of as many pixels as there are invocations for whole rows of sums.
std::int64_t quads_finished(const ConvProblem& p, const MatrixUnit& unit, const MatrixTile& t) {
  const std::uint32_t together = parts_of(p.dtype) > 1 ? 1 : 2, quads = t.fragments_n * unit.shape.n / 4;
  const std::uint32_t pixels = std::clamp(unit.lanes * together / quads, 1u, unit.shape.m);
  return together * ceil_div(unit.shape.m, pixels);
}

// Cycles that a multiprocessor takes for `workgroups` at once.
double cycles_of(const MatrixProblem& problem, const MatrixUnit& unit, const MatrixGrid& g, std::int64_t workgroups) {
  const ConvProblem& p = problem.p;
  const MatrixTile& t = g.tile;
  const double parts = parts_of(p.dtype), subgroups = double(workgroups) * t.subgroups();
  const Cycles& c = cycles_for(problem);
  const double volume = double(unit.shape.m) * unit.shape.n * unit.shape.k / 4096;
  const double sums = t.fragments_m * t.fragments_n;
  const double products =
      sums * ((parts > 1 ? 3 : 1) * c.product * volume + (g.block_steps != 0 ? c.block / double(g.block_steps) : 0));
  // Subgroups that multiply the same weights of halves share their fetches; of fp32 each has its own.
  const double fetchers = parts > 1 ? subgroups : double(workgroups) * t.subgroups_n * t.subgroups_k;
  const double fetching = fetchers * t.fragments_n * parts * unit.shape.k * unit.shape.n * 2 * c.weight;
  // The busiest of the bounds, or more where they are near each other.
  const double multiplying = subgroups / double(kSchedulers) * products;
  const double reading = subgroups * (t.fragments_m + t.fragments_n) * parts * c.operand;
  const double busy = cube(multiplying) + cube(reading) + cube(fetching), alone = products + c.step;
  const double runs = g.body_steps < g.stage_steps ? double(g.stage_steps / g.body_steps) : 0;
  const double load = subgroups * (problem.taps_are_channels ? c.gather : c.load) + c.load_wait;
  const bool brings = parts == 1 && !problem.taps_are_channels, slides = p.kernel[1] * p.kernel[2] > 1;
  // Under several taps the octets of a strip lie in a line, which takes fewer registers.
  const bool crowded = brings && sums == kMostSums && g.stages > 1 && !(t.strip && slides);
  const double steps = double(g.stage_steps) * (parts > 1 && runs > 0 ? kSplitRuns : crowded ? kCrowded : 1);
  const double stage = steps * (busy > cube(alone) ? std::cbrt(busy) : alone) + runs * kRunCycles +
                       t.subgroups() * c.barrier + double(g.loads) * load +
                       (brings && slides && g.stages == 1 ? kLoneStageCycles : 0);
  const double quads = double(t.fragments_m * quads_finished(p, unit, t)) / t.subgroups_k;
  return double(g.share_stages) * stage + c.workgroup + quads * (subgroups * c.quad + c.quad_wait);
}

// Of siblings each one's part.
double estimate(const MatrixProblem& problem, const MatrixUnit& unit, const MatrixGrid& g, const Traits& traits) {
  const ConvProblem& p = problem.p;
  const double cycles =
      cycles_of_rounds(checked_mul(g.groups, problem.siblings), workgroups_at_once(problem, unit, g),
                       [&](std::int64_t workgroups) { return cycles_of(problem, unit, g, workgroups); });
  const double seconds = seconds_of_cycles(cycles / problem.siblings, unit, traits);
  const double bandwidth = traits.rates.memory_bytes_per_second;
  const double sum = 2 * traits.rates.launch_seconds + double(g.sums_bytes) * (1 + 1 / double(g.shares)) / bandwidth;
  return std::max(seconds, p.bytes_moved() / bandwidth) + (g.shares > 1 ? sum : 0);
}

// Matrices that do not fit registers go to memory, which costs time, and with those of fp32 an H200's driver (580) has
// been seen to compute NaN.
std::int64_t most_registers(const ConvProblem& p) { return parts_of(p.dtype) > 1 ? 205 : 197; }

// What does not depend on the problem is known before its grid.
bool possible(const MatrixUnit& unit, const MatrixTile& t, const Traits& traits) {
  const std::uint32_t sums = t.fragments_m * t.fragments_n;
  return sums <= kMostSums && t.subgroups() / t.subgroups_k * sums <= kMostWorkgroupSums &&
         t.fragments_n * unit.shape.n / 4 <= unit.lanes &&  // which finish a row of sums together
         t.subgroups() * unit.lanes <= traits.limits.workgroup_invocations;
}

// Runs of subgroups that share a tap's channels find their weights evenly apart if each starts with a tap. Those of
// cooperative matrices are whole stages.
bool runs_fit(const MatrixUnit& unit, const MatrixGrid& g) {
  if (g.tile.subgroups_k == 1 || g.body_steps == g.stage_steps) return true;
  return unit.emulated && g.body_steps % g.tile.tap_steps(unit) == 0;
}

bool fits(const MatrixProblem& problem, const MatrixUnit& unit, const MatrixGrid& g, const Traits& traits) {
  return g.shared_octets <= most_tile_octets(traits) &&
         (g.block_steps == 0 || parts_of(problem.p.dtype) == 1 ||
          g.tile.fragments_m * g.tile.fragments_n <= kMostBlockSums) &&
         (unit.emulated ? g.loads <= kMostEmulatedLoads : registers(problem, unit, g) <= most_registers(problem.p)) &&
         runs_fit(unit, g);
}

// With nothing that depends on the number of workgroups that share a sum.
MatrixGrid unshared_grid(const MatrixProblem& problem, const MatrixUnit& unit, const MatrixTile& tile) {
  const ConvProblem& p = problem.p;
  MatrixGrid g;
  g.tile = tile;
  g.layout = side_by_side(p, tile.columns(unit));
  const CooperativeMatrix& s = unit.shape;
  g.tiles_x = ceil_div(g.layout.columns(), tile.columns(unit));
  g.tiles_y = ceil_div(p.output[1], tile.rows());
  g.tiles_o = ceil_div(p.out_channels_per_group(), tile.channels(unit));
  g.chunks = ceil_div(p.in_channels_per_group(), tile.chunk_octets * kOctet);
  g.runs = g.tiles_o * tile.subgroups_n;
  g.stages = checked_mul(p.kernel[0], g.chunks);
  g.stage_steps = checked_mul(p.kernel[1] * p.kernel[2], tile.tap_steps(unit));
  g.steps = checked_mul(g.stages, g.stage_steps * tile.subgroups_k);
  g.tiles = checked_mul(checked_mul(g.tiles_x, g.tiles_y), checked_mul(g.tiles_o, p.groups));
  const std::int64_t halo_rows = extent_of(tile.rows(), p.kernel[1], p.stride[1], p.dilation[1]);
  const std::int64_t halo_columns = extent_of(tile.columns(unit), p.kernel[2], p.stride[2], p.dilation[2]);
  const std::int64_t wanted = halo_rows * tile.chunk_octets, column = wanted | 1;
  const std::int64_t columns = round_up(halo_columns, p.stride[2]), invocations = tile.subgroups() * unit.lanes;
  const std::int64_t parts = parts_of(p.dtype);
  g.stage_octets = checked_mul(columns, column * parts);
  g.shared_octets = shared_octets(g, unit, false);
  const bool whole_columns = parts == 1 && invocations % wanted == 0;  // see direct_matrix_sizes.glsl
  g.loads = ceil_div(columns * (whole_columns ? wanted : column), invocations);
  g.body_steps = body_steps(problem, unit, g);
  g.packed_blocks = checked_mul(checked_mul(p.groups * g.runs, g.steps), tile.fragments_n);
  // The step ahead of the last is read and not used, by subgroups along k those of a tap.
  const std::int64_t ahead = tile.fragments_n * (tile.chunk_octets * kOctet / s.k);
  const std::int64_t block_bytes = parts * s.k * s.n / kOctet * kOctetBytes;
  g.blocks_bytes = static_cast<std::size_t>(checked_mul(checked_add(g.packed_blocks, ahead), block_bytes));
  const std::int64_t scales = parts > 1 ? p.groups * g.runs * tile.fragments_n * s.n : 0;
  g.packed_bytes = g.blocks_bytes + static_cast<std::size_t>(scales) * sizeof(float);
  return g;
}

void set_shares(const MatrixProblem& problem, const MatrixUnit& unit, std::int64_t shares, const Traits& traits,
                MatrixGrid& g) {
  g.share_stages = ceil_div(g.stages, shares);
  g.shares = ceil_div(g.stages, g.share_stages);
  g.block_steps = block_steps(problem.p, unit, g);
  g.groups = checked_mul(g.tiles, g.shares);
  const std::int64_t sums = g.shares > 1 ? checked_mul(g.shares, problem.p.output_elements()) : 0;
  g.sums_bytes = static_cast<std::size_t>(sums) * sizeof(float);
  g.seconds = estimate(problem, unit, g, traits);
}

}  // namespace

std::int64_t shared_octets(const MatrixGrid& g, const MatrixUnit& unit, bool rounds_first) {
  const std::int64_t n = unit.shape.n, columns = g.tile.fragments_n * n;
  // As in direct_matrix_output.glsl.
  const std::int64_t row = rounds_first ? std::max(columns / 8 + 1, n / 4) : columns / 4 + 2;
  return std::max(g.stage_octets * (g.stages > 1 ? 2 : 1), g.tile.subgroups() * unit.shape.m * row);
}

MatrixGrid matrix_grid(const MatrixProblem& problem, const MatrixUnit& unit, const MatrixTile& tile,
                       std::int64_t shares, const Traits& traits) {
  MatrixGrid g = unshared_grid(problem, unit, tile);
  set_shares(problem, unit, shares, traits, g);
  return g;
}

std::int64_t emulated_iterations(const ConvProblem& p, const MatrixGrid& g, const MatrixUnit& unit) {
  const MatrixTile& t = g.tile;
  constexpr std::int64_t most_products = 3;  // of fp32
  const std::int64_t products = t.fragments_m * t.fragments_n * (most_products * (unit.shape.n + 1) + 1);
  const std::int64_t step = products + t.fragments_m + 2 * t.fragments_n + g.loads + 1;
  const std::int64_t stage_and_outputs = 2 * g.loads + 64 * products;
  const std::int64_t repaired = definition_iterations(p, 4 * t.fragments_m * quads_finished(p, unit, t));
  return checked_add(checked_add(checked_mul(g.steps, step), stage_and_outputs), repaired);
}

namespace {

// Puts the grid of a tile in place of `best` if its estimate is less, with as many shares of sums as are best.
void consider(const MatrixProblem& problem, const MatrixUnit& unit, const Traits& traits, MatrixTile t,
              std::int64_t most_shares, std::optional<MatrixGrid>& best) {
  const ConvProblem& p = problem.p;
  if (!possible(unit, t, traits)) return;
  t.strip = p.output[1] == 1;
  MatrixGrid g = unshared_grid(problem, unit, t);
  if (!fits(problem, unit, g, traits)) return;
  bool blocks = false;  // which shares make fewer
  const std::int64_t most = std::min(most_shares, g.stages);
  const auto worth = [&](std::int64_t shares) {
    return g.tiles * shares <= kSharedGroups || (blocks && shares * p.output_elements() <= kMostSharedSums);
  };
  for (std::int64_t shares = 1; shares == 1 || (shares <= most && worth(shares)); ++shares) {
    if (ceil_div(g.stages, ceil_div(g.stages, shares)) < shares) continue;  // fewer would have as few stages each
    set_shares(problem, unit, shares, traits, g);
    blocks = p.output_dtype != DType::f32 && g.block_steps != 0;
    if (fits(problem, unit, g, traits) && (!best || g.seconds < best->seconds)) best = g;
  }
}

std::optional<MatrixGrid> emulated_grid(const MatrixProblem& problem, const MatrixUnit& unit, const Traits& traits) {
  const ConvProblem& p = problem.p;
  const std::uint32_t least_octets = unit.shape.k / kOctet;
  std::optional<MatrixGrid> best;
  MatrixTile t = kEmulatedTile;
  for (std::uint32_t k = problem.taps_are_channels || p.in_channels_per_group() <= 16 ? 1 : 2; k > 0 && !best; --k) {
    t.subgroups_k = k;
    t.chunk_octets = std::max(kEmulatedTile.chunk_octets, least_octets) * k;
    for (t.fragments_m = 2; t.fragments_m > 0 && !best; --t.fragments_m) consider(problem, unit, traits, t, 1, best);
  }
  // The least tile of long sums leaves their outputs iterations enough, which taps take twice as channels of one.
  if (best && emulated_iterations(p, *best, unit) > kSoftwareLoopIterations / (problem.taps_are_channels ? 2 : 1)) {
    t = best->tile;
    t.fragments_m = t.fragments_n = 1;
    best.reset();
    consider(problem, unit, traits, t, 1, best);
  }
  // Sums of few outputs are shared too, so that this is tested.
  if (best && best->groups < 4 && problem.siblings == 1) best = matrix_grid(problem, unit, best->tile, 2, traits);
  return best;
}

}  // namespace

std::optional<MatrixGrid> choose_matrix_grid(const MatrixProblem& problem, const MatrixUnit& unit,
                                             const Traits& traits) {
  const ConvProblem& p = problem.p;
  if (unit.emulated) return emulated_grid(problem, unit, traits);
  std::optional<MatrixGrid> best;
  const std::uint32_t least_octets = unit.shape.k / kOctet;
  const bool may_split = !problem.taps_are_channels && parts_of(p.dtype) == 1;
  constexpr std::array<std::uint32_t, 3> kPowers{1, 2, 4};
  const std::int64_t most_shares = problem.siblings > 1 ? 1 : kMostShares;
  // Stages of one tap are short. Sixteen octets of fp32 hold registers for too long where another stage follows.
  const bool longest = parts_of(p.dtype) == 1 || (p.kernel[0] == 1 && p.in_channels_per_group() <= 16 * kOctet);
  const std::uint32_t most_octets = p.kernel[1] * p.kernel[2] > 1 ? 4 : longest ? 16 : 8;
  for (std::uint32_t octets = least_octets; octets <= std::max(most_octets, least_octets); octets *= 2)
    for (const std::uint32_t subgroups_m : kPowers)
      for (const std::uint32_t subgroups_n : kPowers)
        for (std::uint32_t fragments_m = 1; fragments_m <= 7; ++fragments_m)
          for (std::uint32_t fragments_n = 1; fragments_n <= 5; ++fragments_n) {
            if (subgroups_m * subgroups_n < 4 || subgroups_m * subgroups_n > 8) continue;
            consider(problem, unit, traits, {false, subgroups_m, subgroups_n, fragments_m, fragments_n, octets},
                     most_shares, best);
            if (may_split && octets > least_octets && subgroups_m * subgroups_n == 4 &&
                fragments_m * fragments_n <= kMostSplitSums)
              consider(problem, unit, traits, {false, subgroups_m, subgroups_n, fragments_m, fragments_n, octets, 2},
                       most_shares, best);
          }
  return best;
}

}  // namespace vkconv::vulkan
