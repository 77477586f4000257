// Matrix products of any size out of micro-kernels, which are compiled once for every instruction set: those of
// gemm-inl.h and bf16_dot.h, behind function pointers of the set in use.
#pragma once
#include <algorithm>
#include <array>

#include "core/checked.h"
#include "core/dtype.h"
#include "cpu/gemm.h"

namespace vkconv::cpu {

template <class T, class C = T>
struct GemmKernels {
  using Tile = GemmTile<T, C>;
  using Rows = std::array<void (*)(const Tile&, bool accumulate), 14>;  // micro-kernels of 1, 2, ... rows

  RegisterTile shape;
  std::int64_t granule = 1;       // terms that go together
  std::array<Rows, 4> kernels{};  // of 1, 2, 3 and 2 x 2 vectors

  // One chain of additions: C = or += the sums of `rows` rows, tile.first_row being the first, by `vectors` (1 to 3)
  // vectors a panel. Panels of two vectors go in pairs as far as they do, where the wide tiles are high enough.
  void chain(Tile tile, std::int64_t rows, int vectors, bool accumulate) const {
    const bool wide = vectors == 2 && fills_wide_tiles(rows, shape.most_rows(2 * kWidePanels));
    const std::int64_t paired = wide ? tile.panels / kWidePanels * kWidePanels : 0;
    if (paired > 0) cut(tile, rows, 2 * kWidePanels, accumulate);
    tile.first_panel = paired;
    if (paired < tile.panels) cut(tile, rows, vectors, accumulate);
  }
  // Any number of terms, in the chains of for_each_block().
  void tile(const Tile& tile, std::int64_t rows, int vectors, bool accumulate) const {
    for_each_block(tile, vectors * shape.lanes, granule, [&](const Tile& block) {
      chain(block, rows, vectors, accumulate);
      accumulate = true;
    });
  }

 private:
  // As few tiles as their most rows allow, of even height.
  void cut(Tile tile, std::int64_t rows, std::int64_t vectors, bool accumulate) const {
    const std::int64_t tiles = ceil_div(rows, shape.most_rows(vectors)), high = rows % tiles;
    const std::int64_t columns = vectors / panels_of(vectors) * shape.lanes;
    // A single tile has no time to bring the next panel beside its own.
    if (tiles == 1)
      tile.next = nullptr;
    else if (!tile.next && tile.slice_count > 0)
      tile.next = tile.slices[tile.slice_count - 1].b + tile.kc * columns;
    tile.next_step = ceil_div(columns, tiles);
    for (std::int64_t first = 0; first < tiles; first += tile.tiles) {
      const std::int64_t height = rows / tiles + (first < high ? 1 : 0);
      tile.tiles = (first < high ? high : tiles) - first;
      kernels[static_cast<std::size_t>(vectors - 1)][static_cast<std::size_t>(height - 1)](tile, accumulate);
      tile.first_row += tile.tiles * height;
      if (tile.next) tile.next += tile.tiles * tile.slice_count * tile.kc * tile.next_step;
    }
  }
};

// float and double, and pairs of bf16 whose sums are float, where bf16_dot_available().
template <class T, class C = T>
const GemmKernels<T, C>& gemm_kernels();
template <>
const GemmKernels<float>& gemm_kernels<float>();
template <>
const GemmKernels<double>& gemm_kernels<double>();
template <>
const GemmKernels<hwy::bfloat16_t, float>& gemm_kernels<hwy::bfloat16_t, float>();

// Of the processor in use.
inline RegisterTile register_tile(DType accumulator) {
  return accumulator == DType::f64 ? gemm_kernels<double>().shape : gemm_kernels<float>().shape;
}

}  // namespace vkconv::cpu
