// The micro-kernels of gemm-inl.h, compiled once for every instruction set, behind function pointers of the one in use.
#pragma once
#include <algorithm>
#include <array>

#include "core/checked.h"
#include "cpu/gemm.h"

namespace vkconv::cpu {

template <class T>
struct GemmKernels {
  using Kernel = void (*)(const GemmTile<T>&, bool accumulate);
  static constexpr std::size_t kMostRows = 14;

  std::int64_t lanes = 1, max_rows = 1;
  std::int64_t max_wide_rows = 0;                          // of a tile of two panels; 0: there are none
  std::array<std::array<Kernel, kMostRows>, 3> kernels{};  // of 1, 2 and 2 x 2 vectors; [rows - 1]

  // One chain of additions: C = or += the sums of `rows` rows, tile.first_row being the first, by `vectors` (1 or 2)
  // vectors a panel. Panels of two vectors go in pairs as far as they do, where the wide tiles are high enough.
  void chain(GemmTile<T> tile, std::int64_t rows, int vectors, bool accumulate) const {
    const std::int64_t paired = vectors == 2 && fills_wide_tiles(rows, max_wide_rows) ? tile.panels / 2 * 2 : 0;
    if (paired > 0) cut(tile, rows, 4, max_wide_rows, accumulate);
    tile.first_panel = paired;
    if (paired < tile.panels) cut(tile, rows, vectors, max_rows, accumulate);
  }
  // Any number of terms, in the chains of for_each_block().
  void tile(const GemmTile<T>& tile, std::int64_t rows, int vectors, bool accumulate) const {
    for_each_block(tile, vectors * lanes, 1, [&](const GemmTile<T>& block) {
      chain(block, rows, vectors, accumulate);
      accumulate = true;
    });
  }

 private:
  // As few tiles as their most rows allow, of even height.
  void cut(GemmTile<T> tile, std::int64_t rows, int vectors, std::int64_t most, bool accumulate) const {
    const std::int64_t tiles = ceil_div(rows, most), high = rows % tiles;
    const std::int64_t columns = std::min(vectors, 2) * lanes;
    // A single tile has no time to bring the next panel beside its own.
    if (tiles == 1)
      tile.next = nullptr;
    else if (!tile.next && tile.slice_count > 0)
      tile.next = tile.slices[tile.slice_count - 1].b + tile.kc * columns;
    tile.next_step = ceil_div(columns, tiles);
    for (std::int64_t first = 0; first < tiles; first += tile.tiles) {
      const std::int64_t height = rows / tiles + (first < high ? 1 : 0);
      tile.tiles = (first < high ? high : tiles) - first;
      kernels[static_cast<std::size_t>(vectors / 2)][static_cast<std::size_t>(height - 1)](tile, accumulate);
      tile.first_row += tile.tiles * height;
      if (tile.next) tile.next += tile.tiles * tile.slice_count * tile.kc * tile.next_step;
    }
  }
};

// float and double.
template <class T>
const GemmKernels<T>& gemm_kernels();

}  // namespace vkconv::cpu
