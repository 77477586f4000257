// The register micro-kernel under every matrix product of the CPU device: a tile of some rows by the one to three
// vectors of columns of a panel, by the four of two panels, or by two vectors in two chains of additions, stays in
// registers while A is broadcast, value by value, from rows in place and B streams from packed panels. It knows rows,
// slices and panels only; what a slice means (a kernel tap, a depth of transformed tiles) is its caller's business.
//
// A panel is B packed as [k][columns], columns = kVectors * Lanes, so that a step of k reads one contiguous line.
// Include once per instruction set (Highway's foreach_target).
#if defined(VKCONV_CPU_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VKCONV_CPU_GEMM_INL_H_
#undef VKCONV_CPU_GEMM_INL_H_
#else
#define VKCONV_CPU_GEMM_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "cpu/activation-inl.h"
#include "cpu/gemm.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Two accumulators a row, two vectors of B and one broadcast must fit the register file.
#ifdef VKCONV_FEW_ROWS
inline constexpr int kMaxRows = 4;
#else
inline constexpr int kMaxRows = kManyRegisters ? 14 : 6;
#endif

// Rows of a tile of two panels: 24 sums, 4 vectors of B and a broadcast. It loads 10 values for 24 vector products,
// where 14 rows by one panel load 16 for 28: a core that shares its load ports with another thread is up to 1.4 times
// faster. 0: too few registers.
inline constexpr int kMaxWideRows = kManyRegisters ? 6 : 0;

// Rows of a tile of two vectors that makes two chains side by side: half of the sums are stored and added up.
inline constexpr int kMaxTwinRows = kManyRegisters ? 7 : 0;

// Rows of a tile of three vectors. Of 32 registers its 27 sums leave three for B and one for a broadcast: 12 values for
// 27 vector products (see RegisterTile::vectors). Of 16 registers 12 sums do: it loads 7 values for 12 products where
// 6 rows by two vectors load 8, which is 1.1 to 1.15 times faster (Zen 3). Without fused multiply-adds a product needs
// one more.
inline constexpr int kMaxThreeRows = kManyRegisters ? 9 : HWY_TARGET == HWY_AVX2 ? 4 : 0;
// Rows of a tile of one vector. Of 6, each sum would wait for its last multiply-add.
inline constexpr int kMaxOneRows = kMaxRows == 6 ? 12 : kMaxRows;

// Panel rows that a single tile fetches ahead of their use, to hide the latency of the shared cache. Tiles below each
// other share the panel that comes next evenly (GemmPart::next), so that the shared cache is read all the time.
inline constexpr int kPrefetchRows = 24;
// Terms in one turn of the loop, with which the next row of C is fetched: stores that miss would stall behind one
// another, and so would fetches of all of a large tile at once. A large tile is a turn's worth of products by itself.
inline constexpr int kTermsPerTurn = kManyRegisters ? 1 : 4;
inline constexpr bool kFetchesAtOnce = !kManyRegisters;

// The place of a register tile in the product.
template <class T>
struct Place {
  std::int64_t row, panel;
  T* c;  // of the first value
};

// Writes the sums of a panel, adds them to C, or finishes them: vectors [kFirst, kFirst + kVectors) of `sum`. kPartial:
// the last vector of a row is cut.
template <bool kPartial, int kFirst, int kVectors, int kChains, class T, class V, int kRows, int kAll>
HWY_INLINE void store_sums(const GemmTile<T>& t, const GemmPart<T>& part, const Place<T>& at,
                           const V (&sum)[kRows][kAll]) {
  const hn::ScalableTag<T> d;
  const auto last = static_cast<std::size_t>(t.last_lanes);
  const std::int64_t lanes = hn::Lanes(d), column = at.panel * kVectors * lanes;
  const T* from = at.c;
  // The sum of all chains at (r, v), in their order, that of `first` before them.
  const auto total = [&](V first, int r, int v) __attribute__((always_inline)) {
    HWY_UNROLL(2)
    for (int c = 1; c < kChains; ++c) first = hn::Add(first, sum[r][c * kAll / kChains + v]);
    return first;
  };
  // Row by row: change(r, v, j, read) goes to column j of `to`, where read(p) reads what there is of a vector, and
  // below() is called between two rows.
  const auto write = [&](auto* to, std::int64_t stride, auto change, auto below) __attribute__((always_inline)) {
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) {
        const bool cut = kPartial && v + 1 == kVectors;
        const auto read = [&](const T* p) __attribute__((always_inline)) {
          return cut ? load_n(d, p, last) : load(d, p);
        };
        const V value = change(r, kFirst + v, v * lanes, read);
        cut ? store_n(value, d, to + v * lanes, last) : store(value, d, to + v * lanes);
      }
      to = hidden(to + stride);
      below();
    }
  };
  const auto sums = [&](int r, int v, auto, auto) __attribute__((always_inline)) { return total(sum[r][v], r, v); };
  const auto added = [&](int r, int v, std::int64_t j, auto read) __attribute__((always_inline)) {
    return total(hn::Add(read(from + j), sum[r][v]), r, v);
  };
  const auto next_row = [&]() __attribute__((always_inline)) { from = hidden(from + t.ldc); };
  if (const GemmFinish<T>* f = part.finish) {
    const V low = hn::Set(d, f->low), high = hn::Set(d, f->high);
    const T* addend = f->addend ? f->addend + at.row * f->addend_stride + column : nullptr;
    const T* const bias = f->bias ? f->bias + column : nullptr;
    const auto finished = [&](int r, int v, std::int64_t j, auto read) __attribute__((always_inline)) {
      V value = part.accumulate ? added(r, v, j, read) : sums(r, v, j, read);
      if (addend) value = hn::Add(value, read(addend + j));
      if (bias) value = hn::Add(value, read(bias + j));
      return clamp_keep_nan<decltype(d)>(value, low, high);
    };
    const auto next_rows = [&]() __attribute__((always_inline)) {
      next_row();
      if (addend) addend = hidden(addend + f->addend_stride);
    };
    if (!f->rounded) return write(at.c, t.ldc, finished, next_rows);
    return write(f->rounded + at.row * f->rounded_stride + column, f->rounded_stride, finished, next_rows);
  }
  if (part.accumulate)
    write(at.c, t.ldc, added, next_row);
  else
    write(at.c, t.ldc, sums, []() __attribute__((always_inline)){});
}

