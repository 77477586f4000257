#include "algorithms/winograd/winograd_blocking.h"

#include <algorithm>
#include <cmath>

#include "core/checked.h"
#include "cpu/estimates.h"
#include "cpu/streaming.h"

namespace vkconv::cpu::winograd {
namespace {

// Costs beside the products, in multiply-adds counted as two at the peak rate, measured with 512-bit vectors: of each
// float of a transformed array, of one call of the micro-kernel, and of one product, which is a few such calls.
// Transforms are additions, loads and stores: they do not wait where a core multiplies half a vector at a time.
constexpr double kTransformRateOfLane = 1.06e10;
constexpr double kInputTransformFlops = 26, kDeepInputTransformFlops = 80;
constexpr double kOutputTransformFlops = 20, kDeepOutputTransformFlops = 40;
constexpr double kWeightTransformFlops = 20, kDeepWeightTransformFlops = 80, kDeepStreamedFlops = 50;
constexpr double kMicroKernelFlops = 1500;
constexpr double kProductFlops = 4500;
// Products of panels of one vector, as a multiple: each value of an input is loaded for one multiply-add.
constexpr double kOneVector = 1.4;
// Of the channels that fill no vector and go through a copy: of a pixel, and of a tile.
constexpr double kCopyFlops = 120, kTileCopyFlops = 10000;
// Transforms of tiles whose rows, or whose pixels, are slices or rows of the array, as a multiple of others.
constexpr double kRowsApart = 1.15, kPixelsApart = 1.6;
constexpr double kPeakShare = 0.92;
// Rows of a micro-kernel below which the latency of its additions shows.
constexpr double kMinRows = 4;
// Of the shared cache, what a process can count on where others fill it too, whether they are seen or not.
constexpr double kSharedCacheBytes = 48 << 20;
// Reads of the shared cache in the time of one, where the products hide the others.
constexpr double kHiddenReads = 2;
constexpr double kParallelSeconds = 1.5e-6;
// The same where what threads hand over goes through memory, however little it is.
constexpr double kThroughMemorySeconds = 6.5e-6;

constexpr std::int64_t kTileCandidates[] = {7, 14, 28, 42, 56, 84, 112, 168, 224, 336};
constexpr std::int64_t kDepthCandidates[] = {1, 2, 3, 4, 6, 8, 12, 16};  // a step

// Summed-axis outputs whose tiles share no product with those of their neighbours: a stride is between them, or their
// first tap lies on padding, so that they begin with another one.
std::int64_t lone_depths(const Geometry& g) {
  const ConvProblem& p = g.problem;
  return g.folded || p.stride[0] > 1 ? g.depths : outputs_inside(p, 0, 0).begin;
}

// Vectors of a panel: two, or one or three where a group has no more. Of more outputs three are slower: the sums of a
// pair of panels leave less of L2 to the tiles.
std::int64_t panel_vectors(const Geometry& g, const RegisterTile& tile) {
  const std::int64_t all = ceil_div(g.out_channels, tile.lanes);
  return all == 1 || (all == 3 && tile.most_rows(3) > 0) ? all : 2;
}

// What one thread spends.
struct Costs {
  const Geometry& g;
  const Traits& traits;
  PanelLayout panels;
  std::int64_t max_rows, lanes;
  double used = g.used_share();
  std::int64_t lone = lone_depths(g);

