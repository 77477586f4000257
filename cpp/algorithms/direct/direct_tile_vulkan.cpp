#include <algorithm>
#include <array>

#include "algorithms/direct/direct_tile.h"
#include "core/checked.h"
#include "vulkan/kernel_params.h"

namespace vkconv::vulkan {
namespace {

constexpr std::size_t kSharedBytes = std::size_t{47} << 10;    // what two workgroups of an H200 leave each other
constexpr std::uint32_t kGroupSize = 128, kMostSumWords = 80;  // of an invocation, and as many totals
constexpr std::int64_t kEnoughWorkgroups = 256;                // to fill a GPU
constexpr std::int64_t kPartTerms = 16384;                     // two levels of sums stay accurate up to here
constexpr std::int64_t kLeastPartTerms = 256;

constexpr std::uint32_t kSoftwarePixels = 512;

constexpr std::int64_t kMostQuads = 8;

// In multiply-adds of an invocation, fitted to the times of 130 tiles of 13 problems on an H200 (root mean square of
// the logarithm's error 0.055): loading four channels of a pixel into shared memory; one of more sums than leave
// registers to fetch ahead; a step between barriers; a tile's start and end. Workgroups run in pairs on a processor;
// one that has it for itself takes kLoneCost of the half that the pair would.
constexpr double kLoadCost = 200, kCrowdedCost = 1.08, kStepCost = 90, kTileCost = 5000, kLoneCost = 1.43;
constexpr double kManySums = 64;

// The next smaller extent that cuts an axis evenly, ceil(extent / parts) for some number of parts; 0 after 1.
std::int64_t next_cut(std::int64_t extent, std::int64_t size) { return size == 1 ? 0 : even_part(extent, size - 1); }

// Workgroups that a device would run in the same time if every processor had two all the time.
double filled_up(std::int64_t workgroups, std::int64_t processors) {
  const std::int64_t pair = 2 * processors, rest = workgroups % pair;
  const double last = rest == 0 ? 0 : rest <= processors ? kLoneCost : 2;
  return double(workgroups / pair * pair) + last * double(processors);
}

// Fours of channels a chunk, at most so many, that cut the channels evenly.
std::uint32_t even_quads(const ConvProblem& p, std::int64_t most) {
  return static_cast<std::uint32_t>(even_part(ceil_div(p.in_channels_per_group(), 4), most));
}

// The shape of this register tile, without its pixels.
DirectTile blank_tile(const ConvProblem& p, std::uint32_t n, std::uint32_t reg_m, std::uint32_t group_size) {
  DirectTile t;
  t.n = n;
  t.reg_m = reg_m;
  t.reg_n = n >= 32 ? 8 : 4;
  t.group_size = group_size;
  t.quads = even_quads(p, kMostQuads);
  return t;
}

// A software device compiles a large tile for seconds: one small tile for every shape.
DirectTile software_tile(const ConvProblem& p) {
  DirectTile t = blank_tile(p, 16, 4, 16);
  t.quads = 1;
  t.input_room = kSoftwarePixels;
  return t;
}

// Multiply-adds that would take the time of a workgroup that sums so many chunks, all of its invocations together.
double workgroup_cost(const ConvProblem& p, const DirectTile& t, std::int64_t chunks) {
  const double sums = double(t.reg_m) * t.reg_n;
  const double quad = 4 * sums * (sums > kManySums ? kCrowdedCost : 1);
  const double chunk =
      double(p.taps()) * (t.quads * quad + kStepCost) + kLoadCost * t.quads * t.input_pixels / t.group_size;
  return (double(chunks) * chunk + kTileCost) * t.group_size;
}

std::int64_t chunks_of(const ConvProblem& p, const DirectTile& t) {
  return ceil_div(ceil_div(p.in_channels_per_group(), 4), t.quads);
}

// Of a part at most. A software device has half its loop iterations for the outputs of an invocation by the definition.
std::int64_t most_part_terms(const ConvProblem& p, const DirectTile& t, const Traits& traits) {
  if (traits.type != DeviceType::software || !has_padding(p)) return kPartTerms;
  return std::min(kPartTerms, kSoftwareLoopIterations / 2 / (std::int64_t{t.reg_m} * t.reg_n));
}

// Finds the best pixels for register tiles.
class TileSearch {
 public:
  TileSearch(const ConvProblem& p, const Traits& traits, std::size_t shared_bytes)
      : p_(p),
        traits_(traits),
        shared_bytes_(shared_bytes),
        reach_{input_reach(p, 0), input_reach(p, 1), input_reach(p, 2)} {}

