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
  using Terms = GemmTerms<T>;
  using Part = GemmPart<T, C>;
  using Rows = std::array<void (*)(const Tile&, const Terms&, const Part&), 14>;  // micro-kernels of 1, 2, ... rows

  RegisterTile shape;
  std::int64_t granule = 1;       // terms that go together
  std::array<Rows, 4> kernels{};  // of 1, 2, 3 and 2 x 2 vectors

  // C = or += the sums of `rows` rows by `vectors` (1 to 3) vectors a panel, in one chain of additions.
  void chain(const Tile& tile, std::int64_t rows, int vectors, bool accumulate) const {
    chain(tile, tile.terms, rows, vectors, accumulate, tile.finish);
  }
  // The same for any number of terms, in the chains of for_each_block().
  void tile(const Tile& tile, std::int64_t rows, int vectors, bool accumulate) const {
    for_each_block(tile, vectors * shape.lanes, granule, [&](const Terms& terms, bool last) {
      chain(tile, terms, rows, vectors, accumulate, last ? tile.finish : nullptr);
      accumulate = true;
    });
  }

 private:
  // Panels of two vectors go in pairs as far as they do, where the wide tiles are high enough.
  void chain(const Tile& tile, const Terms& terms, std::int64_t rows, int vectors, bool accumulate,
             const GemmFinish<T, C>* finish) const {
    Part part{accumulate, finish, 0, 0, 0, nullptr, 0};
    const bool wide = vectors == 2 && fills_wide_tiles(rows, shape.most_rows(2 * kWidePanels));
    const std::int64_t paired = wide ? tile.panels / kWidePanels * kWidePanels : 0;
    if (paired > 0) cut(tile, terms, part, rows, 2 * kWidePanels);
    part.first_panel = paired;
    if (paired < tile.panels) cut(tile, terms, part, rows, vectors);
  }
  // As few register tiles as their most rows allow, of even height.
  void cut(const Tile& tile, const Terms& terms, Part& part, std::int64_t rows, std::int64_t vectors) const {
    const std::int64_t tiles = ceil_div(rows, shape.most_rows(vectors)), low = rows / tiles, high = rows - tiles * low;
    const std::int64_t columns = vectors / panels_of(vectors) * shape.lanes;
    // A single tile has no time to bring the next panel beside its own.
    part.next = nullptr;
    if (tiles > 1 && terms.slice_count > 0)
      part.next = tile.next ? tile.next : terms.slices[terms.slice_count - 1].b + terms.kc * columns;
    part.next_step = ceil_div(columns, tiles);
    part.first_row = 0;
    const auto run = [&](std::int64_t count, std::int64_t height) {
      part.tiles = count;
      kernels[static_cast<std::size_t>(vectors - 1)][static_cast<std::size_t>(height - 1)](tile, terms, part);
      part.first_row += count * height;
      if (part.next) part.next += count * terms.slice_count * terms.kc * part.next_step;
    };
    if (high > 0) run(high, low + 1);
    if (tiles > high) run(tiles - high, low);
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
