#include "algorithms/implicit_gemm/dense.h"

#include <algorithm>
#include <optional>

#include "core/checked.h"
#include "cpu/staging.h"
#include "cpu/streaming.h"

namespace vkconv::cpu {
namespace {

constexpr std::int64_t kChunkPixels = 512;  // at this many, packing a panel for one chunk costs about 1 %
// Every chunk reads all panels once more, and packs those of a call. Below the first of these that costs more than
// smaller chunks save by more tasks or input that stays in L2; below the second, more than threads that end apart.
constexpr std::int64_t kFewChunkPixels = 128, kMinChunkPixels = 56;
constexpr double kEvenTasks = 1.08;  // tasks that the busiest of the threads has, over the mean
// About 10 us, far above the cost of a task; of one that a thread would go without, three times that of a section.
constexpr double kMinTaskFlops = 2e6, kMinOnlyTaskFlops = 5e5;
constexpr std::int64_t kTasksAThread = 4;  // so that threads finish together
// Of L2 for a chunk's input, which every panel reads again; that of parts is copied, and costs more from beyond L2.
constexpr std::int64_t kL2Part = 3, kL2PartOfParts = 2;
constexpr double kCopyReuse = 64;    // multiply-adds an input value from which copying it costs little
constexpr double kFewCopyReuse = 9;  // and of a tile of a few channels, which is short beside separate taps
constexpr std::int64_t kFewInputs = 4, kFewOutputs = 12, kShortRow = 1024, kShortestRow = 256;
constexpr std::int64_t kSomeInputs = 24, kSomeValues = 1600;  // of a pixel, and of a row that is short then
constexpr std::int64_t kLowRows = 7;                          // of tiles, below which a strided row of two is copied
constexpr std::int64_t kCopyReach = 16;  // inputs along W under an output, beyond which it does not

// Pixels of a chunk along W.
std::int64_t chunk_width(const DenseLayout& s) {
  return std::min(s.p.output[2], s.chunk_tiles * ceil_div(s.p.output[2], s.row_tiles));
}

// Bytes of input, as the micro-kernel reads it, that the panels of a group read under one chunk.
std::size_t chunk_input_bytes(const DenseLayout& s) {
  const std::size_t whole = size_bytes(s.copied ? accumulator(s.p.dtype) : s.p.dtype);
  const std::size_t element = s.parts > 1 ? static_cast<std::size_t>(s.parts) * size_bytes(DType::bf16) : whole;
  const std::int64_t channels = s.p.in_channels_per_group();
  return static_cast<std::size_t>(input_elements_bound(s.p, s.chunk_rows, chunk_width(s), channels)) * element;
}

void set_chunk(DenseLayout& s, std::int64_t pixels) {
  const std::int64_t width = s.p.output[2];
  s.chunk_rows = std::clamp<std::int64_t>(pixels / width, 1, s.rows);
  const std::int64_t pieces = std::clamp<std::int64_t>(width / pixels, 1, s.row_tiles);
  s.chunk_tiles = ceil_div(s.row_tiles, pieces);
  if (s.chunk_rows > 1 && s.chunk_rows < s.rows)
    s.chunk_rows = ceil_div(s.rows, std::min(s.rows, round_up(ceil_div(s.rows, s.chunk_rows), s.slots)));
}

bool widens(const DenseLayout& s) { return s.unit == Bf16Unit::none && size_bytes(s.p.dtype) == 2; }

std::size_t panel_bytes(const DenseLayout& s) {
  const std::size_t value = s.unit == Bf16Unit::none ? size_bytes(accumulator(s.p.dtype)) : size_bytes(DType::bf16);
  return aligned_bytes(checked_mul(s.terms * s.most_columns + 1, static_cast<std::int64_t>(value)));
}

std::vector<Range> reach_of_taps(const ConvProblem& p) {
  std::vector<Range> reach;
  for (std::int64_t k = 0; k < p.kernel[2]; ++k) reach.push_back(outputs_inside(p, 2, k));
  return reach;
}

// The same tasks without parts, of one group, a tile and a panel at a time.
DenseLayout undivided(DenseLayout s) {
  s.parts = 1;
  s.unit = Bf16Unit::none;
  s.undivided = s.one_row = nullptr;
  s.p = s.read;
  s.taps_are_channels = false;
  s.tap_reach = reach_of_taps(s.p);
  s.in = s.p.in_channels;
  s.terms = s.p.taps() * s.in;
  s.most_together = 1;
  s.copied = widens(s);
  s.panel_bytes = panel_bytes(s);
  s.stage_bytes = s.copied ? copy_bytes(s.p, s.chunk_rows, chunk_width(s), s.in) : 0;
  return s;
}

// A task copies the channels of its groups. Two values in bf16 take a float's room.
void set_stage(DenseLayout& s) {
  if (s.parts > 1) s.undivided = std::make_shared<DenseLayout>(undivided(s));
  if (!s.copied) return;
  const std::int64_t most_groups = (s.task_panels + s.panels - 2) / s.panels + 1;
  const std::int64_t values = s.parts > 1 ? s.in / 2 : s.in;
  s.stage_bytes = copy_bytes(s.p, s.chunk_rows, chunk_width(s), values * std::min(s.p.groups, most_groups));
}

// Panels a task: as many as leave enough tasks, since they read the same input out of L2.
void set_panels(DenseLayout& s, std::int64_t wanted_tasks) {
  const double flops =
      2.0 * static_cast<double>(chunk_width(s) * s.chunk_rows * s.columns) * static_cast<double>(s.terms);
  const std::int64_t chunks = s.row_chunks() * s.tile_chunks();
  const auto parts_of = [&](std::int64_t tasks, double least_flops) {
    const auto enough = static_cast<std::int64_t>(std::min(1e9, least_flops / flops)) + 1;
    const std::int64_t most = std::max(enough, ceil_div(s.all_panels() * chunks, tasks));
    return ceil_div(s.all_panels(), std::min(most, s.all_panels()));
  };
  std::int64_t parts = parts_of(wanted_tasks, kMinTaskFlops);
  if (s.p.groups == 1 && parts * chunks < s.slots) parts = parts_of(s.slots, kMinOnlyTaskFlops);
  // The parts of a chunk follow each other: as many as threads, or a multiple, they end together.
  if (parts > 1 && chunks % s.slots != 0) parts = std::min(round_up(parts, s.slots), s.all_panels());
  s.task_panels = ceil_div(s.all_panels(), parts);
  set_stage(s);
}

// A copy saves the tiles at the ends of a row their separate taps; chunks that overlap much would copy too much, and of
// pixels of some channels a stride apart, few tiles meet what every task copies (0.87 to 0.99 of the time without, but
// 1.02 to 1.09 where rows are two low tiles, which then meet a panel one by one). Halves are always widened.
bool worth_a_copy(const DenseLayout& s) {
  const ConvProblem& p = s.p;
  const double strides = static_cast<double>(p.stride[0] * p.stride[1] * p.stride[2]);
  const double reuse = static_cast<double>(p.taps() * p.out_channels_per_group()) / strides;
  const bool ends = p.kernel[2] > 1 && (p.pad_lo[2] > 0 || pad_hi(p, 2) > 0);
  const std::int64_t short_row = p.out_channels_per_group() <= kFewOutputs ? kShortRow : kShortestRow;
  const std::int64_t in = p.in_channels_per_group();
  const bool few = in <= kFewInputs ? p.output[2] <= short_row : in <= kSomeInputs && in * p.output[2] <= kSomeValues;
  const bool two_low = s.row_tiles == 2 && s.tile.most_rows(s.vectors()) < kLowRows;
  if (!few && p.stride[2] > 1 && !two_low) return false;
  return ends && reuse >= (few ? kFewCopyReuse : kCopyReuse) && dilated(p.kernel[2], p.dilation[2]) <= kCopyReach;
}

// Whether the rows of a pointwise problem come from memory, or are longer than what the hardware fetches by itself, of
// an input that outgrows the cores' own caches: 256 channels to 32 at 8x28x28 then take 0.50 ms instead of 0.70.
bool fetches_rows(const Traits& t, const ConvProblem& p) {
  constexpr std::int64_t kLongBytes = 256;
  const std::int64_t bytes = p.in_channels * static_cast<std::int64_t>(size_bytes(p.dtype));
  const auto read = static_cast<double>(p.batch * p.output_pixels() * bytes);
  return comes_from_memory(t, p) || (bytes >= kLongBytes && read > own_cache_bytes(t));
}

// With the taps along W as channels: each output reads a pixel of its own.
ConvProblem with_taps_as_channels(ConvProblem p) {
  p.in_channels *= p.kernel[2];
  p.kernel[2] = p.stride[2] = p.dilation[2] = 1;
  p.pad_lo[2] = 0;
  p.input[2] = p.output[2];
  return p;
}

// Whether tiles then have much fewer zeros.
bool fills_tiles(const ConvProblem& p) {
  const std::int64_t in = p.in_channels_per_group(), taps = p.kernel[2];
  return p.groups == 1 && 2 * taps * round_up(in, kTileTerms) >= 3 * round_up(taps * in, kTileTerms);
}

// Zeros fill up the channels of a unit's pairs or tiles; of several groups, pixels are copied with none between them.
Bf16Unit bf16_unit(const ConvProblem& p, const Traits& t) {
  const std::int64_t in = p.in_channels_per_group();
  const auto share = [&](std::int64_t channels, std::int64_t terms) {
    if (p.groups > 1 && in % terms != 0) return 0.0;
    return static_cast<double>(channels) / static_cast<double>(round_up(channels, terms));
  };
  return fastest_unit(p, t, share(in, 2), share(fills_tiles(p) ? in * p.kernel[2] : in, kTileTerms));
}

// Cuts the outputs of a group into panels. Those of few pixels are what tasks share: two vectors, the last of them
// alone, where that leaves the busiest thread less. Beside tiles of three they are slower, much so in short rows, which
// those of pointwise problems seldom are. All pixels as one row are cut alike: they share prepared weights.
void cut_panels(DenseLayout& s, std::int64_t threads) {
  constexpr double kSlower = 1.2;
  const std::int64_t all = ceil_div(s.p.out_channels_per_group(), s.tile.lanes);
  std::int64_t vectors = s.tile.vectors(all);
  bool takes_one = vectors == 2 && s.tile.leaves_one(all);
  const bool by_three = s.tile.vectors() == 3;
  const bool few = s.p.batch * s.p.output_pixels() < 2 * kMinChunkPixels;
  if (few && (!by_three || is_pointwise(s.p))) {
    const auto busiest = [&](std::int64_t panels, std::int64_t of_each) {
      return static_cast<double>(of_each * ceil_div(panels * s.p.groups, threads));
    };
    const double now = takes_one ? busiest(all / 2, 2) + 1 : busiest(ceil_div(all, vectors), vectors);
    if (busiest(ceil_div(all, 2), 2) * (by_three ? kSlower : 1) < now) vectors = 2, takes_one = false;
  }
  s.columns = vectors * s.tile.lanes;
  s.most_columns = s.columns + (takes_one ? s.tile.lanes : 0);
  s.panels = takes_one ? all / 2 : ceil_div(all, vectors);
}

// The problem by its axes, and how the operands are read and packed.
DenseLayout dense_form(const ConvProblem& problem, const Context<Device>& context, RegisterTile tile, int parts) {
  DenseLayout s;
  s.original = problem;
  if (const auto row = one_row(problem))
    s.one_row = std::make_shared<DenseLayout>(dense_layout(*row, context, tile, parts));
  s.orientation = long_rows(problem, std::min<std::int64_t>(tile.most_rows(2), 7));
  s.p = s.read = s.orientation.apply(problem);
  s.parts = parts;
  s.unit = parts > 1 ? Bf16Unit::tiles : bf16_unit(s.p, context.traits);
  s.taps_are_channels = s.unit == Bf16Unit::tiles && fills_tiles(s.p);
  if (s.taps_are_channels) s.p = with_taps_as_channels(s.p);
  const ConvProblem& p = s.p;
  const std::int64_t in = p.in_channels_per_group();
  s.tile = s.unit == Bf16Unit::none ? tile : register_tile(s.unit);
  cut_panels(s, context.traits.threads);
  s.in = round_up(in, terms_together(s.unit)) * parts;
  s.terms = p.taps() * s.in;
  s.tap_reach = reach_of_taps(p);
  s.row_tiles = ceil_div(p.output[2], s.tile.most_rows(s.vectors()));
  s.rows = p.batch * p.output[0] * p.output[1];
  s.copied = widens(s) || s.in > in || s.taps_are_channels || (s.unit != Bf16Unit::dot && worth_a_copy(s));
  s.fetched =
      parts == 1 && is_pointwise(p) && p.groups == 1 && (s.unit == Bf16Unit::tiles || fetches_rows(context.traits, p));
  s.panel_bytes = panel_bytes(s);
  const auto in_l1 = static_cast<std::int64_t>(context.traits.l1_bytes / s.panel_bytes);
  s.most_together =
      std::clamp<std::int64_t>(std::min(std::max(in_l1, s.tile.panels()), s.wide_panels(true)), 1, kMostTogether);
  s.slots = context.traits.threads;
  return s;
}

// Tasks of as many pixels as L2 holds the input of, but enough of them that threads end together. Returns how many.
std::int64_t cut_tasks(DenseLayout& s, const Context<Device>& context) {
  const std::int64_t wanted = context.traits.threads > 1 ? kTasksAThread * context.traits.threads : 1;
  const auto tasks = [&] { return s.row_chunks() * s.tile_chunks() * s.panel_chunks(); };
  const double pixel_flops = 2.0 * static_cast<double>(s.terms * s.p.out_channels_per_group());
  std::int64_t pixels = std::max(kChunkPixels, static_cast<std::int64_t>(kMinTaskFlops / pixel_flops));
  set_chunk(s, pixels);
  set_panels(s, wanted);
  const std::size_t part = context.traits.l2_bytes / (s.parts > 1 ? kL2PartOfParts : kL2Part);
  const std::int64_t few = s.parts > 1 ? kFewChunkPixels / 2 : kFewChunkPixels;
  const auto spills = [&] { return s.stage_bytes > part || (s.panels > 1 && chunk_input_bytes(s) > part); };
  const auto uneven = [&] {
    return static_cast<double>(round_up(tasks(), s.slots)) > kEvenTasks * static_cast<double>(tasks());
  };
  while (pixels > kMinChunkPixels && (uneven() || (pixels > few && (tasks() < wanted || spills())))) {
    set_chunk(s, pixels /= 2);
    set_panels(s, wanted);
  }
  return pixels;
}

// Whether weights of a call are packed once, and less of all else until the workspace is within the limit. Tasks have
// `pixels`.
void fit_workspace(DenseLayout& s, const Context<Device>& context, std::int64_t pixels) {
  const bool again = s.row_chunks() * s.tile_chunks() > context.traits.threads;  // a panel is packed more than once
  s.shared_weights = again && s.own_workspace_bytes() + s.packed_bytes() <= context.workspace_limit_bytes;
  while (s.most_together > 1 && s.own_workspace_bytes() > context.workspace_limit_bytes) --s.most_together;
  while (s.slots > 1 && s.own_workspace_bytes() > context.workspace_limit_bytes) --s.slots;
  while (pixels > 1 && s.own_workspace_bytes() > context.workspace_limit_bytes) {
    set_chunk(s, pixels /= 2);
    set_stage(s);
  }
}

}  // namespace

DenseLayout dense_layout(const ConvProblem& problem, const Context<Device>& context, RegisterTile tile, int parts) {
  DenseLayout s = dense_form(problem, context, tile, parts);
  fit_workspace(s, context, cut_tasks(s, context));
  return s;
}

}  // namespace vkconv::cpu