  double seconds_of_flops(double flops) const {
    return flops * traits.threads / (traits.f32_flops_per_second * kPeakShare);
  }
  double transform_seconds(double flops) const {
    const double products = traits.f32_flops_per_second / traits.threads;
    return flops / (kPeakShare * std::max(products, kTransformRateOfLane * static_cast<double>(lanes)));
  }
  // What the transforms of a tile cost, as a multiple of one in the array's last two axes. Tiles of one axis lie along
  // the only one that has taps for them.
  double scatter() const {
    if (g.shape.deep() || g.shape.points_h() == 1) return 1;
    return g.orientation.axes[2] != 2 ? kPixelsApart : g.orientation.axes[1] != 1 ? kRowsApart : 1;
  }
  double own_cache_rate() const { return traits.cache_bytes_per_second / traits.threads; }
  double shared_cache_rate() const { return traits.shared_cache_read_bytes_per_second / traits.threads; }
  // Of a byte that is copied out of the shared cache instead of the thread's own.
  double eviction_seconds() const {
    return std::max(0.0, traits.threads / traits.shared_cache_bytes_per_second - 1 / own_cache_rate());
  }
  double weight_floats() const {  // of one group, without padding
    return static_cast<double>(g.shape.points() * g.terms() * g.out_channels) * used;
  }
  // Reading and transforming the weights of one group once.
  double weight_transform(bool stream) const {
    const double bytes = static_cast<double>(g.problem.taps() * g.in_channels * g.out_channels) *
                         static_cast<double>(size_bytes(g.problem.dtype));
    const double deep = stream ? kDeepStreamedFlops : kDeepWeightTransformFlops;
    const double transforms = g.shape.deep() ? deep : kWeightTransformFlops;
    return transform_seconds(weight_floats() * transforms) + bytes / panel_rate(bytes);
  }
  // Of the panels of one group that all threads transform, in so much time, for each other: out of one core's cache
  // into another's, or into memory meanwhile and out of it again.
  double sharing_seconds(double transforms, bool stream) const {
    const double bytes = weight_floats() * sizeof(float);
    if (!stream) return transforms + bytes / (kBetweenCoresShare * traits.cache_bytes_per_second);
    return partly_hidden(transforms,
                         bytes / traits.memory_bytes_per_second + bytes / traits.shared_cache_read_bytes_per_second);
  }
  double memory_rate() const { return traits.memory_read_bytes_per_second / traits.threads; }
  // Out of the cache that `bytes` of weights fit.
  double panel_rate(double bytes) const {
    if (!fit_shared_cache(traits, bytes)) return memory_rate();
    if (bytes <= 0.5 * static_cast<double>(traits.l2_bytes)) return own_cache_rate();
    const double held = std::min(1.0, kSharedCacheBytes / bytes);
    return 1 / (held / shared_cache_rate() + (1 - held) / memory_rate());
  }

  // Of what outgrows the thread's own cache, beside `all_bytes` that pass through the shared one.
  double outer_rate(double all_bytes) const {
    if (all_bytes > 0.4 * static_cast<double>(traits.l3_bytes)) return memory_rate();
    return shared_cache_rate();
  }

  // Products of `count` depths, `together` in one, their row blocks, and their rows as far as they cost.
  struct Rows {
    double products, blocks, rows;
  };
  Rows rows_of(std::int64_t tiles, std::int64_t together, std::int64_t count) const {
    if (count == 0) return {0, 0, 0};
    together = std::min(together, count);
    const auto products = static_cast<double>(ceil_div(count, together));
    const double blocks = products * static_cast<double>(ceil_div(tiles * together, max_rows));
    return {products, blocks, std::max(static_cast<double>(tiles * count), kMinRows * blocks)};
  }

