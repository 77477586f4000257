// Register tiles of kernels of several rows: two output rows x several columns. A line of the input is loaded once for
// both rows, which read it with kernel rows one stride apart: most vectors come from L2, and at stride 1 half as many
// of them do. Included once per instruction set.
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

// Two sums a column, the weights of two kernel rows and one input vector must fit the registers: 16 of them hold
// kernels 3 wide.
inline constexpr bool kManyRegisters = kMaxColumns > 8;
inline constexpr int kMaxPairColumns = kManyRegisters ? 8 : 4;
inline constexpr int kMinPairColumns = kMaxPairColumns / 2;

template <class In>
constexpr bool pairs_of_width(std::int64_t kernel_width) {
  return kernel_width == 3 || (kManyRegisters && sizeof(Accumulator<In>) == 4);
}

// A run of tiles of the upper row, and where the sums of the lower row go. The upper row reads the first kernel_height
// of a depth's kernel_height + kRowStride lines, whose `w` are its weights; the lower row the last, each with the
// weights of the line kRowStride before it.
template <class In>
struct PairTile {
  Tile<In> upper;
  Sink<Accumulator<In>> lower;
  std::int64_t kernel_height;
  bool square;  // the lines are of one depth of a square kernel, and all inside the image
};

// One line, added to the sums of the rows that read it, in the order of row_tiles. Positions of kMissing only exist
// with their bit in `inside`.
template <int Taps, int Stride, bool Upper, bool Lower, Missing kMissing, int Columns, class In>
HWY_INLINE void add_pair_line(hn::Vec<AccumulatorTag<In>> (&upper)[Columns],
                              hn::Vec<AccumulatorTag<In>> (&lower)[Columns], const Tile<In>& t, const Line<In>& line,
                              std::int64_t c, std::uint64_t inside) {
  constexpr int kRowStride = pair_row_stride(Taps, Stride);
  const AccumulatorTag<In> d;
  hn::Vec<decltype(d)> upper_tap[Taps], lower_tap[Taps];
  const Accumulator<In>* w = line.w + c;
  HWY_UNROLL(8)
  for (int q = 0; q < Taps; ++q) {
    if (Upper) upper_tap[q] = held(hn::LoadU(d, w + q * t.weight_row));
    if (Lower) lower_tap[q] = held(hn::LoadU(d, w + q * t.weight_row - kRowStride * t.weight_line));
  }
  const In* HWY_RESTRICT x = line.x + t.origin + c;
  HWY_UNROLL(32)
  for (int j = 0; j < (Columns - 1) * Stride + Taps; ++j, x += t.pixel) {
    if (may_miss<kMissing, Taps, Stride, Columns>(j) && !(inside >> j & 1)) continue;
    const auto v = held(load(d, x));
    HWY_UNROLL(8)
    for (int q = 0; q < Taps; ++q) {
      const int i = (j - q) / Stride;
      if (j < q || (j - q) % Stride != 0 || i >= Columns) continue;
      if (Upper) upper[i] = hn::MulAdd(v, upper_tap[q], upper[i]);
      if (Lower) lower[i] = hn::MulAdd(v, lower_tap[q], lower[i]);
    }
  }
}

// The lines of all depths.
template <int Taps, int Stride, Missing kMissing, int Columns, class In>
HWY_INLINE void add_pair_lines(hn::Vec<AccumulatorTag<In>> (&upper)[Columns],
                               hn::Vec<AccumulatorTag<In>> (&lower)[Columns], const PairTile<In>& pair, std::int64_t c,
                               std::uint64_t inside) {
  constexpr int kRowStride = pair_row_stride(Taps, Stride);
  const Tile<In>& t = pair.upper;
  HWY_UNROLL(16)
  for (int i = 0; i < Columns; ++i) upper[i] = lower[i] = hn::Zero(AccumulatorTag<In>());
  for (const Line<In>*line = t.lines, *end = line + t.line_count; line != end;) {
    const Line<In>* const last = line + pair.kernel_height;
    for (int i = 0; i < kRowStride; ++i, ++line)
      if (line->x) add_pair_line<Taps, Stride, true, false, kMissing, Columns, In>(upper, lower, t, *line, c, inside);
    for (; line != last; ++line)
      if (line->x) add_pair_line<Taps, Stride, true, true, kMissing, Columns, In>(upper, lower, t, *line, c, inside);
    for (int i = 0; i < kRowStride; ++i, ++line)
      if (line->x) add_pair_line<Taps, Stride, false, true, kMissing, Columns, In>(upper, lower, t, *line, c, inside);
  }
}

