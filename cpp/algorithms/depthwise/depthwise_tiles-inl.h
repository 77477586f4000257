// Register tiles over vectors of channels: several output columns of a row, each input vector loaded once and used by
// every tap that a register holds a weight for. Included once per instruction set.
#if defined(VKCONV_DEPTHWISE_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VKCONV_DEPTHWISE_TILES_INL_H_
#undef VKCONV_DEPTHWISE_TILES_INL_H_
#else
#define VKCONV_DEPTHWISE_TILES_INL_H_
#endif

#include <algorithm>

#include "algorithms/depthwise/depthwise.h"
#include "cpu/activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::depthwise::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using cpu::HWY_NAMESPACE::Accumulator;
using cpu::HWY_NAMESPACE::AccumulatorTag;
using cpu::HWY_NAMESPACE::bound;
using cpu::HWY_NAMESPACE::held;
using cpu::HWY_NAMESPACE::hidden;
using cpu::HWY_NAMESPACE::kFewForms;
using cpu::HWY_NAMESPACE::load;
using cpu::HWY_NAMESPACE::store;
using cpu::HWY_NAMESPACE::unroll;
using cpu::HWY_NAMESPACE::with_activation;

// Columns of the widest tile: with its weights and one input vector it fills most of 32 registers, or 16. Of the
// baseline, as many sums as an addition has cycles.
inline constexpr int kMaxColumns = HWY_MAX_BYTES >= 64 || HWY_ARCH_ARM ? 14 : kFewForms ? 4 : 8;

// One kernel row (kd, kh) over one output row: where its input line and its weights start.
template <class In>
struct Line {
  const In* x = nullptr;  // null: the line is padding
  const Accumulator<In>* w = nullptr;
};

// Where the sums of a row of outputs go. Pointers are at channel 0 of the first output column.
template <class T>
struct Sink {
  std::byte* out = nullptr;
  const T* addend = nullptr;
  std::int64_t out_pixel = 0, addend_pixel = 0;  // elements between the tile's columns
  DType out_type = DType::f32;
  const Epilogue* epilogue = nullptr;
  Bounding<T> bounding;
  bool plain = false;   // the outputs are the sums but for the bounding, and have the input's type
  bool stream = false;  // plain outputs past the caches: those that would push the input out of them
  bool fetch = false;   // else lines of such outputs are fetched before they are written

  void advance(std::int64_t columns) {
    out += columns * out_pixel * static_cast<std::int64_t>(size_bytes(out_type));
    addend += columns * addend_pixel;
  }
};

// A run of tiles along an output row, at its first tile. Columns are in units where tap k of output i reads position
// i * stride + k of a line; positions are `pixel` elements apart and exist in [left, right).
template <class In>
struct Tile {
  const Line<In>* lines = nullptr;
  std::int64_t line_count = 0;
  std::int64_t kernel_width = 1, stride = 1, pixel = 0;
  std::int64_t weight_row = 0, weight_line = 0;  // elements from a tap to the next along W, and along H
  std::int64_t left = 0, right = 0;
  std::int64_t origin = 0;  // elements from Line::x to position 0
  std::int64_t width = 0;   // output columns wanted of all tiles together
  Range channels{};
  std::int64_t peel = 0;  // channels before the first vector that is aligned in every line
  Sink<Accumulator<In>> sink;
  const In* ahead[2] = {};  // position 0 of up to two lines that later tiles read, to be fetched into L2; or null

  // Where the vector begins that is next when the channels before `done` are. One at either end overlaps another.
  std::int64_t vector_at(std::int64_t done, std::int64_t lanes) const {
    const std::int64_t aligned = done - ((done - channels.begin - peel) & (lanes - 1));
    return std::min(std::max(aligned, channels.begin), channels.end - lanes);
  }

  void advance(std::int64_t columns) {
    const std::int64_t positions = columns * stride, elements = positions * pixel;
    origin += elements;
    left -= positions;
    right -= positions;
    width -= columns;
    sink.advance(columns);
    for (const In*& line : ahead)
      if (line) line += elements;
  }
};