  // Products of `tiles` tiles, at `depths` outputs each, with a share of the output blocks of one group.
  double products(const Blocking& b, std::int64_t tiles, std::int64_t depths, double output_blocks) const {
    const double points = g.shape.points(), terms = static_cast<double>(g.terms());
    const double steps = static_cast<double>(ceil_div(depths, b.depths_per_step));
    const std::int64_t alone = std::min(lone, depths);
    const Rows outer = rows_of(tiles, 1, alone), inner = rows_of(tiles, b.depths_per_step, depths - alone);
    const double calls =
        (outer.blocks + inner.blocks) * kMicroKernelFlops + (outer.products + inner.products) * kProductFlops;
    const double panel = points * terms * static_cast<double>(b.columns) * output_blocks * used;
    const double narrow = b.columns == lanes ? kOneVector : 1;
    const double compute = seconds_of_flops(2 * narrow * (outer.rows + inner.rows) * panel +
                                            calls * points * static_cast<double>(g.reduction.size()) * output_blocks);
    if (b.source == WeightSource::fused) return compute;
    const double all_bytes = static_cast<double>(panels.floats()) * used * sizeof(float);
    const double read = steps * panel * sizeof(float) / panel_rate(all_bytes);
    return fit_shared_cache(traits, all_bytes) ? partly_hidden(compute, read) : std::hypot(compute, read);
  }
  // Of one point: one for each part, where those of a stride are no neighbours in memory.
  double copies() const {
    const std::int64_t together = g.in_channels < lanes ? g.problem.stride[2] : 1;
    if (g.in_channels % lanes == 0) return 0;
    return std::ceil(static_cast<double>(g.parts.size()) / static_cast<double>(together));
  }
  double input_transform(const Blocking& b, std::int64_t tiles, std::int64_t slices) const {
    const double points = static_cast<double>(g.shape.points());
    const double transforms =
        static_cast<double>(b.tile_pitch) * (g.shape.deep() ? kDeepInputTransformFlops : kInputTransformFlops);
    const double of_tile = points * transforms + copies() * (points * kCopyFlops + kTileCopyFlops);
    return scatter() * transform_seconds(static_cast<double>(tiles * slices) * of_tile);
  }
  double output_transform(const Blocking& b, std::int64_t tiles, std::int64_t depths, double output_blocks) const {
    const double sums = static_cast<double>(tiles * depths * g.shape.points() * b.columns) * output_blocks;
    return scatter() * transform_seconds(sums * (g.shape.deep() ? kDeepOutputTransformFlops : kOutputTransformFlops));
  }
};

std::int64_t slices_of(const Geometry& g, std::int64_t depths) {
  if (g.folded) return 1;
  return std::min({inputs_under(g.problem, 0, depths), depths * g.problem.kernel[0], g.problem.input[0]});
}

std::int64_t slots_of(const Geometry& g, std::int64_t depths) {
  if (g.folded) return 1;
  return std::min(inputs_under(g.problem, 0, depths), g.problem.input[0]);
}

// What leaves the thread's cache while a unit's panels pass through it: the transformed tiles, which every step through
// the output blocks reads, and the sums, which it writes and reads.
double evictions(const Blocking& b, const Costs& c, double steps, double output_blocks) {
  const double l2_bytes = static_cast<double>(c.traits.l2_bytes);
  const double input_bytes = static_cast<double>(b.input_floats) * sizeof(float);
  const double sum_bytes = static_cast<double>(b.all_sum_floats()) * sizeof(float);
  const double panel_bytes =
      static_cast<double>(b.source == WeightSource::fused ? b.chunk_floats : c.panels.panel_floats) * sizeof(float);
  const double step_panels = b.source == WeightSource::fused ? 0 : static_cast<double>(b.blocks_per_step) * panel_bytes;
  const double rate = c.outer_rate(static_cast<double>(b.threads) * (input_bytes + sum_bytes) + step_panels);
  const double block_steps = steps * std::ceil(output_blocks / static_cast<double>(b.blocks_per_step));
  // What does not fit comes back from the shared cache, or from memory. The sums are fetched, written and read unless
  // they only compete for the cache; where a panel comes chain by chain, for each.
  const double chains = b.source == WeightSource::fused ? static_cast<double>(c.g.reduction.size()) : 1;
  double seconds = 0;
  if (input_bytes > 0.8 * l2_bytes) seconds += input_bytes * block_steps / (kHiddenReads * rate);
  // Tiles of a single depth, which share nothing with others, are fetched and written first.
  const double write_rate = std::min(rate, c.traits.shared_cache_bytes_per_second / c.traits.threads);
  if (c.g.depths == 1 && input_bytes > l2_bytes) seconds += 2 * input_bytes / write_rate;
  if (sum_bytes > 0.3 * l2_bytes) seconds += (sum_bytes > l2_bytes ? 3 : 1) * chains * sum_bytes * block_steps / rate;
  // Of what fits, a share that grows from none at a third of the cache to all at the whole.
  const double evicted = std::clamp(1.5 * (input_bytes + sum_bytes + panel_bytes) / l2_bytes - 0.5, 0.0, 1.0);
  return seconds + evicted * (input_bytes + 2 * sum_bytes) * block_steps * c.eviction_seconds();
}

double estimate(const Blocking& b, const Costs& c) {
  const Geometry& g = c.g;
  const double threads = static_cast<double>(b.threads), groups = static_cast<double>(g.problem.groups);
  const std::int64_t blocks = ceil_div(g.positions, b.tiles), chunks = ceil_div(g.depths, b.depths_per_unit);
  const std::int64_t depths = std::min(b.depths_per_unit, g.depths);
  const double steps = static_cast<double>(ceil_div(depths, b.depths_per_step));
  const double output_blocks = static_cast<double>(ceil_div(c.panels.output_blocks, b.output_splits));
  const double share = output_blocks / static_cast<double>(c.panels.output_blocks);
  const double waves = std::ceil(groups * static_cast<double>(blocks * chunks * b.output_splits) / threads);
  const bool stream = b.source == WeightSource::shared && streams_panels(c.lanes);
  const double weights = c.weight_transform(stream);

  double unit = c.input_transform(b, b.tiles, slices_of(g, depths)) + c.products(b, b.tiles, depths, output_blocks) +
                c.output_transform(b, b.tiles, depths, output_blocks);
  unit += evictions(b, c, steps, output_blocks);
  double once = 0;
  if (b.source == WeightSource::fused) unit += weights * share * steps;
  if (b.source == WeightSource::own) {
    const double part = std::min(1.0, waves * share) * std::ceil(groups / threads);
    const double bytes = c.weight_floats() * sizeof(float) * part;
    once += weights * part + (bytes > 0.8 * static_cast<double>(c.traits.l2_bytes) ? bytes / c.panel_rate(bytes) : 0);
  }
  if (b.source == WeightSource::shared)
    once += groups * c.sharing_seconds(weights / threads, stream) + (stream ? kThroughMemorySeconds : kParallelSeconds);
  return once + waves * unit;
}

// Blocks of nearly equal size, a multiple of the threads in number when they are few.
std::int64_t even_tiles(std::int64_t positions, std::int64_t wanted, std::int64_t multiple) {
  std::int64_t blocks = ceil_div(positions, std::min(wanted, positions));
  if (blocks < 4 * multiple) blocks = std::min(round_up(blocks, multiple), positions);
  return ceil_div(positions, blocks);
}

class Search {
 public:
  Search(const Geometry& g, const Traits& traits, RegisterTile tile, std::size_t limit_bytes)
      : costs_{g, traits, panel_layout(g, panel_vectors(g, tile) * tile.lanes),
               tile.most_rows(std::max<std::int64_t>(2, panel_vectors(g, tile))), tile.lanes},
        tile_(tile),
        limit_(limit_bytes) {}

