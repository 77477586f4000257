// The register micro-kernel under every matrix product of the CPU device: a tile of some rows by the one to three
// vectors of columns of a panel, or by the four of two panels, stays in registers while A is broadcast, value by value,
// from rows in place and B streams from packed panels. It knows rows, slices and panels only; what a slice means (a
// kernel tap, a depth of transformed tiles) is its caller's business.
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
#include <type_traits>
#include <utility>

#include "cpu/activation-inl.h"
#include "cpu/gemm.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Two accumulators a row, two vectors of B and one broadcast must fit the register file: 32 registers with AVX-512
// and on Arm, 16 elsewhere.
#ifdef VKCONV_FEW_ROWS  // an instrumented tile of 14 rows compiles for half an hour
inline constexpr int kMaxRows = 4;
#elif (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3) || HWY_ARCH_ARM
inline constexpr int kMaxRows = 14;
#else
inline constexpr int kMaxRows = 6;
#endif

// Rows of a tile of two panels: 24 sums, 4 vectors of B and a broadcast. It loads 10 values for 24 vector products,
// where 14 rows by one panel load 16 for 28: a core that shares its load ports with another thread is up to 1.4 times
// faster. 0: too few registers.
inline constexpr int kMaxWideRows = kMaxRows >= 14 ? 6 : 0;

// Rows of a tile of three vectors, whose 12 sums, 3 vectors of B and a broadcast fill 16 registers: it loads 7 values
// for 12 vector products where 6 rows by two vectors load 8, which is 1.1 to 1.15 times faster (Zen 3). Without fused
// multiply-adds a product needs one more.
inline constexpr int kMaxThreeRows = HWY_TARGET == HWY_AVX2 ? 4 : 0;
// Rows of a tile of one vector. Of 6, each sum would wait for its last multiply-add.
inline constexpr int kMaxOneRows = kMaxRows == 6 ? 12 : kMaxRows;

// f(0), ..., f(n - 1) with constant arguments. Arrays of vectors indexed by them live in registers; in a loop that is
// not fully unrolled they would live in memory.
template <class F, int... i>
HWY_INLINE void unroll(std::integer_sequence<int, i...>, [[maybe_unused]] F f) {
  (f(std::integral_constant<int, i>()), ...);
}
template <int n, class F>
HWY_INLINE void unroll(F f) {
  unroll(std::make_integer_sequence<int, n>(), f);
}

// Panel rows fetched ahead of use, to hide the latency of the shared cache: the first of several tiles below each other
// brings its panel into L1. Tiles that know the next panel (GemmTile::next) share it evenly, so that the shared cache
// is read all the time.
inline constexpr int kPrefetchRows = 24;
// Terms after which the next row of C is fetched: stores that miss would stall behind one another, and so would fetches
// of all of a large tile at once.
inline constexpr int kTermsPerRow = 4;
inline constexpr bool kFetchesAtOnce = kMaxRows <= 6;

