// Register tiles over vectors of channels: 1 or 2 output rows x several output columns, each input vector loaded once
// and used by every tap that a register holds a weight for. Included once per instruction set.
#if defined(VKCONV_DEPTHWISE_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VKCONV_DEPTHWISE_TILES_INL_H_
#undef VKCONV_DEPTHWISE_TILES_INL_H_
#else
#define VKCONV_DEPTHWISE_TILES_INL_H_
#endif

#include <algorithm>

#include "algorithms/depthwise/depthwise.h"
#include "cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::depthwise::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using cpu::HWY_NAMESPACE::activate;
using cpu::HWY_NAMESPACE::store;

// Columns of the widest tile: with its weights and one input vector it fills most of 32 registers, or 16.
inline constexpr int kMaxColumns = HWY_MAX_BYTES >= 64 || HWY_ARCH_ARM ? 14 : 8;

// One kernel row (kd, kh) over one output row: where its input line and its weights start.
template <class T>
struct Line {
  const T* x = nullptr;  // null: the line is padding
  const T* w = nullptr;
};

// Where the sums of a row of outputs go. Pointers are at channel 0 of the first output column.
template <class T>
struct Sink {
  std::byte* out = nullptr;
  const T* addend = nullptr;
  const T* bias = nullptr;
  std::int64_t out_pixel = 0, addend_pixel = 0;  // elements between the tile's columns
  DType out_type = DType::f32;
  const Epilogue* epilogue = nullptr;
  bool plain = false;  // no epilogue and no conversion
};

// Columns are in units where tap k of output i reads position i * stride + k of a line; positions are `pixel`
// elements apart and exist in [left, right).
template <class T>
struct Tile {
  const Line<T>* lines = nullptr;
  std::int64_t line_count = 0;
  std::int64_t kernel_width = 1, stride = 1, pixel = 0, weight_row = 0;
  std::int64_t left = 0, right = 0;
  std::int64_t origin = 0;  // elements from Line::x to position 0
  std::int64_t width = 0;   // output columns wanted, at most the tile's
  Range channels{};
  Sink<T> sink;
};

// Lanes [first, end) of v to out[index + first ...], rounded to `type`.
template <class T>
HWY_INLINE void store_as(hn::Vec<hn::ScalableTag<T>> v, std::byte* out, std::int64_t index, DType type,
                         std::size_t first, std::size_t end) {
  const hn::ScalableTag<T> d;
  const auto put = [&](auto* base) HWY_ATTR {
    using Out = std::remove_pointer_t<decltype(base)>;
    if (HWY_LIKELY(first == 0 && end == hn::Lanes(d))) return store(v, d, base + index);
    HWY_ALIGN Out lanes[HWY_MAX_BYTES / sizeof(Out)];
    store(v, d, lanes);
    std::memcpy(base + index + first, lanes + first, (end - first) * sizeof(Out));
  };
  if constexpr (std::is_same_v<T, float>) {
    if (type == DType::f16) return put(reinterpret_cast<hwy::float16_t*>(out));
    if (type == DType::bf16) return put(reinterpret_cast<hwy::bfloat16_t*>(out));
  }
  put(reinterpret_cast<T*>(out));
}

// Epilogue and store of `width` columns of sums, the vector at channel c, without its first `skip` lanes.
template <class T>
HWY_NOINLINE void finish(const Sink<T>& s, const T* HWY_RESTRICT sums, std::int64_t width, std::int64_t c,
                         std::size_t skip) {
  const hn::ScalableTag<T> d;
  const auto bias = s.epilogue->bias ? hn::LoadU(d, s.bias + c) : hn::Zero(d);
  for (std::int64_t i = 0; i < width; ++i) {
    auto v = hn::LoadU(d, sums + i * static_cast<std::int64_t>(hn::Lanes(d)));
    if (s.epilogue->addend) v = hn::Add(v, hn::LoadU(d, s.addend + i * s.addend_pixel + c));
    if (s.epilogue->bias) v = hn::Add(v, bias);
    store_as<T>(activate(d, v, *s.epilogue), s.out, i * s.out_pixel + c, s.out_type, skip, hn::Lanes(d));
  }
}

