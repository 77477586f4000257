#include <algorithm>
#include <array>
#include <bit>

#include "algorithms/direct/direct_tile.h"
#include "core/checked.h"

namespace vkconv::vulkan {
namespace {

constexpr std::size_t kSharedBytes = std::size_t{32} << 10;  // two workgroups or more share a multiprocessor

constexpr std::uint32_t kSoftwarePixels = 512;

// In multiply-adds of an invocation: loading four channels of a pixel into shared memory, and four weights; reading
// four of either there; a step between barriers; a chunk's wait for memory at 8 x 8 sums an invocation (fewer sums
// leave registers for more workgroups, which fill each other's waits); a tile's start and end.
constexpr double kLoadCost = 40, kWeightCost = 15, kReadCost = 2, kStepCost = 100, kWaitCost = 2000, kTileCost = 4000;

std::uint32_t tile_width(std::int64_t channels) {
  if (channels <= 32)
    return std::max(4u, static_cast<std::uint32_t>(std::bit_ceil(static_cast<std::uint64_t>(channels))));
  return round_up(channels, 32) * 10 < round_up(channels, 64) * 9 ? 32 : 64;
}

// The next smaller extent that cuts an axis evenly, ceil(extent / parts) for some number of parts; 0 after 1.
std::int64_t next_cut(std::int64_t extent, std::int64_t size) {
  return size == 1 ? 0 : ceil_div(extent, ceil_div(extent, size - 1));
}

// The shape of this register tile, without its pixels.
DirectTile blank_tile(const ConvProblem& p, std::uint32_t n, std::uint32_t reg_m, std::uint32_t group_size) {
  DirectTile t;
  t.n = n;
  t.reg_m = reg_m;
  t.reg_n = n >= 32 ? 8 : 4;
  t.group_size = group_size;
  const std::int64_t quads = ceil_div(p.in_channels_per_group(), 4);
  t.quads = static_cast<std::uint32_t>(ceil_div(quads, ceil_div(quads, 4)));
  return t;
}

// A software device compiles a large tile for seconds: one small tile for every shape.
DirectTile software_tile(const ConvProblem& p) {
  DirectTile t = blank_tile(p, 16, 4, 16);
  t.quads = 1;
  t.input_room = kSoftwarePixels;
  return t;
}

// Finds the best pixels for register tiles.
class TileSearch {
 public:
  TileSearch(const ConvProblem& p, std::size_t shared_bytes)
      : p_(p), shared_bytes_(shared_bytes), reach_{input_reach(p, 0), input_reach(p, 1), input_reach(p, 2)} {}

  void improve(const DirectTile& blank) {
    const std::int64_t rows = blank.rows(), most = blank.input_room > 0 ? blank.input_room : kMaxTilePixels;
    const double least = least_cost(blank), slices = double(p_.batch) * double(p_.output[0]);
    const auto hopeless = [&](double tiles, double pixels) {
      return best && tiles * (least + least_load_ * pixels) >= best_cost_;
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
          if (pixels <= most && !hopeless(tiles, double(pixels))) consider(blank, {images, d, h, w}, pixels, tiles);
        }
      }
    }
  }

  std::optional<DirectTile> best;

 private:
  // A bound of direct_tile_cost for no pixels, whatever the chunk of channels.
  double least_cost(DirectTile t) const {
    double least = direct_tile_cost(p_, t);
    while (--t.quads > 0) least = std::min(least, direct_tile_cost(p_, t));
    return least;
  }

  // Makes the chunk of channels as thin as it must be.
  void consider(DirectTile t, const std::array<std::int64_t, 4>& outputs, std::int64_t pixels, double tiles) {
    std::ranges::copy(outputs, t.outputs.begin());
    t.input_pixels = static_cast<std::uint32_t>(pixels);
    while (t.quads > 1 && t.shared_bytes(p_.dtype) > shared_bytes_) --t.quads;
    const double cost = direct_tile_cost(p_, t) * tiles;
    if (t.shared_bytes(p_.dtype) <= shared_bytes_ && (!best || cost < best_cost_)) best = t, best_cost_ = cost;
  }

  const ConvProblem& p_;
  const std::size_t shared_bytes_;
  const std::array<InputReach, 3> reach_;
  const double least_load_ = kLoadCost * double(ceil_div(p_.in_channels_per_group(), 4));  // of a pixel
  double best_cost_ = 0;
};

}  // namespace

std::uint32_t DirectTile::input_fours() const { return std::max(input_pixels * (quads | 1), threads_m() * n / 4); }

std::size_t DirectTile::shared_bytes(DType t) const {
  const std::size_t fours = input_fours() + std::size_t{2} * quads * n;
  return fours * 4 * size_bytes(accumulator(t)) + std::size_t{8} * room();
}

double direct_tile_cost(const ConvProblem& p, const DirectTile& t) {
  const double chunks = double(ceil_div(ceil_div(p.in_channels_per_group(), 4), t.quads));
  const double sums = double(t.reg_m) * t.reg_n, occupied = sums / 64;
  const double quad = 4 * sums + kReadCost * (t.reg_m + t.reg_n) + kWeightCost * t.n / t.group_size;
  const double chunk = double(p.taps()) * (t.quads * quad + kStepCost) + kWaitCost * occupied * occupied +
                       kLoadCost * t.quads * t.input_pixels / t.group_size;
  return (chunks * chunk + kTileCost) * t.group_size;
}

std::optional<DirectTile> choose_direct_tile(const ConvProblem& p, const Traits& traits) {
  if (traits.type == DeviceType::software) {
    TileSearch search(p, traits.limits.shared_memory_bytes);
    search.improve(software_tile(p));
    return search.best;
  }
  TileSearch search(p, std::min(traits.limits.shared_memory_bytes, kSharedBytes));
  const std::uint32_t n = tile_width(p.out_channels_per_group());
  for (const std::uint32_t group_size : {128u, 64u})
    for (const std::uint32_t reg_m : {8u, 7u, 6u, 4u}) search.improve(blank_tile(p, n, reg_m, group_size));
  return search.best;
}

}  // namespace vkconv::vulkan