// Writes the sums of a tile's panel, adds them to C, or finishes them: vectors [kFirst, kFirst + kVectors) of `sum`.
// kPartial: the last vector of a row is cut.
template <bool kPartial, int kFirst, int kVectors, class T, class V, int kRows, int kAll>
HWY_INLINE void store_sums(const GemmTile<T>& t, std::int64_t row, std::int64_t panel, const V (&sum)[kRows][kAll],
                           bool accumulate) {
  const hn::ScalableTag<T> d;
  const auto last = static_cast<std::size_t>(t.last_lanes);
  const std::int64_t lanes = hn::Lanes(d), column = panel * kVectors * lanes, ldc = t.ldc;
  T* const c = t.c + row * ldc + (t.c_panel_stride > 0 ? panel * t.c_panel_stride : column);
  // To row r and vector v goes change(sum, r, column, load), where load(p) reads what there is of a vector.
  const auto write = [&](auto* to, std::int64_t stride, auto change) __attribute__((always_inline)) {
    unroll<kVectors>([&](auto v) __attribute__((always_inline)) {
      constexpr bool kCut = kPartial && v + 1 == kVectors;
      const auto read = [&](const T* p) __attribute__((always_inline)) {
        return kCut ? load_n(d, p, last) : load(d, p);
      };
      unroll<kRows>([&](auto r) __attribute__((always_inline)) {
        const V value = change(sum[r][kFirst + v], r, v * lanes, read);
        if constexpr (kCut)
          store_n(value, d, to + r * stride + v * lanes, last);
        else
          store(value, d, to + r * stride + v * lanes);
      });
    });
  };
  const auto added = [&](V v, std::int64_t r, std::int64_t j, auto read) __attribute__((always_inline)) {
    return hn::Add(read(c + r * ldc + j), v);
  };
  if (const GemmFinish<T>* f = t.finish) {
    const V low = hn::Set(d, f->low), high = hn::Set(d, f->high);
    const std::int64_t stride = f->addend_stride;
    const T* const addend = f->addend ? f->addend + row * stride + column : nullptr;
    const T* const bias = f->bias ? f->bias + column : nullptr;
    const auto finished = [&](V v, std::int64_t r, std::int64_t j, auto read) __attribute__((always_inline)) {
      if (accumulate) v = added(v, r, j, read);
      if (addend) v = hn::Add(v, read(addend + r * stride + j));
      if (bias) v = hn::Add(v, read(bias + j));
      return clamp_keep_nan<decltype(d)>(v, low, high);
    };
    if (!f->rounded) return write(c, ldc, finished);
    return write(f->rounded + row * f->rounded_stride + column, f->rounded_stride, finished);
  }
  if (accumulate)
    write(c, ldc, added);
  else
    write(
        c, ldc, [](V v, auto, auto, auto) __attribute__((always_inline)) { return v; });
}

// The rows that a chain stores, and those it adds at its end, fetched one by one meanwhile.
template <class T, int kRows, int kVectors>
class ResultRows {
 public:
  HWY_INLINE ResultRows(const GemmTile<T>& t, std::int64_t row, std::int64_t panel, std::int64_t columns) {
    const GemmFinish<T>* f = t.finish;
    const auto rows = [&](auto* first, std::int64_t stride, std::int64_t step) __attribute__((always_inline)) {
      constexpr std::int64_t kBytes = sizeof *first;
      first += row * stride + panel * step;
      return Rows{reinterpret_cast<const std::byte*>(first), stride * kBytes, step * kBytes};
    };
    stored_ = f && f->rounded ? rows(f->rounded, f->rounded_stride, columns)
                              : rows(t.c, t.ldc, t.c_panel_stride > 0 ? t.c_panel_stride : columns);
    if (f && f->addend) added_ = rows(f->addend, f->addend_stride, columns);
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
      unroll<kPanels * kLines>([&](auto i) __attribute__((always_inline)) {
        hwy::Prefetch(next + i % kPanels * panel + i / kPanels * kLineBytes);
      });
      next += stride;
    }
  };

  Rows stored_, added_;
  int left_ = kRows;
};

template <class T, class V, int kRows, int kVectors>
HWY_INLINE void store_panels(const GemmTile<T>& t, std::int64_t row, std::int64_t panel,
                             const V (&sum)[kRows][kVectors], bool accumulate) {
  constexpr int kPanels = panels_of(kVectors), kWidth = kVectors / kPanels;
  unroll<kPanels>([&](auto p) __attribute__((always_inline)) {
    if constexpr (kMaskedMemory && p + 1 == kPanels)
      if (t.last_lanes > 0 && panel + kPanels == t.panels)
        return store_sums<true, p * kWidth, kWidth>(t, row, panel + p, sum, accumulate);
    store_sums<false, p * kWidth, kWidth>(t, row, panel + p, sum, accumulate);
  });
}

