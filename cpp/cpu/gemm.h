// Arguments of the register-tiled matrix product in gemm-inl.h.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/checked.h"
#include "cpu/lines.h"
#include "hwy/base.h"

namespace vkconv::cpu {

// Longest chain of additions into one accumulator. Longer sums are sums of block sums: the rounding error of a chain
// of n positive terms is about 0.4 sqrt(n / 3) roundings of its result (standard deviation), so blocks keep it to a
// few. 64 costs 2 % of the rate.
inline constexpr std::int64_t kBlockTerms = 64;

// Terms a block for a sum of `terms`: beyond 64 blocks, adding the blocks up would cost more than longer ones.
constexpr std::int64_t block_terms(std::int64_t terms) {
  return kBlockTerms * ((terms + kBlockTerms * kBlockTerms - 1) / (kBlockTerms * kBlockTerms));
}

inline constexpr std::int64_t kWidePanels = 2;  // beside each other in a wide tile

// Panels beside each other in a tile of `vectors` vectors.
constexpr std::int64_t panels_of(std::int64_t vectors) { return vectors > 3 ? kWidePanels : 1; }

// The largest tiles of a micro-kernel.
struct RegisterTile {
  std::int64_t lanes = 4;  // of a vector
  // By a panel of one, two and three vectors, and by kWidePanels of two; 0: too few registers, or others are faster.
  std::array<std::int64_t, 4> rows{1, 1, 0, 0};
  std::int64_t twin_rows = 0;  // by two vectors, in two chains side by side; 0: one after the other is faster

  constexpr std::int64_t most_rows(std::int64_t vectors) const { return rows[static_cast<std::size_t>(vectors - 1)]; }
  std::int64_t panels() const { return most_rows(2 * kWidePanels) > 0 ? kWidePanels : 1; }
  // Vectors of the panels that are multiplied fastest.
  std::int64_t vectors() const { return most_rows(3) > 0 && panels() == 1 ? 3 : 2; }
  // The same where rows have `all` vectors: also three beside wide tiles if none is left over, which takes 0.85 to 1 of
  // the time, unless twins are faster still.
  std::int64_t vectors(std::int64_t all) const {
    const bool three = most_rows(3) > 0 && all % 3 == 0 && (all % 2 == 1 || twin_rows == 0);
    return three ? 3 : vectors();
  }
  // Whether panels of two vectors leave one alone, whose products would load a value each, and the last panel can take
  // it: 0.75 to 0.95 of the time.
  bool leaves_one(std::int64_t all) const { return most_rows(3) > 0 && all % 2 == 1 && all > 1; }
};

// Rows of A that are `lda` apart, times `kc` consecutive rows of a packed panel of B.
template <class T>
struct GemmSlice {
  const T* a;  // row 0
  const T* b;  // kc rows of `columns` values
};

// A sum over slices s and k < kc of s.a[row * lda + k] * s.b[k * columns + column].
template <class T>
struct GemmTerms {
  const GemmSlice<T>* slices = nullptr;
  std::int64_t slice_count = 0;
  std::int64_t kc = 0;  // terms a slice
};

// What the last chain makes of its sums: low <= sum + addend + bias <= high, where a NaN stays one. `addend` and `bias`
// may be null. Where `rounded` is not, results go there, rounded to 16 bits, instead of to C.
template <class T, class C = T>
struct GemmFinish {
  using Rounded = std::conditional_t<std::is_same_v<T, float>, hwy::float16_t, T>;