// The rows that a chain stores, and those it adds at its end, fetched one by one meanwhile.
template <class T, int kRows, int kVectors>
class ResultRows {
 public:
  HWY_INLINE ResultRows(const GemmTile<T>& t, const GemmFinish<T>* f, const Place<T>& at, std::int64_t columns) {
    const auto rows = [&](auto* first, std::int64_t stride, std::int64_t step) __attribute__((always_inline)) {
      constexpr std::int64_t kBytes = sizeof *first;
      return Rows{reinterpret_cast<const std::byte*>(first), stride * kBytes, step * kBytes};
    };
    const auto row = [&](auto* first, std::int64_t stride) __attribute__((always_inline)) {
      return rows(first + at.row * stride + at.panel * columns, stride, columns);
    };
    stored_ = HWY_UNLIKELY(f && f->rounded) ? row(f->rounded, f->rounded_stride)
                                            : rows(at.c, t.ldc, t.c_panel_stride > 0 ? t.c_panel_stride : columns);
    if (HWY_UNLIKELY(f && f->addend)) added_ = row(f->addend, f->addend_stride);
  }

  HWY_INLINE void fetch() {
    if (left_-- <= 0) return;
    stored_.fetch();
    if (added_.next) added_.fetch();
  }

 private:
  struct Rows {
    const std::byte* next = nullptr;
    std::int64_t stride = 0, panel = 0;  // bytes
    HWY_INLINE void fetch() {
      constexpr int kPanels = panels_of(kVectors), kWidth = kVectors / kPanels;
      constexpr int kLines = (kWidth * HWY_MAX_BYTES + kLineBytes - 1) / kLineBytes;
      HWY_UNROLL(32)
      for (int i = 0; i < kPanels * kLines; ++i) hwy::Prefetch(next + i % kPanels * panel + i / kPanels * kLineBytes);
      next += stride;
    }
  };

  Rows stored_, added_;
  int left_ = kRows;
};

template <int kChains, class T, class V, int kRows, int kAll>
HWY_INLINE void store_panels(const GemmTile<T>& t, const GemmPart<T>& part, const Place<T>& at,
                             const V (&sum)[kRows][kAll]) {
  constexpr int kVectors = kAll / kChains, kPanels = panels_of(kVectors), kWidth = kVectors / kPanels;
  const std::int64_t columns = kWidth * static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  unroll<kPanels>([&](auto p) __attribute__((always_inline)) {
    const Place<T> beside{at.row, at.panel + p, at.c + p * (t.c_panel_stride > 0 ? t.c_panel_stride : columns)};
    if constexpr (kMaskedMemory && p + 1 == kPanels)
      if (HWY_UNLIKELY(t.last_lanes > 0 && at.panel + kPanels == t.panels))
        return store_sums<true, p * kWidth, kWidth, kChains>(t, part, beside, sum);
    store_sums<false, p * kWidth, kWidth, kChains>(t, part, beside, sum);
  });
}

// Fetches so many lines of each panel.
template <int kPanels, int kLines, class T>
HWY_INLINE void fetch_panels(const T* first, std::int64_t panel_stride) {
  HWY_UNROLL(32)
  for (int i = 0; i < kPanels * kLines; ++i)
    hwy::Prefetch(first + i % kPanels * panel_stride + i / kPanels * kLineValues<T>);
}