// Lanes [first, Lanes) of v to out[first ...], rounded to Out.
template <class T, class Out>
HWY_INLINE void store_from(hn::Vec<hn::ScalableTag<T>> v, Out* out, std::size_t first) {
  const hn::ScalableTag<T> d;
  if (HWY_LIKELY(first == 0)) return store(v, d, out);
  if constexpr (std::is_same_v<T, Out>) return hn::BlendedStore(v, hn::Not(hn::FirstN(d, first)), d, out);
  HWY_ALIGN Out lanes[HWY_MAX_BYTES / sizeof(Out)];
  store(v, d, lanes);
  std::memcpy(out + first, lanes + first, (hn::Lanes(d) - first) * sizeof(Out));
}

// Epilogue and store of `width` columns of sums, the vector at channel c, without its first `skip` lanes.
template <class T, class Out>
HWY_NOINLINE void finish(const Sink<T>& s, const T* HWY_RESTRICT sums, std::int64_t width, std::int64_t c,
                         std::size_t skip) {
  const hn::ScalableTag<T> d;
  const T* const bias = s.bounding.bias;
  const auto added = bias ? hn::LoadU(d, bias + c) : hn::Zero(d);
  Out* out = reinterpret_cast<Out*>(s.out) + c;
  with_activation(d, *s.epilogue, [&](auto activation) HWY_ATTR {
    for (std::int64_t i = 0; i < width; ++i) {
      auto v = hn::Load(d, sums + i * static_cast<std::int64_t>(hn::Lanes(d)));
      if (s.epilogue->addend) v = hn::Add(v, hn::LoadU(d, s.addend + i * s.addend_pixel + c));
      if (bias) v = hn::Add(v, added);
      store_from<T>(activation(v), out + i * s.out_pixel, skip);
    }
  });
}

template <class T>
HWY_INLINE void finish_as(DType type, const Sink<T>& s, const T* HWY_RESTRICT sums, std::int64_t width, std::int64_t c,
                          std::size_t skip) {
  if constexpr (std::is_same_v<T, float>) {
    if (type == DType::f16) return finish<T, hwy::float16_t>(s, sums, width, c, skip);
    if (type == DType::bf16) return finish<T, hwy::bfloat16_t>(s, sums, width, c, skip);
  }
  finish<T, T>(s, sums, width, c, skip);
}

// Outputs of type Out. Overlapping lanes are written again.
template <class Out, int Columns, class T>
HWY_INLINE void put_sums(const hn::Vec<hn::ScalableTag<T>> (&sum)[Columns], const Sink<T>& s, std::int64_t width,
                         std::int64_t c) {
  const hn::ScalableTag<T> d;
  Out* out = reinterpret_cast<Out*>(s.out) + c;
  HWY_UNROLL(32)
  for (int i = 0; i < Columns; ++i)
    if (i < width) store(sum[i], d, out + i * s.out_pixel);
}

template <class In, int Columns, class T>
HWY_INLINE void put(hn::Vec<hn::ScalableTag<T>> (&sum)[Columns], const Sink<T>& s, std::int64_t width, std::int64_t c,
                    std::size_t skip) {
  const hn::ScalableTag<T> d;
  if (s.plain && s.bounding.needed) bound(sum, s.bounding, c);
  if (s.stream) {
    T* out = reinterpret_cast<T*>(s.out) + c;
    HWY_UNROLL(32)
    for (int i = 0; i < Columns; ++i)
      if (i < width) hn::Stream(sum[i], d, out + i * s.out_pixel);
    return;
  }
  if (HWY_LIKELY(s.plain)) return put_sums<In>(sum, s, width, c);
  HWY_ALIGN T lanes[Columns * HWY_MAX_BYTES / sizeof(T)];
  HWY_UNROLL(32)
  for (int i = 0; i < Columns; ++i) hn::Store(sum[i], d, lanes + i * hn::Lanes(d));
  finish_as(s.out_type, s, lanes, std::min<std::int64_t>(width, Columns), c, skip);
}

// The hardware follows a line, not the jump to the next one: without these a large image runs at a third of the
// memory's rate.
template <int Positions, class In>
HWY_INLINE void fetch_ahead(const Tile<In>& t, std::int64_t c) {
  for (const In* line : t.ahead) {
    if (!line) continue;
    const In* x = line + c;
    HWY_UNROLL(32)
    for (int j = 0; j < Positions; ++j, x += t.pixel) {
      x = hidden(x);
      fetch_line<kIntoL2>(x);
    }
  }
}