template <int Columns, class T>
HWY_INLINE void put(const hn::Vec<hn::ScalableTag<T>> (&sum)[Columns], const Sink<T>& s, std::int64_t width,
                    std::int64_t c, std::size_t skip) {
  const hn::ScalableTag<T> d;
  if (HWY_LIKELY(s.plain && skip == 0)) {
    T* out = reinterpret_cast<T*>(s.out) + c;
    HWY_UNROLL(32)
    for (int i = 0; i < Columns; ++i)
      if (i < width) hn::StoreU(sum[i], d, out + i * s.out_pixel);
    return;
  }
  HWY_ALIGN T lanes[Columns * HWY_MAX_BYTES / sizeof(T)];
  HWY_UNROLL(32)
  for (int i = 0; i < Columns; ++i) hn::Store(sum[i], d, lanes + i * hn::Lanes(d));
  finish(s, lanes, width, c, skip);
}

// Bits j of [0, 64) with left <= first + j < right.
HWY_INLINE std::uint64_t positions_inside(std::int64_t left, std::int64_t right, std::int64_t first) {
  const std::int64_t lo = std::clamp<std::int64_t>(left - first, 0, 63);
  const std::int64_t hi = std::clamp<std::int64_t>(right - first, 0, 63);
  return (~std::uint64_t{0} << lo) & ((std::uint64_t{1} << hi) - 1);
}

// Taps [k, k + Taps) of one line, added to the sums of the tile. Stride is 1 or 2. Unless Masked, only positions that
// the first or the last output does not use with all its taps can be outside the line.
template <int Taps, int Stride, bool Masked, int Columns, class T>
HWY_INLINE void add_positions(hn::Vec<hn::ScalableTag<T>> (&sum)[Columns], const Tile<T>& t, const T* HWY_RESTRICT x,
                              const T* HWY_RESTRICT w, std::uint64_t inside) {
  const hn::ScalableTag<T> d;
  constexpr int kPositions = (Columns - 1) * Stride + Taps;
  hn::Vec<decltype(d)> tap[Taps];
  HWY_UNROLL(32)
  for (int q = 0; q < Taps; ++q) tap[q] = hn::LoadU(d, w + q * t.weight_row);
  HWY_UNROLL(64)
  for (int j = 0; j < kPositions; ++j, x += t.pixel) {
    const bool edge = j < Taps - 1 || j > kPositions - Taps;
    if ((Masked || edge) && !(inside >> j & 1)) continue;
    const auto v = hn::LoadU(d, x);
    HWY_UNROLL(32)
    for (int q = 0; q < Taps; ++q)
      if (j >= q && (j - q) % Stride == 0 && (j - q) / Stride < Columns)
        sum[(j - q) / Stride] = hn::MulAdd(v, tap[q], sum[(j - q) / Stride]);
  }
}

// Which positions of a tile exist for the taps from k on.
struct Inside {
  std::uint64_t positions;
  bool masked;  // not only edge positions are missing
};

template <int Taps, int Stride, int Columns, class T>
HWY_INLINE Inside find_inside(const Tile<T>& t, std::int64_t k) {
  constexpr int kPositions = (Columns - 1) * Stride + Taps;
  static_assert(kPositions < 63);
  return {positions_inside(t.left, t.right, k), t.left - k >= Taps || t.right - k <= kPositions - Taps};
}

template <int Taps, int Stride, int Columns, class T>
HWY_INLINE void add_taps(hn::Vec<hn::ScalableTag<T>> (&sum)[Columns], const Tile<T>& t, const T* HWY_RESTRICT x,
                         const T* HWY_RESTRICT w, const Inside& inside) {
  inside.masked ? add_positions<Taps, Stride, true>(sum, t, x, w, inside.positions)
                : add_positions<Taps, Stride, false>(sum, t, x, w, inside.positions);
}

// Tap k of one line at any stride.
template <int Columns, class T>
HWY_INLINE void add_tap(hn::Vec<hn::ScalableTag<T>> (&sum)[Columns], const Tile<T>& t, const T* HWY_RESTRICT x,
                        const T* HWY_RESTRICT w, std::int64_t k) {
  const hn::ScalableTag<T> d;
  const auto tap = hn::LoadU(d, w + k * t.weight_row);
  HWY_UNROLL(32)
  for (int i = 0; i < Columns; ++i) {
    const std::int64_t position = i * t.stride + k;
    if (position >= t.left && position < t.right)
      sum[i] = hn::MulAdd(hn::LoadU(d, x + position * t.pixel), tap, sum[i]);
  }
}