  const C *addend = nullptr, *bias = nullptr;
  std::int64_t addend_stride = 0;  // elements between rows
  C low = -std::numeric_limits<C>::infinity(), high = std::numeric_limits<C>::infinity();
  Rounded* rounded = nullptr;
  std::int64_t rounded_stride = 0;
};

// C[rows][columns] = or += the sums of `terms`.
template <class T, class C = T>
struct GemmTile {
  GemmTerms<T> terms;
  std::int64_t lda = 0;  // elements between rows of A; any sign
  C* c = nullptr;
  std::int64_t ldc = 0;                       // elements between rows of C
  std::int64_t block = kBlockTerms;           // longest chain; block_terms() of the whole sum
  std::int64_t panels = 1, panel_stride = 0;  // elements of B from panel to panel
  std::int64_t c_panel_stride = 0;            // elements of C from panel to panel; 0: their columns follow each other
  std::int64_t rows_ahead = 0;                // what so many rows below read of A is fetched into L2; 0: nothing
  // Where the panel behind these begins, which the tiles below each other bring into L1 together; null: behind the last
  // slice.
  const T* next = nullptr;
  // Columns of C in the last vector of the last panel, where they are fewer than its lanes; only with kMaskedMemory.
  std::int64_t last_lanes = 0;
  const GemmFinish<T, C>* finish = nullptr;  // null: C is the sums
};

// Chains of additions that a register tile can make at the same time, each in sums of its own.
inline constexpr int kMostChains = 2;

// The part of a tile that one call of a micro-kernel computes, in one chain of additions or in several side by side: it
// goes through several register tiles below each other, and the panels beside each other, so that a short sum does not
// pay for a call.
//
// Chains take a few hundred cycles. Between two of them the products stop unless the instructions there are few, and
// where a structure is copied: a wide load of fields that were just stored waits until all older stores, those of the
// sums among them, are in the cache. So these structures are passed by reference, and made field by field.
template <class T, class C = T>
struct GemmPart {
  bool accumulate;
  const GemmFinish<T, C>* finish;
  std::int64_t first_row, tiles, first_panel, panels_end;
  // What the tiles fetch of the panel behind theirs, `next_step` elements a term; null: a single one fetches ahead of
  // its own use.
  const T* next;
  std::int64_t next_step;
};

// Fetches into L2 what register tile `tile` of a part reads `rows_ahead` rows further on, if the part has the first of
// the panels that the rows meet. The hardware follows runs of memory one after the other, not those of a tile side by
// side: rows out of memory come up to 1.4 times as fast so. A tile at a time, since more fetches than the core can have
// on their way would hold up its products.
template <int kChains, class T, class C>
inline __attribute__((always_inline)) void fetch_rows(const GemmTile<T, C>& t, const GemmTerms<T>* chains,
                                                      const GemmPart<T, C>& part, std::int64_t tile,
                                                      std::int64_t rows) {
  if (t.rows_ahead == 0 || part.first_panel > 0) return;
  const std::int64_t first = part.first_row + tile * rows + t.rows_ahead;
  for (const GemmTerms<T>* chain = chains; chain < chains + kChains; ++chain)
    for (std::int64_t s = 0; s < chain->slice_count; ++s)
      for (std::int64_t row = first; row < first + rows; ++row)
        fetch_run<kIntoL2>(chain->slices[s].a + row * t.lda, chain->kc * static_cast<std::int64_t>(sizeof(T)));
}

// Whether wide tiles of at most `most` rows (0: none) are faster for so many rows: two of 4 rows take longer than a
// narrow tile of them all, which reads B evenly.
constexpr bool fills_wide_tiles(std::int64_t rows, std::int64_t most) {
  return most > 0 && (rows <= most || 2 * rows > 3 * most);
}

// Cuts the terms of a tile into chains of about tile.block terms, at most a third more, and calls run(chains, count,
// last) for `together` of them at a time, or as many as are left. The cuts depend on slice_count and kc only: slices
// longer than a block are cut into pieces of equal length, a multiple of `granule`, the last of which may be shorter;
// of shorter ones, blocks take as many as each other. `columns` is the width of the panel.
template <class T, class C, class F>
inline void for_each_block(const GemmTile<T, C>& tile, std::int64_t columns, std::int64_t granule, int together,
                           F&& run) {
  const GemmTerms<T>& all = tile.terms;
  if (all.slice_count <= 1 && all.kc <= tile.block) return run(&all, 1, true);
  GemmTerms<T> chains[kMostChains];
  int count = 0;
  const auto add = [&](const GemmSlice<T>* slices, std::int64_t slice_count, std::int64_t kc, bool last) {
    chains[count++] = {slices, slice_count, kc};
    if (count < together && !last) return;
    run(chains, count, last);
    count = 0;
  };
  if (all.kc <= tile.block) {
    const std::int64_t kc = std::max<std::int64_t>(1, all.kc), most = 4 * tile.block / (3 * kc);
    const std::int64_t blocks = ceil_div(all.slice_count, most), slices_per_block = ceil_div(all.slice_count, blocks);
    for (std::int64_t s = 0; s < all.slice_count; s += slices_per_block) {
      const std::int64_t slices = std::min(slices_per_block, all.slice_count - s);
      add(all.slices + s, slices, all.kc, s + slices == all.slice_count);
    }
    return;
  }
  GemmSlice<T> pieces[kMostChains];
  const std::int64_t parts = ceil_div(all.kc, tile.block), length = round_up(ceil_div(all.kc, parts), granule);
  for (std::int64_t s = 0; s < all.slice_count; ++s)
    for (std::int64_t begin = 0, end; begin < all.kc; begin = end) {
      end = std::min(begin + length, all.kc);
      GemmSlice<T>& piece = pieces[count];
      piece = {all.slices[s].a + begin, all.slices[s].b + begin * columns};
      add(&piece, 1, end - begin, s + 1 == all.slice_count && end == all.kc);
    }
}

}  // namespace vkconv::cpu
