#include <algorithm>
#include <bit>
#include <vector>

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

// Extents that cut an axis evenly: ceil(extent / parts) for every number of parts.
std::vector<std::uint32_t> even_cuts(std::int64_t extent, std::int64_t limit) {
  std::vector<std::uint32_t> cuts;
  for (std::int64_t size = std::min(extent, limit); size > 0;) {
    cuts.push_back(static_cast<std::uint32_t>(size));
    if (size == 1) break;
    size = ceil_div(extent, ceil_div(extent, size - 1));
  }
  return cuts;
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

// Sets the pixels and makes the chunk of channels as thin as it must be.
bool fits(DirectTile& t, const ConvProblem& p, const Tile4& outputs, std::size_t limit) {
  const std::int64_t pixels = input_tile_pixels(p, outputs);
  if (pixels > (t.input_room > 0 ? t.input_room : kMaxTilePixels)) return false;
  t.outputs = outputs;
  t.input_pixels = static_cast<std::uint32_t>(pixels);
  while (t.quads > 1 && t.shared_bytes(p.dtype) > limit) --t.quads;
  return t.shared_bytes(p.dtype) <= limit;
}

double cost(const ConvProblem& p, const DirectTile& t) {
  return direct_tile_cost(p, t) * double(tile_count(p, t.outputs));
}

// The best pixels for a register tile.
void improve(std::optional<DirectTile>& best, const ConvProblem& p, const DirectTile& blank, std::size_t limit) {
  const std::int64_t rows = blank.rows();
  for (const std::uint32_t w : even_cuts(p.output[2], rows))
    for (const std::uint32_t h : even_cuts(p.output[1], rows / w))
      for (const std::uint32_t d : even_cuts(p.output[0], rows / w / h)) {
        const auto images = static_cast<std::uint32_t>(std::min<std::int64_t>(p.batch, rows / w / h / d));
        DirectTile t = blank;
        if (fits(t, p, {images, d, h, w}, limit) && (!best || cost(p, t) < cost(p, *best))) best = t;
      }
}

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
  std::optional<DirectTile> best;
  const std::uint32_t n = tile_width(p.out_channels_per_group());
  if (traits.type == DeviceType::software) {
    improve(best, p, software_tile(p), traits.limits.shared_memory_bytes);
    return best;
  }
  const std::size_t limit = std::min(traits.limits.shared_memory_bytes, kSharedBytes);
  for (const std::uint32_t group_size : {128u, 64u})
    for (const std::uint32_t reg_m : {8u, 7u, 6u, 4u}) improve(best, p, blank_tile(p, n, reg_m, group_size), limit);
  return best;
}

}  // namespace vkconv::vulkan