// The lines of a square kernel, all inside the image, each by instructions of its own: the processor fetches ahead what
// an instruction reads at even distances.
template <int Taps, int Stride, int Columns, class In>
HWY_INLINE void add_square_pair(hn::Vec<AccumulatorTag<In>> (&upper)[Columns],
                                hn::Vec<AccumulatorTag<In>> (&lower)[Columns], const PairTile<In>& pair, std::int64_t c,
                                std::uint64_t inside) {
  constexpr int kRowStride = pair_row_stride(Taps, Stride);
  HWY_UNROLL(16)
  for (int i = 0; i < Columns; ++i) upper[i] = lower[i] = hn::Zero(AccumulatorTag<In>());
  unroll<Taps + kRowStride>([&](auto i) __attribute__((always_inline)) {
    constexpr bool kUpper = Taps > i, kLower = kRowStride <= i;
    const Line<In>& line = pair.upper.lines[i];
    add_pair_line<Taps, Stride, kUpper, kLower, Missing::ends, Columns, In>(upper, lower, pair.upper, line, c, inside);
  });
}

template <int Taps, int Stride, int Columns, class In>
HWY_NOINLINE void pair_tiles(PairTile<In> pair) {
  const AccumulatorTag<In> d;
  Tile<In>& t = pair.upper;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (; t.width > 0; t.advance(Columns), pair.lower.advance(Columns)) {
    const std::uint64_t inside = positions_inside(t.left, t.right, 0);
    const bool ends = misses_ends_only<Taps, Stride, Columns>(t);
    const bool square = ends && pair.square;
    for (std::int64_t done = t.channels.begin, c; done < t.channels.end; done = c + lanes) {
      c = t.vector_at(done, lanes);
      fetch_ahead<Columns * Stride>(t, c);
      fetch_outputs<Columns>(t.sink, c);
      fetch_outputs<Columns>(pair.lower, c);
      hn::Vec<decltype(d)> upper[Columns], lower[Columns];
      if (HWY_LIKELY(square))
        add_square_pair<Taps, Stride, Columns, In>(upper, lower, pair, c, inside);
      else if (ends)
        add_pair_lines<Taps, Stride, Missing::ends, Columns, In>(upper, lower, pair, c, inside);
      else
        add_pair_lines<Taps, Stride, Missing::any, Columns, In>(upper, lower, pair, c, inside);
      put<In>(upper, t.sink, t.width, c, static_cast<std::size_t>(done - c));
      put<In>(lower, pair.lower, t.width, c, static_cast<std::size_t>(done - c));
    }
  }
}

// How a pair of rows of `left` columns is cut: what the widest tiles would waste is made up by tiles that are narrower
// by one, and by a last one of half the width.
inline std::int64_t pair_tile_columns(std::int64_t left) {
  if (left <= kMinPairColumns) return kMinPairColumns;
  return left % kMinPairColumns > 0 ? kMaxPairColumns - 1 : kMaxPairColumns;
}

// Tiles of `columns` columns each.
template <class In>
HWY_INLINE void run_pair_tiles(const PairTile<In>& pair, std::int64_t columns) {
  using std::integral_constant;
  const auto run = [&](auto taps, auto stride) {
    constexpr int kTaps = decltype(taps)::value, kStride = decltype(stride)::value;
    if (columns == kMaxPairColumns) return pair_tiles<kTaps, kStride, kMaxPairColumns, In>(pair);
    if (columns == kMinPairColumns) return pair_tiles<kTaps, kStride, kMinPairColumns, In>(pair);
    pair_tiles<kTaps, kStride, kMaxPairColumns - 1, In>(pair);
  };
  const auto run_strided = [&](auto taps) {
    pair.upper.stride == 1 ? run(taps, integral_constant<int, 1>()) : run(taps, integral_constant<int, 2>());
  };
  if constexpr (pairs_of_width<In>(4)) {
    if (pair.upper.kernel_width == 4) return run(integral_constant<int, 4>(), integral_constant<int, 1>());
    if (pair.upper.kernel_width == 5) return run_strided(integral_constant<int, 5>());
    if (pair.upper.kernel_width == 7) return run_strided(integral_constant<int, 7>());
  }
  run_strided(integral_constant<int, 3>());
}

}  // namespace vkconv::cpu::depthwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