template <int Columns, class T>
HWY_INLINE void fetch_outputs(const Sink<T>& s, std::int64_t c) {
  constexpr int kWrite = 1, kTiles = 2;
  if (HWY_LIKELY(!s.fetch)) return;
  const auto bytes = static_cast<std::int64_t>(size_bytes(s.out_type));
  HWY_UNROLL(32)
  for (int i = 0; i < Columns; ++i)
    __builtin_prefetch(s.out + ((kTiles * Columns + i) * s.out_pixel + c) * bytes, kWrite, kIntoL2);
}

// Positions of a tile that may not exist. The ends are those before the last tap of the first column and behind the
// first tap of the last one.
enum class Missing { none, ends, any };

template <Missing kMissing, int Taps, int Stride, int Columns>
HWY_INLINE constexpr bool may_miss(int position) {
  const bool end = position < Taps - 1 || position > (Columns - 1) * Stride;
  return kMissing == Missing::any || (kMissing == Missing::ends && end);
}

// Whether a tile misses no positions but at its ends.
template <int Taps, int Stride, int Columns, class In>
HWY_INLINE bool misses_ends_only(const Tile<In>& t) {
  return t.left < Taps && (Columns - 1) * Stride < t.right;
}

// `Taps` taps of one line, added to the sums of the tile; stride is 1 or 2. Those of kMissing only exist with their bit
// in `inside`.
template <int Taps, int Stride, Missing kMissing, int Columns, class In>
HWY_INLINE void add_positions(hn::Vec<AccumulatorTag<In>> (&sum)[Columns], const Tile<In>& t, const In* HWY_RESTRICT x,
                              const Accumulator<In>* HWY_RESTRICT w, std::uint64_t inside) {
  const AccumulatorTag<In> d;
  constexpr int kPositions = (Columns - 1) * Stride + Taps;
  static_assert(kPositions < 63);
  hn::Vec<decltype(d)> tap[Taps];
  HWY_UNROLL(32)
  for (int q = 0; q < Taps; ++q) tap[q] = held(hn::LoadU(d, w + q * t.weight_row));
  HWY_UNROLL(64)
  for (int j = 0; j < kPositions; ++j, x += t.pixel) {
    if (may_miss<kMissing, Taps, Stride, Columns>(j) && !(inside >> j & 1)) continue;
    x = hidden(x);
    const auto v = held(load(d, x));
    HWY_UNROLL(32)
    for (int q = 0; q < Taps; ++q)
      if (j >= q && (j - q) % Stride == 0 && (j - q) / Stride < Columns)
        sum[(j - q) / Stride] = hn::MulAdd(v, tap[q], sum[(j - q) / Stride]);
  }
}

// Tap k of one line at any stride.
template <int Columns, class In>
HWY_INLINE void add_tap(hn::Vec<AccumulatorTag<In>> (&sum)[Columns], const Tile<In>& t, const In* HWY_RESTRICT x,
                        const Accumulator<In>* HWY_RESTRICT w, std::int64_t k) {
  const AccumulatorTag<In> d;
  const auto tap = hn::LoadU(d, w + k * t.weight_row);
  const bool whole = k >= t.left && (Columns - 1) * t.stride + k < t.right;
  x += k * t.pixel;
  HWY_UNROLL(32)
  for (int i = 0; i < Columns; ++i, x += t.stride * t.pixel) {
    x = hidden(x);
    const std::int64_t position = i * t.stride + k;
    if (whole || (position >= t.left && position < t.right)) sum[i] = hn::MulAdd(load(d, x), tap, sum[i]);
  }
}

// Taps [k, k + Taps) of one line, where `x` and `w` are those of tap 0.
template <int Taps, int Stride, int Columns, class In>
HWY_INLINE void add_taps(hn::Vec<AccumulatorTag<In>> (&sum)[Columns], const Tile<In>& t, const In* HWY_RESTRICT x,
                         const Accumulator<In>* HWY_RESTRICT w, std::int64_t k) {
  constexpr int kPositions = (Columns - 1) * Stride + Taps;
  x += k * t.pixel;
  w += k * t.weight_row;
  if (HWY_LIKELY(t.left <= k && k + kPositions <= t.right))
    add_positions<Taps, Stride, Missing::none>(sum, t, x, w, 0);
  else
    add_positions<Taps, Stride, Missing::any>(sum, t, x, w, positions_inside(t.left, t.right, k));
}