  void consider(Blocking b) {
    const Geometry& g = costs_.g;
    lay_out(b, g, tile_);
    if (b.total_bytes() > limit_) return;
    b.seconds = estimate(b, costs_);
    if (!best_ || b.seconds < best_->seconds) best_ = b;
  }

  // Every cut of the work with the given weights. Of several depths, whose tiles are rows of one product, the tiles may
  // as well be those of one row of the output.
  void consider_cuts(const Blocking& b) {
    const Geometry& g = costs_.g;
    if (g.depths > 1) consider_tiles(b, g.tiles_w);
    for (const std::int64_t wanted : kTileCandidates) {
      consider_tiles(b, wanted);
      if (wanted >= g.positions) break;
    }
  }

  void consider_tiles(Blocking b, std::int64_t wanted) {
    const Geometry& g = costs_.g;
    b.tiles = even_tiles(g.positions, wanted, b.threads);
    consider_depths(b);
    b.tiles = even_tiles(g.positions, wanted, 1);
    for (b.output_splits = 2; b.output_splits <= std::min(b.threads, costs_.panels.output_blocks); ++b.output_splits)
      consider_depths(b);
  }

  void consider_depths(Blocking b) {
    const std::int64_t depths = costs_.g.depths;
    for (const std::int64_t wanted : kDepthCandidates) {
      b.depths_per_step = std::min(wanted, depths);
      for (std::int64_t chunks = 1; chunks <= std::min(4 * b.threads, depths); chunks += 1 + chunks / 4) {
        b.depths_per_unit = round_up(ceil_div(depths, chunks), b.depths_per_step);
        consider_block_steps(b);
      }
      if (wanted >= depths) break;
    }
  }

