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

// The tile of the upper row, with four input lines a depth (the lower row reads the last three) whose `w` are the
// weights of that depth, and where the sums of the lower row go.
template <class T>
struct PairTile {
  Tile<T> upper;
  Sink<T> lower;
};

// The four input lines of one depth. Sums run over the kernel rows, then columns, in the order of row_tile. Masked as
// in add_positions.
template <bool Masked, int Columns, class T>
HWY_INLINE void add_plane(hn::Vec<hn::ScalableTag<T>> (&upper)[Columns], hn::Vec<hn::ScalableTag<T>> (&lower)[Columns],
                          const Tile<T>& t, const Line<T>* lines, std::int64_t c, std::uint64_t inside) {
  const hn::ScalableTag<T> d;
  hn::Vec<decltype(d)> tap[9];
  HWY_UNROLL(16)
  for (int q = 0; q < 9; ++q) tap[q] = hn::LoadU(d, lines[0].w + c + q * t.weight_row);
  HWY_UNROLL(4)
  for (int r = 0; r < 4; ++r) {
    if (!lines[r].x) continue;
    const T* HWY_RESTRICT x = lines[r].x + t.origin + c;
    HWY_UNROLL(16)
    for (int j = 0; j < Columns + 2; ++j, x += t.pixel) {
      const bool edge = j < 2 || j >= Columns;
      if ((Masked || edge) && !(inside >> j & 1)) continue;
      const auto v = hn::LoadU(d, x);
      HWY_UNROLL(4)
      for (int q = 0; q < 3; ++q) {
        if (j < q || j - q >= Columns) continue;
        if (r < 3) upper[j - q] = hn::MulAdd(v, tap[r * 3 + q], upper[j - q]);
        if (r > 0) lower[j - q] = hn::MulAdd(v, tap[(r - 1) * 3 + q], lower[j - q]);
      }
    }
  }
}

template <int Columns, class T>
HWY_NOINLINE void pair_tile(const PairTile<T>& pair) {
  const hn::ScalableTag<T> d;
  const Tile<T>& t = pair.upper;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::uint64_t inside = positions_inside(t.left, t.right, 0);
  const bool edges = t.left < 3 && t.right >= Columns;
  for (std::int64_t at = t.channels.begin; at < t.channels.end; at += lanes) {
    const std::int64_t c = std::min(at, t.channels.end - lanes);
    hn::Vec<decltype(d)> upper[Columns], lower[Columns];
    HWY_UNROLL(16)
    for (int i = 0; i < Columns; ++i) upper[i] = lower[i] = hn::Zero(d);
    for (std::int64_t l = 0; l < t.line_count; l += 4)
      edges ? add_plane<false>(upper, lower, t, t.lines + l, c, inside)
            : add_plane<true>(upper, lower, t, t.lines + l, c, inside);
    put(upper, t.sink, t.width, c, static_cast<std::size_t>(at - c));
    put(lower, pair.lower, t.width, c, static_cast<std::size_t>(at - c));
  }
}

// The tile of `columns` <= kMaxPairColumns columns; short rows take a wider one.
template <class T>
HWY_INLINE void run_pair_tile(const PairTile<T>& pair) {
  const std::int64_t columns = pair.upper.width;
  if (columns <= 2) return pair_tile<2>(pair);
  if (columns <= 4) return pair_tile<4>(pair);
  if constexpr (kMaxPairColumns > 4) {
    columns == 5 ? pair_tile<5>(pair) : pair_tile<6>(pair);
  }
}

}  // namespace vkconv::cpu::depthwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