  void improve(const DirectTile& blank) {
    const std::int64_t rows = blank.rows(), most = blank.input_room > 0 ? blank.input_room : kMaxTilePixels;
    const double least = least_cost(blank), slices = double(p_.batch) * double(p_.output[0]);
    const double columns = double(ceil_div(p_.out_channels_per_group(), blank.n)) * double(p_.groups);
    const auto hopeless = [&](double tiles, double pixels) {
      return best && tiles * columns * (least + least_load_ * pixels) >= best_cost_;
    };
    for (std::int64_t w = std::min(p_.output[2], rows); w > 0; w = next_cut(p_.output[2], w)) {
      const std::int64_t row = reach_[2].of(w);
      if (row > most) continue;
      const auto tiles_w = double(ceil_div(p_.output[2], w));
      for (std::int64_t h = std::min(p_.output[1], rows / w); h > 0; h = next_cut(p_.output[1], h)) {
        const std::int64_t slice = row * reach_[1].of(h), most_slices = rows / w / h;
        const double tiles_hw = tiles_w * double(ceil_div(p_.output[1], h));
        if (slice > most || hopeless(tiles_hw * slices / double(most_slices), double(slice * most_slices))) continue;
        for (std::int64_t d = std::min(p_.output[0], most_slices); d > 0; d = next_cut(p_.output[0], d)) {
          const std::int64_t images = std::min(p_.batch, most_slices / d), pixels = images * slice * reach_[0].of(d);
          const double tiles = tiles_hw * double(ceil_div(p_.output[0], d)) * double(ceil_div(p_.batch, images));
          if (pixels <= most && !hopeless(tiles, double(pixels))) consider(blank, {images, d, h, w}, pixels);
        }
      }
    }
  }

  std::optional<DirectTile> best;

 private:
  // A bound of the cost of a tile without pixels, whatever the chunk of channels.
  double least_cost(DirectTile t) const {
    double least = workgroup_cost(p_, t, chunks_of(p_, t));
    while (--t.quads > 0) least = std::min(least, workgroup_cost(p_, t, chunks_of(p_, t)));
    return least;
  }

  // With chunks of channels as thick as the blank's, and half as thick, or as thin as they must be.
  void consider(DirectTile t, const std::array<std::int64_t, 4>& outputs, std::int64_t pixels) {
    std::ranges::copy(outputs, t.outputs.begin());
    t.input_pixels = static_cast<std::uint32_t>(pixels);
    std::uint32_t tried = 0;
    for (const std::uint32_t quads : {t.quads, std::min(t.quads, thinner_)}) {
      t.quads = quads;
      while (t.quads > 1 && t.shared_bytes(p_.dtype) > shared_bytes_) t.quads /= 2;
      if (t.quads == tried || t.shared_bytes(p_.dtype) > shared_bytes_) return;
      tried = t.quads;
      const double cost = direct_grid(p_, t, traits_).multiply_adds;
      if (!best || cost < best_cost_) best = t, best_cost_ = cost;
    }
  }

  const ConvProblem& p_;
  const Traits& traits_;
  const std::size_t shared_bytes_;
  const std::array<InputReach, 3> reach_;
  const std::uint32_t thinner_ = even_quads(p_, kMostQuads / 2);
  const double least_load_ = kLoadCost * double(ceil_div(p_.in_channels_per_group(), 4));  // of a pixel
  double best_cost_ = 0;
};

}  // namespace

std::uint32_t DirectTile::input_fours() const { return std::max(input_pixels * (quads | 1), threads_m() * n / 4); }

std::size_t DirectTile::shared_bytes(DType t) const {
  const std::size_t fours = input_fours() + std::size_t{2} * quads * n;
  return fours * 4 * size_bytes(accumulator(t)) + std::size_t{8} * room();
}

DirectGrid direct_grid(const ConvProblem& p, const DirectTile& t, const Traits& traits) {
  const bool software = traits.type == DeviceType::software;
  const std::int64_t chunks = chunks_of(p, t), terms = checked_mul(p.taps() * 4 * t.quads, chunks);
  const std::int64_t columns = checked_mul(ceil_div(p.out_channels_per_group(), t.n), p.groups);
  const std::int64_t whole = checked_mul(tile_count(p, t.outputs), columns);
  std::int64_t parts = ceil_div(terms, most_part_terms(p, t, traits));
  if (!software && whole < kEnoughWorkgroups)
    parts = std::max(parts, std::min(kEnoughWorkgroups / whole, terms / kLeastPartTerms));
  DirectGrid g;
  g.part_chunks = ceil_div(chunks, std::clamp<std::int64_t>(parts, 1, chunks));
  g.parts = ceil_div(chunks, g.part_chunks);
  g.workgroups = checked_mul(whole, g.parts);
  g.multiply_adds =
      workgroup_cost(p, t, g.part_chunks) * (software ? double(g.workgroups) : filled_up(g.workgroups, kProcessors));
  return g;
}

std::optional<DirectTile> choose_direct_tile(const ConvProblem& p, const Traits& traits) {
  if (traits.type == DeviceType::software) {
    TileSearch search(p, traits, traits.limits.shared_memory_bytes);
    search.improve(software_tile(p));
    return search.best;
  }
  TileSearch search(p, traits, std::min(traits.limits.shared_memory_bytes, kSharedBytes));
  const std::uint32_t n = std::max(4u, tile_width(p.out_channels_per_group()));
  const std::size_t sum_words = size_bytes(accumulator(p.dtype)) / 4;
  for (const std::uint32_t reg_m : {10u, 8u, 7u, 6u, 4u}) {
    const DirectTile blank = blank_tile(p, n, reg_m, kGroupSize);
    if (blank.reg_m * blank.reg_n * sum_words <= kMostSumWords) search.improve(blank);
  }
  return search.best;
}

}  // namespace vkconv::vulkan