// Tile `tile` by `panel`, and the one beside it if kVectors has two, in one chain of additions: C = the sums, or
// C += them.
template <class T, int kRows, int kVectors>
HWY_INLINE void multiply(const GemmTile<T>& t, std::int64_t tile, std::int64_t panel, bool accumulate) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kPanels = panels_of(kVectors), kWidth = kVectors / kPanels;
  const std::size_t lanes = hn::Lanes(d);
  const std::int64_t row = t.first_row + tile * kRows, columns = kWidth * static_cast<std::int64_t>(lanes);
  const std::int64_t lda = t.lda, a_offset = row * lda, b_offset = panel * t.panel_stride;
  // Values of a panel that are fetched with kTermsPerRow terms.
  const std::int64_t fetch_step = kTermsPerRow * (t.next ? t.next_step : row == 0 ? columns : 0);
  const std::int64_t fetch_lines = (fetch_step + kLineValues<T> - 1) / kLineValues<T>;
  const T* fetch = t.next ? t.next + tile * t.slice_count * t.kc * t.next_step : nullptr;
  ResultRows<T, kRows, kVectors> results(t, row, panel, columns);
  V sum[kRows][kVectors];
  unroll<kRows>([&](auto r) __attribute__((always_inline)) {
    if (kFetchesAtOnce) results.fetch();
    unroll<kVectors>([&](auto v) __attribute__((always_inline)) { sum[r][v] = hn::Zero(d); });
  });
  for (const GemmSlice<T>*s = t.slices, *end = s + t.slice_count; s != end; ++s) {
    // Every third row has its own pointer; the two behind it are reached by scaled addressing.
    const T* HWY_RESTRICT a = s->a + a_offset;
    const T *a3 = a + 3 * lda, *a6 = a + 6 * lda, *a9 = a + 9 * lda, *a12 = a + 12 * lda;
    const T* HWY_RESTRICT b = s->b + b_offset;
    const T* HWY_RESTRICT beside = b + (kPanels > 1 ? t.panel_stride : 0);
    if (!t.next) fetch = b + kPrefetchRows * columns;
    const auto add_term = [&](std::int64_t k) __attribute__((always_inline)) {
      V column[kVectors];
      unroll<kVectors>([&](auto v) __attribute__((always_inline)) {
        column[v] = hn::LoadU(d, (v < kWidth ? b : beside) + v % kWidth * lanes);
      });
      unroll<kRows>([&](auto r) __attribute__((always_inline)) {
        const T* at = r < 3 ? a : r < 6 ? a3 : r < 9 ? a6 : r < 12 ? a9 : a12;
        const V x = hn::Set(d, at[r % 3 * lda + k]);
        unroll<kVectors>([&](auto v) __attribute__((always_inline)) { add_product(x, column[v], sum[r][v]); });
      });
      b += columns;
      beside += columns;
    };
    std::int64_t k = 0;
    if (t.kc > 1 && t.kc < kTermsPerRow && !kFetchesAtOnce)  // its share of the rows
      for (std::int64_t i = 0; i < kRows; i += t.slice_count) results.fetch();
    for (; k + kTermsPerRow <= t.kc; k += kTermsPerRow) {
      if (!kFetchesAtOnce) results.fetch();
      for (std::int64_t line = 0; line < fetch_lines; ++line) {
        hwy::Prefetch(fetch + line * kLineValues<T>);
        if (kPanels > 1) hwy::Prefetch(fetch + line * kLineValues<T> + t.panel_stride);
      }
      fetch += fetch_step;
      unroll<kTermsPerRow>([&](auto i) __attribute__((always_inline)) { add_term(k + i); });
    }
    for (; k < t.kc; ++k) add_term(k);
  }
  store_panels(t, row, panel, sum, accumulate);
}

template <class T, int kRows, int kVectors>
HWY_NOINLINE void micro_kernel(const GemmTile<T>& t, bool accumulate) {
  constexpr int kPanels = panels_of(kVectors);
  for (std::int64_t tile = 0; tile < t.tiles; ++tile)
    for (std::int64_t panel = t.first_panel; panel + kPanels <= t.panels; panel += kPanels)
      multiply<T, kRows, kVectors>(t, tile, panel, accumulate);
}

// Columns of a panel with two vectors.
template <class T>
HWY_INLINE std::int64_t panel_columns() {
  return 2 * static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>()));
}

}  // namespace vkconv::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