// Taps [k, k_end) of one line.
template <int Taps, int Stride, int Columns, class In>
HWY_INLINE void add_line(hn::Vec<AccumulatorTag<In>> (&sum)[Columns], const Tile<In>& t, const Line<In>& line,
                         std::int64_t c, std::int64_t k, std::int64_t k_end) {
  const In* x = line.x + t.origin + c;
  const Accumulator<In>* w = line.w + c;
  if constexpr (Stride > 0)
    for (; k + Taps <= k_end; k += Taps) add_taps<Taps, Stride>(sum, t, x, w, k);
  if constexpr (Taps > 5)
    for (; k + 3 <= k_end; k += 3) add_taps<3, Stride>(sum, t, x, w, k);
  for (; k < k_end; ++k) add_tap(sum, t, x, w, k);
}

template <int Columns, class T>
HWY_INLINE void flush(hn::Vec<hn::ScalableTag<T>> (&sum)[Columns], T* HWY_RESTRICT total) {
  const hn::ScalableTag<T> d;
  HWY_UNROLL(32)
  for (int i = 0; i < Columns; ++i) {
    T* lanes = total + i * hn::Lanes(d);
    hn::Store(hn::Add(hn::Load(d, lanes), sum[i]), d, lanes);
    sum[i] = hn::Zero(d);
  }
}

// How the sums of a tile are cut into chains: a part is a line, or kSumTerms taps of a longer one.
struct Chains {
  std::int64_t parts;  // of a chain
  bool several;
  Chains(std::int64_t lines, std::int64_t kernel_width)
      : parts(std::max<std::int64_t>(1, kSumTerms / kernel_width)),
        several(lines * ceil_div(kernel_width, kSumTerms) > parts) {}
};

// The sums of one output row x Columns columns, the vector at channel c.
template <int Taps, int Stride, int Columns, class In>
HWY_INLINE void add_lines(hn::Vec<AccumulatorTag<In>> (&sum)[Columns], const Tile<In>& t, const Chains& chains,
                          std::int64_t c) {
  using T = Accumulator<In>;
  const AccumulatorTag<In> d;
  HWY_ALIGN T total[Columns * HWY_MAX_BYTES / sizeof(T)];
  if (chains.several) std::memset(total, 0, sizeof total);
  HWY_UNROLL(32)
  for (int i = 0; i < Columns; ++i) sum[i] = hn::Zero(d);
  std::int64_t left = chains.parts;
  for (const Line<In>*line = t.lines, *end = line + t.line_count; line != end; ++line)
    for (std::int64_t k = 0; k < t.kernel_width; k += kSumTerms) {
      add_line<Taps, Stride>(sum, t, *line, c, k, std::min(k + kSumTerms, t.kernel_width));
      if (--left > 0 || !chains.several) continue;
      flush(sum, total);
      left = chains.parts;
    }
  if (!chains.several) return;
  HWY_UNROLL(32)
  for (int i = 0; i < Columns; ++i) sum[i] = hn::Add(hn::Load(d, total + i * hn::Lanes(d)), sum[i]);
}

// The sums of lines of Taps taps in one chain.
template <int Taps, int Stride, Missing kMissing, int Columns, class In>
HWY_INLINE void add_whole_lines(hn::Vec<AccumulatorTag<In>> (&sum)[Columns], const Tile<In>& t, std::int64_t c,
                                std::uint64_t inside) {
  HWY_UNROLL(32)
  for (int i = 0; i < Columns; ++i) sum[i] = hn::Zero(AccumulatorTag<In>());
  const auto add = [&](const Line<In>& line) __attribute__((always_inline)) {
    add_positions<Taps, Stride, kMissing>(sum, t, line.x + t.origin + c, line.w + c, inside);
  };
  // Each by instructions of its own: the processor fetches ahead what an instruction reads at even distances.
  if constexpr (Taps == 3)
    if (t.line_count == Taps) return unroll<Taps>([&](auto i) __attribute__((always_inline)) { add(t.lines[i]); });
  for (const Line<In>*line = t.lines, *end = line + t.line_count; line != end; ++line) add(*line);
}

