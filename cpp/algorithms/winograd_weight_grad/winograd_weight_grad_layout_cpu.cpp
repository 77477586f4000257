// Sizes of winograd_weight_grad, and their estimate.
#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <utility>

#include "algorithms/winograd/winograd_geometry.h"
#include "algorithms/winograd_weight_grad/winograd_weight_grad.h"
#include "core/checked.h"
#include "cpu/estimates.h"
#include "cpu/streaming.h"

namespace vkconv::cpu::winograd_weight_grad {
namespace {
using winograd::odd_lines;
using winograd::TileShape;

constexpr std::int64_t kPartTiles = 256;  // of fewer tiles the products would not pay for adding parts up
constexpr std::int64_t kMaxParts = 16;
constexpr std::int64_t kPartBytes = 16 << 20;  // of the sums of all parts, for a tap along the depth
constexpr std::int64_t kMostDeep = 16;         // outputs along the depth in a chain; two read the slices between them
constexpr std::int64_t kChunkBytes = 1 << 20;  // of the inputs that a thread transforms at a time
constexpr std::int64_t kRowPoints = 60 * 36;   // input channels times points whose sums stay in a core's cache

TiledAxis tiled_axis(const ConvProblem& p, int axis, std::int64_t taps, std::int64_t tile) {
  TiledAxis a{taps, tile};
  a.pieces = ceil_div(p.kernel[axis], taps);
  a.step = p.dilation[axis];
  const std::int64_t phases = std::min(a.step, p.output[axis]);
  a.phase_tiles = ceil_div(ceil_div(p.output[axis], a.step), tile);
  a.tiles = phases * a.phase_tiles;
  return a;
}

// With `taps` of the kernel's taps along the depth in a piece. What a chain holds depends on the problem only.
SummedAxis summed_axis(const ConvProblem& p, std::int64_t taps) {
  SummedAxis a;
  if (p.kernel[0] == 1) return a;
  a.outputs = p.output[0];
  a.taps = taps;
  a.pieces = ceil_div(p.kernel[0], taps);
  a.deep = ceil_div(a.outputs, ceil_div(a.outputs, kMostDeep));
  a.blocks = ceil_div(a.outputs, a.deep);
  a.slices = std::min({a.deep * taps, (a.deep - 1) * p.stride[0] + (taps - 1) * p.dilation[0] + 1, p.input[0]});
  return a;
}

// Whether the tile has the axes of the kernel, and is accurate enough for sums of any length.
bool fits(const TileShape& s, const ConvProblem& p) {
  const auto has = [](std::int64_t kernel, int taps) { return (kernel > 1) == (taps > 1); };
  return !s.deep() && s.error != winograd::TileError::large && has(p.kernel[1], s.mh) && has(p.kernel[2], s.mw);
}

// Of a block of output channels where there are so many vectors: none that is empty or, unless threads share blocks,
// alone.
std::int64_t block_vectors(std::int64_t vectors, const RegisterTile& tile, bool share_parts) {
  return vectors == 3 && tile.most_rows(3) > 0 && share_parts ? 3 : std::min<std::int64_t>(vectors, 2);
}

// With the most threads, taps along the depth in a piece and chains in a chunk, in this order, that the limit allows.
Layout fitted(const ConvProblem& p, Layout l, std::int64_t threads, std::size_t limit_bytes) {
  for (l.slots = static_cast<int>(threads);; --l.slots) {
    l.splits = std::min(l.blocks, ceil_div(std::int64_t{l.slots}, l.parts));
    for (std::int64_t taps = p.kernel[0];; taps = ceil_div(taps, 2)) {
      l.d = summed_axis(p, taps);
      for (std::int64_t chunk = l.chunk; chunk > 0; --chunk) {
        Layout smaller = l;
        smaller.chunk = chunk;
        smaller.input_stride = odd_lines(chunk * l.chain_inputs() * l.pitch);
        smaller.gradient_stride = odd_lines(chunk * l.chain_gradients() * l.columns);
        if (smaller.bytes() <= limit_bytes || (l.slots == 1 && taps == 1 && chunk == 1)) return smaller;
      }
      if (taps == 1) break;
    }
  }
}

Layout make_layout(const ConvProblem& p, std::size_t shape_index, const Traits& traits, std::int64_t lanes,
                   std::size_t limit_bytes) {
  const TileShape& shape = winograd::kTileShapes[shape_index];
  const std::int64_t in = p.in_channels_per_group();
  Layout l;
  l.shape_index = shape_index;
  l.h = tiled_axis(p, 1, shape.mh, shape.rh);
  l.w = tiled_axis(p, 2, shape.mw, shape.rw);
  l.pitch = odd_lines(in);
  l.d = summed_axis(p, p.kernel[0]);
  l.positions = p.batch * (p.output[0] / l.d.outputs) * l.h.tiles * l.w.tiles;
  l.span = std::min(l.positions, kChain / l.d.deep);
  l.chains = ceil_div(l.positions, l.span) * l.d.blocks;
  const std::int64_t floats = l.points() * in * p.out_channels_per_group();
  const std::int64_t parts = std::min({l.tiles() / kPartTiles, kPartBytes / (4 * floats), kMaxParts});
  l.parts = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(parts, 1))));
  const RegisterTile tile = register_tile(traits, DType::f32);
  l.vectors = block_vectors(ceil_div(p.out_channels_per_group(), lanes), tile, l.parts >= traits.threads);
  l.columns = l.vectors * lanes;
  l.blocks = ceil_div(p.out_channels_per_group(), l.columns);
  l.together = std::min(l.blocks, std::max(kWidePanels, tile.vectors()));
  l.runs = ceil_div(in, kRowPoints / l.points());
  l.rows = ceil_div(in, l.runs);
  l.sum_stride = odd_lines(l.rows * l.columns);
  const std::int64_t chain_bytes = l.chain_inputs() * l.points() * l.pitch * static_cast<std::int64_t>(sizeof(float));
  l.chunk = std::clamp<std::int64_t>(kChunkBytes / chain_bytes, 1, ceil_div(l.chains, l.parts));
  l.fetches = comes_from_memory(traits, p);
  return fitted(p, l, traits.threads, limit_bytes);
}

