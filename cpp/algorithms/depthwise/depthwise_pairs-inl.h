// Register tiles of 3x3 kernels at stride 1: two output rows x several columns, all nine weights of a depth in
// registers, every input vector loaded once for up to six products. Included once per instruction set.
#if defined(VKCONV_DEPTHWISE_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VKCONV_DEPTHWISE_PAIRS_INL_H_
#undef VKCONV_DEPTHWISE_PAIRS_INL_H_
#else
#define VKCONV_DEPTHWISE_PAIRS_INL_H_
#endif

#include "algorithms/depthwise/depthwise_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::depthwise::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Nine weights, two sums a column and one input vector must fit the registers; with 16 of them weights stay in L1.
inline constexpr int kMaxPairColumns = kMaxColumns > 8 ? 6 : 4;

// A run of tiles of the upper row, with four input lines a depth (the lower row reads the last three) whose `w` are
// the weights of that depth, and where the sums of the lower row go.
template <class In>
struct PairTile {
  Tile<In> upper;
  Sink<Accumulator<In>> lower;
};

// The sums of both rows run over the kernel rows, then columns, in the order of row_tiles. Masked as in
// add_positions. `taps` are the weights of row r of the upper output row, and of row r - 1 of the lower.
template <bool Masked, int Columns, class In>
HWY_INLINE void add_pair_line(hn::Vec<AccumulatorTag<In>> (&upper)[Columns],
                              hn::Vec<AccumulatorTag<In>> (&lower)[Columns],
                              const hn::Vec<AccumulatorTag<In>> (&tap)[9], const In* HWY_RESTRICT x, std::int64_t pixel,
                              int r, std::uint64_t inside) {
  const AccumulatorTag<In> d;
  if constexpr (Masked) {
    HWY_UNROLL(16)
    for (int j = 0; j < Columns + 2; ++j, x += pixel) {
      if (!(inside >> j & 1)) continue;
      const auto v = load(d, x);
      HWY_UNROLL(4)
      for (int q = 0; q < 3; ++q) {
        if (j < q || j - q >= Columns) continue;
        if (r < 3) upper[j - q] = hn::MulAdd(v, tap[r * 3 + q], upper[j - q]);
        if (r > 0) lower[j - q] = hn::MulAdd(v, tap[(r - 1) * 3 + q], lower[j - q]);
      }
    }
  } else {
    // Tap by tap: neighbouring products go to different sums, which hides the latency of the additions.
    hn::Vec<decltype(d)> v[Columns + 2];
    HWY_UNROLL(16)
    for (int j = 0; j < Columns + 2; ++j) v[j] = load(d, x + j * pixel);
    HWY_UNROLL(4)
    for (int q = 0; q < 3; ++q) {
      HWY_UNROLL(16)
      for (int i = 0; i < Columns; ++i) {
        if (r < 3) upper[i] = hn::MulAdd(v[i + q], tap[r * 3 + q], upper[i]);
        if (r > 0) lower[i] = hn::MulAdd(v[i + q], tap[(r - 1) * 3 + q], lower[i]);
      }
    }
  }
}

// The four input lines of one depth.
template <bool Masked, int Columns, class In>
HWY_INLINE void add_plane(hn::Vec<AccumulatorTag<In>> (&upper)[Columns], hn::Vec<AccumulatorTag<In>> (&lower)[Columns],
                          const Tile<In>& t, const Line<In>* lines, std::int64_t c, std::uint64_t inside) {
  const AccumulatorTag<In> d;
  hn::Vec<decltype(d)> tap[9];
  HWY_UNROLL(16)
  for (int q = 0; q < 9; ++q) tap[q] = hn::LoadU(d, lines[0].w + c + q * t.weight_row);
  HWY_UNROLL(4)
  for (int r = 0; r < 4; ++r)
    if (!Masked || lines[r].x)
      add_pair_line<Masked, Columns, In>(upper, lower, tap, lines[r].x + t.origin + c, t.pixel, r, inside);
}

template <int Columns, class In>
HWY_NOINLINE void pair_tiles(PairTile<In> pair) {
  const AccumulatorTag<In> d;
  Tile<In>& t = pair.upper;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  bool whole_lines = true;
  for (std::int64_t l = 0; l < t.line_count; ++l) whole_lines = whole_lines && t.lines[l].x;
  for (; t.width > 0; t.advance(Columns), pair.lower.advance(Columns)) {
    const std::uint64_t inside = positions_inside(t.left, t.right, 0);
    const bool whole = whole_lines && t.left <= 0 && t.right >= Columns + 2;
    for (std::int64_t at = t.channels.begin; at < t.channels.end; at += lanes) {
      const std::int64_t c = std::min(at, t.channels.end - lanes);
      fetch_ahead<Columns>(t, c);
      fetch_outputs<Columns>(t.sink, c);
      fetch_outputs<Columns>(pair.lower, c);
      hn::Vec<decltype(d)> upper[Columns], lower[Columns];
      HWY_UNROLL(16)
      for (int i = 0; i < Columns; ++i) upper[i] = lower[i] = hn::Zero(d);
      if (HWY_LIKELY(whole))
        for (std::int64_t l = 0; l < t.line_count; l += 4)
          add_plane<false, Columns, In>(upper, lower, t, t.lines + l, c, inside);
      else
        for (std::int64_t l = 0; l < t.line_count; l += 4)
          add_plane<true, Columns, In>(upper, lower, t, t.lines + l, c, inside);
      put(upper, t.sink, t.width, c, static_cast<std::size_t>(at - c));
      put(lower, pair.lower, t.width, c, static_cast<std::size_t>(at - c));
    }
  }
}

// How a pair of rows of `left` columns is cut.
inline std::int64_t pair_tile_columns(std::int64_t left) {
  if (left >= kMaxPairColumns) return kMaxPairColumns;
  return left > 2 ? 4 : 2;
}

// Tiles of `columns` columns each.
template <class In>
HWY_INLINE void run_pair_tiles(const PairTile<In>& pair, std::int64_t columns) {
  if (columns == 2) return pair_tiles<2>(pair);
  if constexpr (kMaxPairColumns > 4)
    if (columns > 4) return pair_tiles<kMaxPairColumns>(pair);
  pair_tiles<4>(pair);
}

}  // namespace vkconv::cpu::depthwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
