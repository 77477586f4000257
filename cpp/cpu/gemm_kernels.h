// Matrix products of any size out of micro-kernels, which are compiled once for every instruction set: those of
// gemm-inl.h, bf16_dot.h and bf16_tiles.h, behind function pointers of the set in use.
#pragma once
#include <algorithm>
#include <array>

#include "core/checked.h"
#include "core/dtype.h"
#include "cpu/cache_sets.h"
#include "cpu/gemm.h"

namespace vkconv::cpu {

inline constexpr std::int64_t kMostTileRows = 32;  // of any micro-kernel

template <class T, class C = T>
struct GemmKernels {
  using Tile = GemmTile<T, C>;
  using Terms = GemmTerms<T>;
  using Part = GemmPart<T, C>;
  // Micro-kernels of 1, 2, ... rows.
  using Rows = std::array<void (*)(const Tile&, const Terms* chains, const Part&), kMostTileRows>;

  RegisterTile shape;
  std::int64_t granule = 1;       // terms that go together
  std::array<Rows, 4> kernels{};  // of 1, 2, 3 and 2 x 2 vectors
  Rows twins{};                   // of two vectors, in two chains side by side
  void (*release)() = nullptr;    // gives back what the calls of a thread hold; null: nothing
  std::int64_t twin_bytes = 0;    // of all panels, beyond which one chain after the other is faster
  // Of each of the two: their part of a panel must stay in L1, since tiles half as high meet it twice as often.
  static constexpr std::int64_t kMostTwinTerms = kBlockTerms * 3 / 2;

  // How many chains to bring to chains() for a panel of so many vectors, one of so many bytes in all.
  int chains_together(int vectors, std::int64_t all_bytes = 0) const {
    return vectors == 2 && shape.twin_rows > 0 && all_bytes <= twin_bytes ? 2 : 1;
  }

  // C = or += the sums of `rows` rows by `vectors` (1 to 3) vectors a panel, in one chain of additions.
  void chain(const Tile& tile, std::int64_t rows, int vectors, bool accumulate) const {
    one_chain(tile, tile.terms, rows, vectors, accumulate, tile.finish);
  }
  // The same for any number of terms, in the chains of for_each_block().
  void tile(const Tile& tile, std::int64_t rows, int vectors, bool accumulate) const {
    for_each_block(tile, vectors * shape.lanes, granule, chains_together(vectors),
                   [&](const Terms* terms, int count, bool last) {
                     chains(tile, terms, count, rows, vectors, accumulate, last ? tile.finish : nullptr);
                     accumulate = true;
                   });
  }
  // The same in `count` chains, added in their order: as many as chains_together() at most.
  void chains(const Tile& tile, const Terms* terms, int count, std::int64_t rows, int vectors, bool accumulate,
              const GemmFinish<T, C>* finish) const {
    const bool alike = count == 2 && terms[0].slice_count == terms[1].slice_count && terms[0].kc == terms[1].kc;
    if (alike && terms->slice_count * terms->kc <= kMostTwinTerms)
      return two_chains(tile, terms, rows, vectors, accumulate, finish);
    for (int i = 0; i < count; ++i, accumulate = true)
      one_chain(tile, terms[i], rows, vectors, accumulate, i + 1 == count ? finish : nullptr);
  }

 private:
  // Whether a tile meets a line of A again after those of many other rows.
  bool rows_crowd(const Tile& tile) const {
    constexpr auto kElement = static_cast<std::int64_t>(sizeof(T));
    return granule * kElement < kLineBytes && crowd_sets(tile.lda * kElement);
  }
  // Panels of two vectors go in pairs as far as they do, where the wide tiles are high enough.
  void one_chain(const Tile& tile, const Terms& terms, std::int64_t rows, int vectors, bool accumulate,
                 const GemmFinish<T, C>* finish) const {
    Part part{accumulate, finish, 0, 0, 0, tile.panels, nullptr, 0};
    const T* const next = tile.next ? tile.next : behind(terms, vectors);
    const auto cut_by = [&](int width) {
      const std::int64_t most = shape.most_rows(width);
      cut(tile, &terms, 1, part, rows, width, kernels[static_cast<std::size_t>(width - 1)],
          rows_crowd(tile) ? std::min(most, kCrowdedRows) : most, next);
    };
    const bool wide = vectors == 2 && fills_wide_tiles(rows, shape.most_rows(2 * kWidePanels));
    const std::int64_t paired = wide ? tile.panels / kWidePanels * kWidePanels : 0;
    if (paired > 0) cut_by(2 * kWidePanels);
    part.first_panel = paired;
    if (paired < tile.panels) cut_by(vectors);
  }
  // Panel by panel, so that one of them stays in L1 while it meets all tiles.
  void two_chains(const Tile& tile, const Terms* terms, std::int64_t rows, int vectors, bool accumulate,
                  const GemmFinish<T, C>* finish) const {
    Part part{accumulate, finish, 0, 0, 0, 0, nullptr, 0};
    for (std::int64_t panel = 0; panel < tile.panels; panel = part.panels_end) {
      part.first_panel = panel;
      part.panels_end = panel + 1;
      const T* next = tile.next ? tile.next : behind(terms[1], vectors);
      if (part.panels_end < tile.panels) next = terms->slices->b + part.panels_end * tile.panel_stride;
      cut(tile, terms, 2, part, rows, vectors, twins, shape.twin_rows, next);
    }
  }
  // Where the panel goes on behind the terms.
  const T* behind(const Terms& terms, int vectors) const {
    if (terms.slice_count == 0) return nullptr;
    return terms.slices[terms.slice_count - 1].b + terms.kc * vectors * shape.lanes;
  }
  // As few register tiles as their most rows allow, of even height. `next`: see GemmPart.
  void cut(const Tile& tile, const Terms* chains, int count, Part& part, std::int64_t rows, std::int64_t vectors,
           const Rows& of_rows, std::int64_t most_rows, const T* next) const {
    const std::int64_t tiles = ceil_div(rows, most_rows), low = rows / tiles, high = rows - tiles * low;
    const std::int64_t terms = count * chains->slice_count * chains->kc;
    // A single tile has no time to bring the next panel beside its own.
    part.next = tiles > 1 ? next : nullptr;
    part.next_step = ceil_div(vectors / panels_of(vectors) * shape.lanes, tiles);
    part.first_row = 0;
    const auto run = [&](std::int64_t together, std::int64_t height) {
      part.tiles = together;
      of_rows[static_cast<std::size_t>(height - 1)](tile, chains, part);
      part.first_row += together * height;
      if (part.next) part.next += together * terms * part.next_step;
    };
    if (high > 0) run(high, low + 1);
    if (tiles > high) run(tiles - high, low);
  }
};

// float and double.
template <class T>
const GemmKernels<T>& gemm_kernels();
template <>
const GemmKernels<float>& gemm_kernels<float>();
template <>
const GemmKernels<double>& gemm_kernels<double>();

// Of the processor in use.
inline RegisterTile register_tile(DType accumulator) {
  return accumulator == DType::f64 ? gemm_kernels<double>().shape : gemm_kernels<float>().shape;
}

}  // namespace vkconv::cpu