// Adds the products of one value of A to the sums of its row. kSpread: that of one vector reads the value itself.
template <bool kSpread, int kVectors, class T, class V>
HWY_INLINE void add_row(const T* x, const V (&column)[kVectors], V* sum) {
  if constexpr (kSpread) {
    add_value_product(x, column[0], *sum);
  } else {
    const V spread = hn::Set(hn::DFromV<V>(), *x);
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) add_product(spread, column[v], sum[v]);
  }
}

// Register tile `tile` of a part by `panel`, and the one beside it if kVectors has two, in one chain of additions or
// several side by side, of as many terms: C = the sums, or C += them.
template <class T, int kRows, int kVectors, int kChains, bool kSpread>
HWY_INLINE void multiply(const GemmTile<T>& t, const GemmTerms<T>* chains, const GemmPart<T>& part, std::int64_t tile,
                         std::int64_t panel) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kPanels = panels_of(kVectors), kWidth = kVectors / kPanels, kAll = kChains * kVectors;
  constexpr int kLines = (kTermsPerTurn * kWidth * HWY_MAX_BYTES + kLineBytes - 1) / kLineBytes;  // of so many terms
  const std::size_t lanes = hn::Lanes(d);
  const std::int64_t row = part.first_row + tile * kRows, columns = kWidth * static_cast<std::int64_t>(lanes);
  const std::int64_t lda = t.lda, kc = chains->kc, slices = chains->slice_count;
  const Place<T> place{row, panel, t.c + row * t.ldc + panel * (t.c_panel_stride > 0 ? t.c_panel_stride : columns)};
  const T* fetch = part.next ? part.next + tile * kChains * slices * kc * part.next_step : nullptr;
  ResultRows<T, kRows, kVectors> results(t, part.finish, place, columns);
  V sum[kRows][kAll];
  HWY_UNROLL(32)
  for (int i = 0; i < kRows * kAll; ++i) sum[i / kAll][i % kAll] = hn::Zero(d);
  HWY_UNROLL(16)
  for (int r = 0; kFetchesAtOnce && r < kRows; ++r) results.fetch();
  for (std::int64_t s = 0; s < slices; ++s) {
    // Every third row has its own pointer; the two behind it are reached by scaled addressing.
    const T *a[kChains][5], *b[kChains], *beside[kChains];
    HWY_UNROLL(2)
    for (int c = 0; c < kChains; ++c) {
      const GemmSlice<T>& slice = chains[c].slices[s];
      HWY_UNROLL(8)
      for (int i = 0; i < 5; ++i) a[c][i] = slice.a + (row + 3 * i) * lda;
      b[c] = slice.b + panel * t.panel_stride;
      beside[c] = b[c] + (kPanels > 1 ? t.panel_stride : 0);
    }
    const auto add_term = [&](int c, std::int64_t k) __attribute__((always_inline)) {
      V column[kVectors];
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) column[v] = hn::LoadU(d, (v < kWidth ? b[c] : beside[c]) + v % kWidth * lanes);
      HWY_UNROLL(16)
      for (int r = 0; r < kRows; ++r) add_row<kSpread>(a[c][r / 3] + r % 3 * lda + k, column, sum[r] + c * kVectors);
      b[c] += columns;
      beside[c] += columns;
    };
    std::int64_t k = 0;
    for (; k + kTermsPerTurn <= kc; k += kTermsPerTurn) {
      if (!kFetchesAtOnce) results.fetch();
      HWY_UNROLL(2)
      for (int c = 0; c < kChains; ++c) {
        if (fetch) {
          fetch_panels<kPanels, (kLines + 1) / 2>(fetch, t.panel_stride);
          fetch += kTermsPerTurn * part.next_step;
        } else {
          fetch_panels<kPanels, kLines>(b[c] + kPrefetchRows * columns, t.panel_stride);
        }
        HWY_UNROLL(4)
        for (int i = 0; i < kTermsPerTurn; ++i) add_term(c, k + i);
        b[c] = hidden(b[c]);
      }
    }
    HWY_UNROLL(2)
    for (int c = 0; c < kChains; ++c)
      for (std::int64_t rest = k; rest < kc; ++rest) add_term(c, rest);
  }
  store_panels<kChains>(t, part, place, sum);
}

template <class T, int kRows, int kVectors, int kChains, bool kSpread = false>
HWY_NOINLINE void micro_kernel(const GemmTile<T>& t, const GemmTerms<T>* chains, const GemmPart<T>& part) {
  constexpr int kPanels = panels_of(kVectors);
  for (std::int64_t tile = 0; tile < part.tiles; ++tile) {
    fetch_rows<kChains>(t, chains, part, tile, kRows);
    for (std::int64_t panel = part.first_panel; panel + kPanels <= part.panels_end; panel += kPanels)
      multiply<T, kRows, kVectors, kChains, kSpread>(t, chains, part, tile, panel);
  }
}

// Columns of a panel with two vectors.
template <class T>
HWY_INLINE std::int64_t panel_columns() {
  return 2 * static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>()));
}

}  // namespace vkconv::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
