// How winograd_weight_grad cuts a problem: the kernel into pieces, the output gradient into tiles.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "algorithms/winograd/winograd_kernels.h"
#include "core/geometry.h"
#include "core/problem.h"
#include "cpu/device.h"

namespace vkconv::cpu::winograd_weight_grad {

inline constexpr std::int64_t kChain = 64;  // tiles summed in registers, at most

// Height or width. A piece of the kernel is `taps` taps; a tile is `tile` outputs, a kernel's dilation apart, which is
// `step`: outputs of one remainder by it are a phase.
struct TiledAxis {
  std::int64_t taps = 1, tile = 1, pieces = 1, step = 1, phase_tiles = 1, tiles = 1;

  std::int64_t points() const { return taps + tile - 1; }
  std::int64_t first_output(std::int64_t t) const { return t / phase_tiles + t % phase_tiles * tile * step; }
  // Of `size` positions from `first` on, a step apart, those inside of `extent`.
  Range inside(std::int64_t first, std::int64_t extent, std::int64_t size) const {
    return {std::clamp<std::int64_t>(ceil_div(-first, step), 0, size),
            std::clamp<std::int64_t>(ceil_div(extent - first, step), 0, size)};
  }
};

// Depth, whose taps share the tiles that they read: those of a slice of the input are transformed once for all taps of
// a piece. A kernel of one tap has its depth among the positions of tiles, and a depth of one here.
struct SummedAxis {
  std::int64_t outputs = 1, taps = 1, pieces = 1;
  std::int64_t deep = 1, blocks = 1;  // outputs of a chain; how often it goes into the depth
  std::int64_t slices = 1;            // of the input, that the taps of a piece read for a chain, at most
};

// The taps of a piece of the kernel along the depth, and its first ones along the other axes.
struct Piece {
  Range d;
  std::int64_t h, w;
};

// The tiles of a chain, terms of one sum: `deep` outputs along the depth at `span` positions.
struct Chain {
  Range positions;
  std::int64_t depth_block;
};

// Sizes for one group and piece. Transformed inputs are [point][chain][slice][position][channel], output gradients of
// one block [point][chain][depth][position][column], and sums panels [point][row][column] of a block of output channels
// (columns) and a run of input channels (rows), for each tap along the depth.
struct Layout {
  std::size_t shape_index = 0;  // of kTileShapes, whose outputs are taps here, and whose taps are a tile
  SummedAxis d;
  TiledAxis h, w;
  std::int64_t positions = 0, span = 0, chains = 0;  // of tiles at one depth; of those, in a chain
  std::int64_t vectors = 0, columns = 0, blocks = 0, pitch = 0, parts = 0, splits = 0, chunk = 0, runs = 0, rows = 0;
  std::int64_t input_stride = 0, gradient_stride = 0, sum_stride = 0;  // of a point
  std::int64_t together = 0;                                           // blocks multiplied side by side
  int slots = 0;                                                       // threads at work
  bool fetches = false;                                                // the pixels of the next tile

  std::int64_t points() const { return h.points() * w.points(); }
  std::int64_t taps() const { return h.taps * w.taps; }  // of a depth
  std::int64_t pieces() const { return d.pieces * h.pieces * w.pieces; }
  Piece piece(const ConvProblem& p, std::int64_t i) const {
    const std::int64_t depth = i / (h.pieces * w.pieces) * d.taps;
    return {{depth, std::min(depth + d.taps, p.kernel[0])}, i / w.pieces % h.pieces * h.taps, i % w.pieces * w.taps};
  }
  std::int64_t tiles() const { return positions * d.outputs; }
  Chain chain(std::int64_t i) const {
    const std::int64_t position = i / d.blocks * span;
    return {{position, std::min(position + span, positions)}, i % d.blocks};
  }
  std::int64_t chain_inputs() const { return d.slices * span; }  // tiles
  std::int64_t chain_gradients() const { return d.deep * span; }
  std::int64_t input_floats() const { return points() * input_stride; }
  std::int64_t gradient_floats() const { return points() * gradient_stride; }  // of a block
  std::int64_t panel_floats() const { return points() * sum_stride; }
  std::int64_t part_panels() const { return d.taps * blocks * runs; }
  // Chains of part `part`. They are whole, so that the cut into chunks does not change the bits.
  Range part_chains(std::int64_t part) const { return nth_part(chains, part, parts); }
  Range split_blocks(std::int64_t split) const { return nth_part(blocks, split, splits); }
  // Sums of one part are panels of the slot: all of a split, or those of one product where one chunk completes them.
  bool keeps_all() const { return parts > 1 || chunk < chains; }
  std::int64_t panels() const {
    return parts > 1 ? 0 : d.taps * (keeps_all() ? ceil_div(blocks, splits) * runs : together);
  }
  std::size_t slot_bytes() const {
    return static_cast<std::size_t>(input_floats() + together * gradient_floats() + panels() * panel_floats()) *
           sizeof(float);
  }
  std::size_t part_bytes() const {
    return parts > 1 ? static_cast<std::size_t>(parts * part_panels() * panel_floats()) * sizeof(float) : 0;
  }
  std::size_t bytes() const { return part_bytes() + static_cast<std::size_t>(slots) * slot_bytes(); }
};

// The fastest layout, for vectors of `lanes` floats, of a problem that has taps along w (kernel_axes_last()). Its tiles
// and parts depend on these only; whatever else is chosen gives the same bits.
Layout choose_layout(const ConvProblem& p, const Traits& traits, std::int64_t lanes, std::size_t limit_bytes);

// Of a chain's depth: its outputs, and the slices of the input that taps of a piece read for them. Slices of equal
// remainder by the stride are together, so that those of one tap are neighbours.
struct DepthBlock {
  struct Tap {
    Range outputs;           // for which it reads inside the input
    std::int64_t slice = 0;  // of the first, in `slices`
  };
  Range outputs;
  std::vector<std::int64_t> slices;
  std::vector<Tap> taps;
};
std::vector<DepthBlock> depth_blocks(const ConvProblem& p, const Layout& layout, const Piece& piece);

double layout_seconds(const ConvProblem& p, const Layout& layout, const Traits& traits);

// False: some gradients are infinite or NaN.
bool run(const ConvProblem& p, const Layout& layout, const Operands<Device>& operands, std::byte* workspace);

}  // namespace vkconv::cpu::winograd_weight_grad
