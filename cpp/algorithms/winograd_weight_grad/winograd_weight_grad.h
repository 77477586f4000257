// How winograd_weight_grad cuts a problem: the kernel into pieces, the output gradient into tiles.
#pragma once
#include <algorithm>
#include <cstdint>

#include "algorithms/winograd/winograd_kernels.h"
#include "core/geometry.h"
#include "core/problem.h"
#include "cpu/device.h"

namespace vkconv::cpu::winograd_weight_grad {

inline constexpr std::int64_t kChain = 64;  // tiles summed in registers

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

// The first taps of a piece of the kernel; along the depth it has one.
struct Piece {
  std::int64_t d, h, w;
};

// Sizes for one group and piece. Transformed inputs are [point][tile][channel], output gradients of one block
// [point][tile][column], and sums panels [point][row][column] of a block of output channels (columns) and a run of
// input channels (rows).
struct Layout {
  std::size_t shape_index = 0;  // of kTileShapes, whose outputs are taps here, and whose taps are a tile
  TiledAxis h, w;
  std::int64_t vectors = 0, columns = 0, blocks = 0, pitch = 0, tiles = 0, parts = 0, splits = 0, chunk = 0, runs = 0,
               rows = 0;
  std::int64_t input_stride = 0, gradient_stride = 0, sum_stride = 0;  // of a point
  std::int64_t together = 0;                                           // blocks multiplied side by side
  int slots = 0;                                                       // threads at work
  bool fetches = false;                                                // the pixels of the next tile

  std::int64_t points() const { return h.points() * w.points(); }
  std::int64_t taps() const { return h.taps * w.taps; }
  std::int64_t pieces(const ConvProblem& p) const { return p.kernel[0] * h.pieces * w.pieces; }
  Piece piece(std::int64_t i) const {
    return {i / (h.pieces * w.pieces), i / w.pieces % h.pieces * h.taps, i % w.pieces * w.taps};
  }
  std::int64_t input_floats() const { return points() * input_stride; }
  std::int64_t gradient_floats() const { return points() * gradient_stride; }  // of a block
  std::int64_t panel_floats() const { return points() * sum_stride; }
  std::int64_t part_floats() const { return blocks * runs * panel_floats(); }
  // Tiles of part `part`: whole chains, so that the cut into chunks does not change the bits.
  Range part_tiles(std::int64_t part) const {
    const std::int64_t chains = ceil_div(tiles, kChain);
    return {chains * part / parts * kChain, std::min(tiles, chains * (part + 1) / parts * kChain)};
  }
  Range split_blocks(std::int64_t split) const { return {blocks * split / splits, blocks * (split + 1) / splits}; }
  // Sums of one part are panels of the slot: all of a split, or those of one product where one chunk completes them.
  bool keeps_all() const { return parts > 1 || chunk < tiles; }
  std::int64_t panels() const { return parts > 1 ? 0 : keeps_all() ? ceil_div(blocks, splits) * runs : together; }
  std::size_t slot_bytes() const {
    return static_cast<std::size_t>(input_floats() + together * gradient_floats() + panels() * panel_floats()) *
           sizeof(float);
  }
  std::size_t part_bytes() const {
    return parts > 1 ? static_cast<std::size_t>(parts * part_floats()) * sizeof(float) : 0;
  }
  std::size_t bytes() const { return part_bytes() + static_cast<std::size_t>(slots) * slot_bytes(); }
};

// The fastest layout, for vectors of `lanes` floats, of a problem that has taps along w (kernel_axes_last()). Its tiles
// and parts depend on these only; whatever else is chosen gives the same bits.
Layout choose_layout(const ConvProblem& p, const Traits& traits, std::int64_t lanes, std::size_t limit_bytes);

double layout_seconds(const ConvProblem& p, const Layout& layout, const Traits& traits);

// False: some gradients are infinite or NaN.
bool run(const ConvProblem& p, const Layout& layout, const Operands<Device>& operands, std::byte* workspace);

}  // namespace vkconv::cpu::winograd_weight_grad