// A run of tiles, one output row x Columns columns each. Stride 0 stands for any; Taps weights of a line are held in
// registers.
template <int Taps, int Stride, int Columns, class In>
HWY_NOINLINE void row_tiles(Tile<In> t) {
  const AccumulatorTag<In> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const Chains chains(t.line_count, t.kernel_width);
  const bool simple = Stride > 0 && t.kernel_width == Taps && !chains.several;
  for (; t.width > 0; t.advance(Columns)) {
    const bool whole = simple && t.left <= 0 && (Columns - 1) * Stride + Taps <= t.right;
    const bool ends = simple && misses_ends_only<Taps, Stride, Columns>(t);
    const std::uint64_t inside = positions_inside(t.left, t.right, 0);
    for (std::int64_t done = t.channels.begin, c; done < t.channels.end; done = c + lanes) {
      c = t.vector_at(done, lanes);
      fetch_ahead<Columns * std::max(Stride, 1)>(t, c);
      fetch_outputs<Columns>(t.sink, c);
      hn::Vec<decltype(d)> sum[Columns];
      if (HWY_LIKELY(whole))
        add_whole_lines<Taps, Stride, Missing::none>(sum, t, c, 0);
      else if (ends)
        add_whole_lines<Taps, Stride, Missing::ends>(sum, t, c, inside);
      else
        add_lines<Taps, Stride>(sum, t, chains, c);
      put<In>(sum, t.sink, t.width, c, static_cast<std::size_t>(done - c));
    }
  }
}

template <class In>
using TileFunction = void (*)(Tile<In>);

// The tiles of `columns` columns: 2 (of 3 taps at stride 2), 4, 8 or 14.
template <int Taps, int Stride, class In>
HWY_INLINE TileFunction<In> row_tiles_of(std::int64_t columns) {
  if constexpr (Taps == 3 && Stride == 2 && !kFewForms)
    if (columns == 2) return row_tiles<Taps, Stride, 2, In>;
  if constexpr (kMaxColumns > 4)
    if (columns == 8) return row_tiles<Taps, Stride, 8, In>;
  if constexpr (kMaxColumns > 8 && Stride != 2)
    if (columns > 8) return row_tiles<Taps, Stride, kMaxColumns, In>;
  return row_tiles<Taps, Stride, 4, In>;
}

template <int Stride, class In>
HWY_INLINE TileFunction<In> row_tiles_for_taps(std::int64_t kernel_width, std::int64_t columns) {
  if constexpr (!kFewForms) {
    if constexpr (Stride == 1) {
      if (kernel_width == 1) return row_tiles_of<1, Stride, In>(columns);
      if (kernel_width == 2) return row_tiles_of<2, Stride, In>(columns);
      if (kernel_width == 4 || kernel_width == 8) return row_tiles_of<4, Stride, In>(columns);
    }
    if (kernel_width == 5 || kernel_width == 10) return row_tiles_of<5, Stride, In>(columns);
    if (kernel_width >= 7) return row_tiles_of<7, Stride, In>(columns);
  }
  return row_tiles_of<3, Stride, In>(columns);
}

template <class In>
HWY_INLINE TileFunction<In> find_row_tiles(std::int64_t kernel_width, std::int64_t stride, std::int64_t columns) {
  if (stride == 1) return row_tiles_for_taps<1, In>(kernel_width, columns);
  if (stride == 2) return row_tiles_for_taps<2, In>(kernel_width, columns);
  return row_tiles_of<1, 0, In>(columns);
}

// How a row of `left` columns is cut: the widest tiles, and then what wastes least. The tiles of 3 taps at stride 2
// wait for memory at any width, and narrow ones, whose channels are done sooner, read it in order.
inline std::int64_t row_tile_columns(std::int64_t left, std::int64_t stride, std::int64_t kernel_width, bool narrow) {
  if (kFewForms || (kMaxColumns > 8 && stride != 2 && (left > 16 || left == 13 || left == 14))) return kMaxColumns;
  if (narrow && stride == 2 && kernel_width == 3) return 2;
  return left > 4 ? 8 : 4;
}

}  // namespace vkconv::cpu::depthwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
