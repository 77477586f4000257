#include "algorithms/depthwise/depthwise_blocking.h"

#include <algorithm>
#include <numeric>

#include "algorithms/depthwise/depthwise_region.h"
#include "cpu/half_vectors.h"
#include "cpu/streaming.h"

namespace vkconv::cpu::depthwise {
namespace {

constexpr std::int64_t kChannelUnit = 64;  // of a channel block, on average at least
constexpr std::int64_t kChannelStep = 16;  // that channel blocks begin at multiples of
constexpr std::int64_t kMinColumns = 48;   // of a column block made for the threads' sake
constexpr std::int64_t kBandRows = 16;     // that a copied band has at least, where the channels can be split for it
constexpr std::int64_t kUnevenPercent = 110, kIdlePercent = 180;  // the longest share of the threads, of an equal one
constexpr std::int64_t kManyTaps = 25;  // from which lines in L1 are worth shorter runs of memory
constexpr double kSmallSeconds = 3e-4;  // below this one task a thread; above, more, so that they end together
constexpr std::int64_t kTasksPerThread = 4;

std::int64_t channel_units(const ConvProblem& p) { return std::max<std::int64_t>(1, p.out_channels / kChannelUnit); }

// The i-th of `parts` parts.
Range channel_range(const ConvProblem& p, std::int64_t i, std::int64_t parts) {
  const auto begin = [&](std::int64_t part) { return p.out_channels * part / parts / kChannelStep * kChannelStep; };
  return {begin(i), i + 1 == parts ? p.out_channels : begin(i + 1)};
}

std::int64_t channel_parts(const Blocking& b) { return b.channel_shares * b.channel_blocks; }

Range column_range(const ConvProblem& p, const Blocking& b, std::int64_t block) {
  return nth_part(p.output[2], block, b.column_blocks);
}

// Sizes of the largest block.
std::int64_t block_channels(const ConvProblem& p, const Blocking& b) {
  return std::min(ceil_div(p.out_channels, channel_parts(b)) + kChannelStep, p.out_channels);
}
std::int64_t block_columns(const ConvProblem& p, const Blocking& b) { return ceil_div(p.output[2], b.column_blocks); }

// Input elements that `outputs` neighbouring outputs read along an axis, padding aside.
std::int64_t reach(const ConvProblem& p, int axis, std::int64_t outputs) {
  return std::min(inputs_under(p, axis, outputs), p.input[axis]);
}

// Whether L2 cannot hold the pixels behind one row of outputs, however few of their channels are taken: pixels a large
// power of two apart share few of its sets.
bool pixels_collide(const ConvProblem& p, const Device::Traits& traits) {
  constexpr std::int64_t kWays = 16;
  const auto bytes = static_cast<std::int64_t>(traits.l2_bytes);
  const std::int64_t apart = p.in_channels * static_cast<std::int64_t>(size_bytes(p.dtype));
  return reach(p, 1, 1) * reach(p, 2, p.output[2]) * std::gcd(apart, bytes / kWays) > bytes;
}

// Whether the lines of a tile, one of each pixel, share a set of L1, and meet enough taps to be worth a copy.
bool pixels_crowd(const ConvProblem& p, const Device::Traits& traits, bool from_memory) {
  constexpr std::int64_t kReuse = 4, kLongRow = 9;  // taps of an input; of a row where rows share no lines
  if (!waits_in_sets(traits) || (from_memory && p.taps() < kManyTaps)) return false;
  return crowd_sets(p.in_channels * static_cast<std::int64_t>(size_bytes(p.dtype))) &&
         reach(p, 2, p.output[2]) >= kCrowdedRows && p.taps() >= kReuse * p.stride[1] * p.stride[2] &&
         (p.kernel[1] > p.stride[1] || (p.kernel[1] == p.stride[1] && p.kernel[2] >= kLongRow));
}

// Fewer channels than a vector has lanes are taken together with the columns. Pixels that are in each other's way are
// copied apart where outputs share them.
Mode choose_mode(const ConvProblem& p, const Device::Traits& traits, bool from_memory) {
  if (p.out_channels < lanes_of(traits, p.dtype)) return Mode::flat;
  if (p.out_channels_per_group() > 1) return Mode::staged;
  const bool collide = p.kernel[1] > p.stride[1] && p.kernel[0] == 1 && pixels_collide(p, traits);
  return collide || pixels_crowd(p, traits, from_memory) ? Mode::staged : Mode::direct;
}

// Bytes of the input behind `rows` rows of a block: what must stay in L2 for the kernel rows to share it.
std::int64_t input_bytes(const ConvProblem& p, const Blocking& b, std::int64_t rows) {
  return reach(p, 0, 1) * reach(p, 1, rows) * reach(p, 2, block_columns(p, b)) * block_channels(p, b) *
         accumulator_bytes(p.dtype);
}

// Scratch of the largest block.
std::size_t scratch_bytes(const ConvProblem& p, const Blocking& b) {
  if (b.mode == Mode::direct) return 0;
  const std::int64_t channels = block_channels(p, b), slack = kFlatVectors * kMaxLanes;
  const std::int64_t columns = reach(p, 2, block_columns(p, b)), lines = reach(p, 0, 1) * reach(p, 1, b.band);
  std::int64_t line = columns * (channels + kLineBytes / accumulator_bytes(p.dtype)), sums = 0;
  if (b.mode == Mode::flat) {
    line += p.stride[2] * (2 * slack + 5 * channels + kMaxLanes);
    sums = kMaxFlatRows * (block_columns(p, b) * channels + slack);
  }
  return aligned_bytes((lines * line + sums) * accumulator_bytes(p.dtype));
}

// `parts`: the blocks, or the shares.
bool split_channels(const ConvProblem& p, Blocking& b, std::int64_t Blocking::*parts) {
  if (b.mode == Mode::flat || 2 * channel_parts(b) > channel_units(p)) return false;
  b.*parts *= 2;
  return true;
}

bool split_columns(const ConvProblem& p, Blocking& b, std::int64_t least) {
  if (block_columns(p, b) < 2 * least) return false;
  b.column_blocks *= 2;
  return true;
}

// Channels are split until the lines behind one row stay in L2, or L1; rows are banded when depths or a copy share
// lines.
void fit_cache(const ConvProblem& p, const Device::Traits& traits, Blocking& b) {
  const auto budget = static_cast<std::int64_t>(traits.l2_bytes / 2);
  // Lines that two bands share are copied twice: a copied band is several times as high as its overlap.
  const std::int64_t rows = b.mode == Mode::direct ? 1 : std::min(b.band, kBandRows);
  const bool in_l1 = b.mode == Mode::direct && p.taps() >= kManyTaps && !shared_cache_is_slow(traits);
  const std::int64_t lines_budget = in_l1 ? static_cast<std::int64_t>(traits.l1_bytes * 2 / 3) : budget;
  if (p.kernel[0] * p.kernel[1] > 1)
    while (input_bytes(p, b, rows) > lines_budget && split_channels(p, b, &Blocking::channel_blocks)) {
    }
  const bool banded = b.mode != Mode::direct || p.kernel[0] > 1;
  while (banded && b.band > 1 && input_bytes(p, b, b.band) > budget)
    b.band = std::max<std::int64_t>(1, (b.band - 1) / 2 * 2);
  const std::int64_t least = std::max(kMinColumns, (p.kernel[2] - 1) * p.dilation[2] / p.stride[2]);
  while (b.mode != Mode::direct && input_bytes(p, b, b.band) > budget &&
         (split_columns(p, b, least) || split_channels(p, b, &Blocking::channel_blocks))) {
  }
}

// Enough rows for every thread, in shares as equal, and at least `wanted`. Columns are split before channels, and those
// only where threads would be idle for half of the time: a core that writes its part of every pixel fetches the lines
// behind it too, which another core has written and must fetch back: on Zen 4 most layers take 1.3 to 2.6 times as
// long.
void feed_threads(const ConvProblem& p, const Device::Traits& traits, std::int64_t wanted, Blocking& b) {
  const std::int64_t threads = traits.threads;
  const auto longest_percent = [&] {  // of an equal share
    const std::int64_t rows = total_rows(p, b);
    return ceil_div(rows, threads) * threads * 100 / rows;
  };
  while (threads > 1 && (longest_percent() > kUnevenPercent || total_rows(p, b) < wanted) &&
         split_columns(p, b, kMinColumns)) {
  }
  while (longest_percent() > kIdlePercent && split_channels(p, b, &Blocking::channel_shares)) {
  }
}

// Elements of packed weights.
std::int64_t weight_row_length(const ConvProblem& p, std::int64_t lanes) {
  const std::int64_t vectors = flat_weight_vectors(p.out_channels, lanes);
  if (p.out_channels >= lanes) return round_up(p.out_channels, 16);
  return round_up(vectors * lanes + (vectors < kFlatVectors ? 0 : p.out_channels), 16);
}

// Rows after which the next phase has its turn: all that they write stays in L2. An even number, for rows go in pairs.
std::int64_t rows_in_turn(const Phases& phases, const Device::Traits& traits) {
  const auto budget = static_cast<std::int64_t>(traits.l2_bytes / 2);
  const ConvProblem& p = phases.largest;
  const std::int64_t row = std::ssize(phases.list) * p.output[0] * p.output[2] * p.out_channels *
                           static_cast<std::int64_t>(size_bytes(p.output_dtype));
  return std::clamp<std::int64_t>(budget / std::max<std::int64_t>(row, 1) / 2 * 2, 2,
                                  std::max<std::int64_t>(p.output[1], 2));
}

}  // namespace

Device::Traits with_vectors_of(const ConvProblem& p, Device::Traits traits) {
  const std::int64_t lanes = lanes_of(traits, p.dtype), channels = p.out_channels;
  const bool available = traits.half_vector_share > 0 && traits.vector_bytes == 2 * kHalfVectorBytes;
  if (!available || channels >= lanes || 2 * channels < lanes || p.out_channels_per_group() > 1) return traits;
  traits.vector_bytes = kHalfVectorBytes;
  traits.f32_flops_per_second *= traits.half_vector_share;
  traits.f64_flops_per_second *= traits.half_vector_share;
  return traits;
}

Blocking choose_blocking(const Phases& phases, const Device::Traits& traits, std::size_t limit) {
  const ConvProblem& p = phases.largest;
  const double bytes = phases.whole.bytes_moved();
  Blocking b;
  b.stream = bytes > static_cast<double>(traits.l3_bytes) / 2;
  b.mode = phases.dilated() ? Mode::direct : choose_mode(p, traits, b.stream);
  b.band = phases.dilated() ? rows_in_turn(phases, traits) : p.output[1];
  // Several loads of a vector go with one store of one, six and more at a stride, but a store across two lines waits
  // for both.
  const bool strided_rows = p.kernel[1] > 1 && p.stride[2] > 1;
  b.align_inputs = !b.stream && (strided_rows || !shared_cache_is_slow(traits));
  b.narrow = shared_cache_is_slow(traits) && bytes > own_cache_bytes(traits);
  fit_cache(p, traits, b);
  b.weight_row_length = weight_row_length(p, lanes_of(traits, p.dtype));
  b.weight_bytes = aligned_bytes(phases.whole.taps() * b.weight_row_length * accumulator_bytes(p.dtype));
  const double seconds = phases.flops() / traits.f32_flops_per_second + bytes / traits.memory_bytes_per_second;
  const std::int64_t wanted = traits.threads * (seconds < kSmallSeconds ? 1 : kTasksPerThread);
  feed_threads(p, traits, wanted, b);
  b.tasks = std::min(total_rows(p, b), wanted);
  b.scratch_bytes = scratch_bytes(p, b);
  while (b.workspace_bytes() > limit) {
    if (b.tasks > traits.threads)
      b.tasks = traits.threads;
    else if (b.mode == Mode::staged && p.out_channels_per_group() == 1)
      b.mode = Mode::direct;
    else if (b.band > 1)
      b.band = ceil_div(b.band, 2);
    else if (!split_channels(p, b, &Blocking::channel_blocks) && !split_columns(p, b, 1)) {
      if (b.tasks == 1) break;
      b.tasks /= 2;
    }
    b.scratch_bytes = scratch_bytes(p, b);
  }
  return b;
}

std::int64_t total_rows(const ConvProblem& p, const Blocking& b) {
  return p.batch * b.channel_shares * b.column_blocks * p.output[0] * p.output[1];
}

Block block_at(const ConvProblem& p, const Blocking& b, std::int64_t index, std::int64_t rows,
               std::int64_t channel_block) {
  const std::int64_t image_rows = p.output[0] * p.output[1];
  const std::int64_t row = index % image_rows, outer = index / image_rows;
  const std::int64_t column = outer % b.column_blocks, share = outer / b.column_blocks % b.channel_shares;
  Block k;
  k.n = outer / b.column_blocks / b.channel_shares;
  k.channels = channel_range(p, share * b.channel_blocks + channel_block, channel_parts(b));
  k.ow = column_range(p, b, column);
  const std::int64_t band = row / (b.band * p.output[0]) * b.band, height = std::min(b.band, p.output[1] - band);
  const std::int64_t within = row - band * p.output[0];
  k.od = within / height;
  k.oh.begin = band + within % height;
  k.oh.end = std::min(band + height, k.oh.begin + rows);
  return k;
}

Block part_of_phase(const ConvProblem& p, Block block) {
  block.oh.end = block.od < p.output[0] ? std::min(block.oh.end, p.output[1]) : block.oh.begin;
  block.ow.end = std::min(block.ow.end, p.output[2]);
  return block;
}

}  // namespace vkconv::cpu::depthwise