  // Several output blocks a step, where the tiles of one point fit the core's own cache and those of all do not, and
  // those of deep shapes, whose planes are transformed once a step.
  void consider_block_steps(Blocking b) {
    const Geometry& g = costs_.g;
    const std::int64_t blocks = ceil_div(costs_.panels.output_blocks, b.output_splits);
    if (b.source != WeightSource::fused) b.blocks_per_step = std::min(tile_.panels(), blocks);
    if (!g.shape.deep()) consider(b);
    lay_out(b, g, tile_);
    const auto outgrows = [&](std::int64_t floats) {
      return static_cast<double>(floats) * sizeof(float) > 0.6 * static_cast<double>(costs_.traits.l2_bytes);
    };
    const bool pays =
        b.source != WeightSource::fused && outgrows(b.input_floats) && !outgrows(b.input_floats / g.shape.points());
    if (!pays && !g.shape.deep()) return;
    b.blocks_per_step = blocks;
    consider(b);
  }

  std::optional<Blocking> best() const { return best_; }

 private:
  Costs costs_;
  RegisterTile tile_;
  std::size_t limit_;
  std::optional<Blocking> best_;
};

}  // namespace

void lay_out(Blocking& b, const Geometry& g, const RegisterTile& tile) {
  const std::int64_t lanes = tile.lanes;
  b.columns = panel_vectors(g, tile) * lanes;
  const PanelLayout panels = panel_layout(g, b.columns);
  b.tile_pitch = round_up(g.channels(), lanes) + lanes;
  b.slots = slots_of(g, b.depths_per_step);
  b.input_point_stride = odd_lines(b.slots * b.tiles * b.tile_pitch);
  b.input_floats = g.shape.plane_points() * b.input_point_stride;
  b.sum_point_stride = odd_lines(b.depths_per_step * b.tiles * b.columns);
  b.sum_floats = g.shape.points() * b.sum_point_stride;
  b.chunk_floats = 0;
  for (const ReductionBlock& r : g.reduction)
    b.chunk_floats = std::max(b.chunk_floats, g.shape.plane_points() * odd_lines(r.terms() * b.columns));

  std::int64_t own = b.input_floats + b.all_sum_floats();
  const std::int64_t shared = b.source == WeightSource::shared ? panels.floats() : 0;
  if (b.source == WeightSource::own) own += panels.group_floats();
  if (b.source == WeightSource::fused) own += b.chunk_floats;
  b.workspace_bytes = static_cast<std::size_t>(shared) * sizeof(float);
  b.scratch_bytes = static_cast<std::size_t>(own) * sizeof(float);
}

std::optional<Blocking> choose_blocking(const Geometry& g, const Traits& traits, RegisterTile tile, bool prepared,
                                        std::size_t limit_bytes) {
  Search search(g, traits, tile, limit_bytes);
  Blocking b;
  b.threads = traits.threads;
  b.fetches = comes_from_memory(traits, g.problem);
  b.stream = g.problem.output_dtype == DType::f32 && outgrows_caches(traits, g.problem);
  if (prepared) {
    search.consider_cuts(b);
  } else {
    for (const WeightSource source : {WeightSource::shared, WeightSource::own, WeightSource::fused}) {
      b.source = source;
      search.consider_cuts(b);
    }
  }
  if (search.best()) return search.best();
  // Under a tight limit: one thread, one tile, one output at a time.
  Blocking smallest;
  smallest.source = prepared ? WeightSource::prepared : WeightSource::fused;
  smallest.tiles = smallest.depths_per_step = smallest.depths_per_unit = smallest.threads = 1;
  search.consider(smallest);
  return search.best();
}

}  // namespace vkconv::cpu::winograd