// All pieces by a tile, in multiply-adds counted as two at the peak rate. Beside the products: every transformed tile
// and every float of it, and every weight; of a chain, its sums in terms. Products of one vector load a value for each.
double work_of(const ConvProblem& p, const Layout& l) {
  constexpr double kTileFlops = 2000, kTransformFlops = 30, kWeightFlops = 80, kSumTerms = 5, kOneVector = 1.5;
  const double points = static_cast<double>(l.points()), tiles = static_cast<double>(l.tiles());
  const double inputs = tiles * static_cast<double>(l.d.slices) / static_cast<double>(l.d.deep);
  const double rows = static_cast<double>(p.in_channels_per_group());
  const double outputs = static_cast<double>(l.blocks * l.columns);
  const double products =
      points * tiles * (1 + kSumTerms / static_cast<double>(l.chain_gradients())) * (rows + 4) * outputs;
  const double transforms =
      inputs * static_cast<double>(l.splits) * (kTileFlops + kTransformFlops * points * static_cast<double>(l.pitch)) +
      tiles * (kTileFlops * static_cast<double>(l.blocks) + kTransformFlops * points * outputs);
  const double weights = rows * static_cast<double>(p.out_channels_per_group() * l.taps());
  const double multiply = 2 * products * (l.vectors == 1 ? kOneVector : 1);
  return static_cast<double>(p.groups * l.h.pieces * l.w.pieces) *
         (static_cast<double>(p.kernel[0]) * (multiply + kWeightFlops * weights) +
          static_cast<double>(l.d.pieces) * transforms);
}

DepthBlock depth_block(const ConvProblem& p, const Range& outputs, const Range& taps) {
  DepthBlock b{outputs, {}, {}};
  for (std::int64_t tap = taps.begin; tap < taps.end; ++tap) {
    const Range some = common(outputs, outputs_inside(p, 0, tap));
    const Range inside = some.size() > 0 ? some : Range{outputs.begin, outputs.begin};
    b.taps.push_back({inside});
    for (std::int64_t d = inside.begin; d < inside.end; ++d) b.slices.push_back(position_of(p, 0, d, tap));
  }
  const auto key = [&](std::int64_t slice) { return std::pair(slice % p.stride[0], slice); };
  std::ranges::sort(b.slices, {}, key);
  b.slices.erase(std::ranges::unique(b.slices).begin(), b.slices.end());
  for (std::int64_t tap = taps.begin; tap < taps.end; ++tap) {
    DepthBlock::Tap& t = b.taps[static_cast<std::size_t>(tap - taps.begin)];
    if (t.outputs.size() == 0) continue;
    const auto first = std::ranges::lower_bound(b.slices, key(position_of(p, 0, t.outputs.begin, tap)), {}, key);
    t.slice = first - b.slices.begin();
  }
  return b;
}

// As one thread would have it without a limit: what tells which tile is the fastest, whatever there is.
Layout undivided(const ConvProblem& p, Layout l, std::int64_t lanes) {
  l.d = summed_axis(p, p.kernel[0]);
  l.splits = 1;
  l.columns = std::min<std::int64_t>(l.vectors, 2) * lanes;
  l.blocks = ceil_div(p.out_channels_per_group(), l.columns);
  return l;
}

}  // namespace

Layout choose_layout(const ConvProblem& p, const Traits& traits, std::int64_t lanes, std::size_t limit_bytes) {
  Layout best;
  double least = INFINITY;
  for (std::size_t i = 0; i < std::size(winograd::kTileShapes); ++i) {
    if (!fits(winograd::kTileShapes[i], p)) continue;
    const Layout l = make_layout(p, i, traits, lanes, limit_bytes);
    if (const double work = work_of(p, undivided(p, l, lanes)); work < least) least = work, best = l;
  }
  return best;
}

std::vector<DepthBlock> depth_blocks(const ConvProblem& p, const Layout& l, const Piece& piece) {
  if (p.kernel[0] == 1) return {{{0, 1}, {0}, {{{0, 1}}}}};
  std::vector<DepthBlock> blocks;
  for (std::int64_t first = 0; first < l.d.outputs; first += l.d.deep)
    blocks.push_back(depth_block(p, {first, std::min(first + l.d.deep, l.d.outputs)}, piece.d));
  return blocks;
}

double layout_seconds(const ConvProblem& p, const Layout& l, const Traits& t) {
  constexpr double kShare = 0.8;
  const double threads = static_cast<double>(t.threads), units = static_cast<double>(l.parts * l.splits);
  const double idle = std::ceil(units / threads) * threads / units;
  const double sections = static_cast<double>(p.groups * l.pieces());
  return idle * work_of(p, l) / (kShare * t.f32_flops_per_second) +
         sections * (2 * static_cast<double>(l.part_bytes()) / t.shared_cache_bytes_per_second + 2 * t.launch_seconds);
}

}  // namespace vkconv::cpu::winograd_weight_grad