// Taps [k, k_end) of one line. `first` is find_inside for tap 0.
template <int Taps, int Stride, int Columns, class T>
HWY_INLINE void add_line(hn::Vec<hn::ScalableTag<T>> (&sum)[Columns], const Tile<T>& t, const Line<T>& line,
                         std::int64_t c, std::int64_t k, std::int64_t k_end, const Inside& first) {
  const T* x = line.x + t.origin + c;
  const T* w = line.w + c;
  if constexpr (Stride > 0)
    for (; k + Taps <= k_end; k += Taps)
      add_taps<Taps, Stride>(sum, t, x + k * t.pixel, w + k * t.weight_row,
                             k == 0 ? first : find_inside<Taps, Stride, Columns>(t, k));
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

// One output row x Columns columns. Stride 0 stands for any; Taps weights of a line are held in registers.
template <int Taps, int Stride, int Columns, class T>
HWY_NOINLINE void row_tile(const Tile<T>& t) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const bool split = t.line_count * t.kernel_width > kSumTerms;
  const std::int64_t lines_per_sum = split ? std::max<std::int64_t>(1, kSumTerms / t.kernel_width) : t.line_count;
  Inside first{};
  if constexpr (Stride > 0) first = find_inside<Taps, Stride, Columns>(t, 0);
  for (std::int64_t at = t.channels.begin; at < t.channels.end; at += lanes) {
    // The last vector ends at the last channel and overlaps the one before it.
    const std::int64_t c = std::min(at, t.channels.end - lanes);
    hn::Vec<decltype(d)> sum[Columns];
    HWY_UNROLL(32)
    for (int i = 0; i < Columns; ++i) sum[i] = hn::Zero(d);
    if (HWY_LIKELY(!split)) {
      for (std::int64_t l = 0; l < t.line_count; ++l)
        add_line<Taps, Stride>(sum, t, t.lines[l], c, 0, t.kernel_width, first);
    } else {
      HWY_ALIGN T total[Columns * HWY_MAX_BYTES / sizeof(T)] = {};
      for (std::int64_t l = 0; l < t.line_count; ++l) {
        for (std::int64_t k = 0; k < t.kernel_width; k += kSumTerms) {
          add_line<Taps, Stride>(sum, t, t.lines[l], c, k, std::min(k + kSumTerms, t.kernel_width), first);
          if (t.kernel_width > kSumTerms) flush(sum, total);
        }
        if ((l + 1) % lines_per_sum == 0) flush(sum, total);
      }
      HWY_UNROLL(32)
      for (int i = 0; i < Columns; ++i) sum[i] = hn::Add(hn::Load(d, total + i * lanes), sum[i]);
    }
    put(sum, t.sink, t.width, c, static_cast<std::size_t>(at - c));
  }
}

template <class T>
using TileFunction = void (*)(const Tile<T>&);

// The smallest tile of at least `columns` <= kMaxColumns columns.
template <int Taps, int Stride, class T>
HWY_INLINE TileFunction<T> row_tile_of(std::int64_t columns) {
  if (columns <= 4) return row_tile<Taps, Stride, 4, T>;
  if constexpr (kMaxColumns > 8) {
    if (columns > 12) return row_tile<Taps, Stride, 14, T>;
    if (columns > 10) return row_tile<Taps, Stride, 12, T>;
    if (columns > 8) return row_tile<Taps, Stride, 10, T>;
  }
  return row_tile<Taps, Stride, 8, T>;
}

template <int Stride, class T>
HWY_INLINE TileFunction<T> row_tile_for_taps(std::int64_t kernel_width, std::int64_t columns) {
  if (kernel_width == 3 || kernel_width == 6) return row_tile_of<3, Stride, T>(columns);
  if (kernel_width == 5 || kernel_width == 10) return row_tile_of<5, Stride, T>(columns);
  if (kernel_width == 4 || kernel_width == 8) return row_tile_of<4, Stride, T>(columns);
  return kernel_width < 7 ? row_tile_of<3, Stride, T>(columns) : row_tile_of<7, Stride, T>(columns);
}

template <class T>
HWY_INLINE TileFunction<T> find_row_tile(std::int64_t kernel_width, std::int64_t stride, std::int64_t columns) {
  if (stride == 1) return row_tile_for_taps<1, T>(kernel_width, columns);
  if (stride == 2) return row_tile_for_taps<2, T>(kernel_width, columns);
  return row_tile_of<1, 0, T>(columns);
}

}  // namespace vkconv::cpu::depthwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
