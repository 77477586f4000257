// Tiles of image_filter. Rows that are summed together share each vector of input: the one under tap row k of the first
// is under tap row k - 1 of the second, and so on.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "algorithms/image_filter/image_filter_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <algorithm>

#include "algorithms/image_filter/image_filter.h"
#include "core/geometry.h"
#include "cpu/epilogue-inl.h"
#include "cpu/gemm.h"
#include "cpu/pack-inl.h"
#include "cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::image_filter::HWY_NAMESPACE {
using namespace vkconv::cpu::HWY_NAMESPACE;

// Rows and vectors of sums in registers, beside the vectors of input and one weight. Vectors of input cross cache lines
// and load at a quarter of the rate, so that rows are worth more than vectors.
constexpr int tile_vectors(int rows) {
  return std::clamp((kManyRegisters ? 24 : 8) / rows, 1, static_cast<int>(kMostVectors));
}

// One tile: outputs (h0 + r, w0 + column) for r < rows.
template <class A>
struct Tile {
  const A* input;             // staged, under output (h0, w0) and tap (0, 0, 0)
  std::int64_t row_stride;    // between staged rows
  std::int64_t plane_stride;  // between the staged planes of two taps along D
  Range planes;               // taps along D inside the input
  Range inside;               // staged rows, counted from `input`, that are inside the input
  const A* weights;           // [KD][KH][KW]
  A* sums;                    // [row][kMostVectors * lanes]
};

template <class A>
constexpr std::int64_t sums_stride() {
  return kMostVectors * HWY_MAX_BYTES / sizeof(A);
}

// Adds one staged row under some taps of a kernel row to rows [kFirst, kFirst + kCount) of the tile; `weights` are
// those of row kFirst, and the next row's are one kernel row before them.
template <class A, int kFirst, int kCount, int kRows, int kColumns, class V>
HWY_INLINE void add_row(const ConvProblem& p, const A* HWY_RESTRICT x, const A* HWY_RESTRICT weights, const Range& taps,
                        V (&sum)[kRows][kColumns]) {
  const hn::ScalableTag<A> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d)), width = p.kernel[2], step = p.dilation[2];
  x += taps.begin * step;
  for (std::int64_t k = taps.begin; k < taps.end; ++k, x += step) {
    V column[kColumns];
    unroll<kColumns>([&](auto v) __attribute__((always_inline)) { column[v] = held(hn::LoadU(d, x + v * lanes)); });
    unroll<kCount>([&](auto r) __attribute__((always_inline)) {
      const V w = held(hn::Set(d, weights[k - r * width]));
      unroll<kColumns>([&](auto v) __attribute__((always_inline)) {
        sum[kFirst + r][v] = hn::MulAdd(column[v], w, sum[kFirst + r][v]);
      });
    });
  }
}

// Staged row i meets tap row i - r of output row r: of kRows rows those with 0 <= i - r < kernel height. Four rows may
// be more than the kernel has; of eight, a row meets all or is cut at one end.
template <class A, int kRows, int kColumns, class V>
HWY_INLINE void add_shared_row(const ConvProblem& p, const A* x, const A* weights, std::int64_t i, const Range& taps,
                               V (&sum)[kRows][kColumns]) {
  const std::int64_t first = std::max<std::int64_t>(0, i - p.kernel[1] + 1);
  const std::int64_t count = std::min<std::int64_t>(i, kRows - 1) - first + 1;
  weights += (i - first) * p.kernel[2];
  if (count == kRows) return add_row<A, 0, kRows>(p, x, weights, taps, sum);
  unroll<kRows>([&](auto f) __attribute__((always_inline)) {
    unroll<kRows - f>([&](auto c) __attribute__((always_inline)) {
      if constexpr (kRows <= 4 || f == 0 || f + c + 1 == kRows)
        if (first == f && count == c + 1) add_row<A, f, c + 1>(p, x, weights, taps, sum);
    });
  });
}

// The sums of one tile. Chains are closed after the part of a kernel row that completes block_terms() terms.
template <class A, int kRows, int kColumns>
HWY_NOINLINE void sum_tile(const ConvProblem& p, const Tile<A>& t) {
  const hn::ScalableTag<A> d;
  using V = hn::Vec<decltype(d)>;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d)), width = p.kernel[2], height = p.kernel[1];
  const std::int64_t block = block_terms(p.taps()), part = even_part(width, block);
  V sum[kRows][kColumns];
  bool closed = false;
  const auto clear = [&]() __attribute__((always_inline)) {
    unroll<kRows>([&](auto r) __attribute__((always_inline)) {
      unroll<kColumns>([&](auto v) __attribute__((always_inline)) { sum[r][v] = hn::Zero(d); });
    });
  };
  const auto close = [&]() __attribute__((always_inline)) {
    unroll<kRows>([&](auto r) __attribute__((always_inline)) {
      unroll<kColumns>([&](auto v) __attribute__((always_inline)) {
        A* to = t.sums + r * sums_stride<A>() + v * lanes;
        hn::StoreU(closed ? hn::Add(hn::LoadU(d, to), sum[r][v]) : sum[r][v], d, to);
      });
    });
    closed = true;
    clear();
  };
  clear();
  std::int64_t chain = 0;
  for (std::int64_t plane = t.planes.begin; plane < t.planes.end; ++plane) {
    const A* input = t.input + plane * t.plane_stride;
    const A* weights = t.weights + plane * height * width;
    for (std::int64_t i = 0; i < height + kRows - 1; ++i) {
      const std::int64_t row = i * p.dilation[1];
      if (!t.inside.contains(row)) continue;
      for (std::int64_t k = 0; k < width; k += part) {
        const Range taps{k, std::min(k + part, width)};
        if constexpr (kRows > 1)
          add_shared_row<A>(p, input + row * t.row_stride, weights, i, taps, sum);
        else
          add_row<A, 0, 1>(p, input + row * t.row_stride, weights + i * width, taps, sum);
        chain += part;
        if (chain + part > block) close(), chain = 0;
      }
    }
  }
  if (chain > 0 || !closed) close();
}

template <class T, class Out>
class Filter {
 public:
  using A = Accumulator<T>;

  Filter(const Layout& s, const Operands<Device>& a, const A* weights) : s_(s), p_(s.p), a_(a), weights_(weights) {
    finite_ = all_finite(weights, p_.taps());
    if (p_.epilogue.bias) std::fill_n(bias_, sums_stride<A>(), *reinterpret_cast<const A*>(a.bias));
  }

  void task(std::int64_t index, A* staged) const {
    const std::int64_t across = index % s_.pieces_across(), down = index / s_.pieces_across() % s_.pieces_down();
    const std::int64_t plane = index / s_.pieces_across() / s_.pieces_down();  // (n, od)
    const Range w{across * s_.piece_pixels, std::min(p_.output[2], (across + 1) * s_.piece_pixels)};
    const Range h{down * s_.piece_rows, std::min(p_.output[1], (down + 1) * s_.piece_rows)};
    const OutputRow first(p_, plane * p_.output[1] + h.begin);
    for (std::int64_t kd = first.kd.begin; kd < first.kd.end; ++kd)
      stage(first, kd, h, w, staged + kd * s_.staged_rows * s_.staged_width);
    for (std::int64_t row = h.begin, rows; row < h.end; row += rows) {
      rows = rows_together(p_, h.end - row);
      for (std::int64_t column = w.begin; column < w.end;) {
        const Range tile_rows{row, row + rows}, rest{column, w.end};
        column += rows == 8   ? tile<8>(first, tile_rows, rest, h.begin, w.begin, staged)
                  : rows == 4 ? tile<4>(first, tile_rows, rest, h.begin, w.begin, staged)
                              : tile<1>(first, tile_rows, rest, h.begin, w.begin, staged);
      }
    }
  }

 private:
  std::int64_t input_row(std::int64_t h) const { return h * p_.stride[1] - p_.pad_lo[1]; }

  // The input rows under output rows h and columns w of tap plane kd, zeros where there is no input.
  void stage(const OutputRow& at, std::int64_t kd, Range h, Range w, A* to) const {
    const auto& stride = a_.input.stride;
    const std::int64_t left = w.begin - p_.pad_lo[2];
    const std::int64_t begin = std::clamp<std::int64_t>(-left, 0, s_.staged_width);
    const std::int64_t end = std::clamp<std::int64_t>(p_.input[2] - left, begin, s_.staged_width);
    const T* from = reinterpret_cast<const T*>(a_.input.data) + at.n * stride[0] +
                    (at.d * p_.stride[0] + kd * p_.dilation[0] - p_.pad_lo[0]) * stride[1] + left * stride[3];
    const std::int64_t rows = inputs_under(p_, 1, h.size());
    for (std::int64_t r = 0; r < rows; ++r, to += s_.staged_width) {
      const std::int64_t row = input_row(h.begin) + r;
      if (row < 0 || row >= p_.input[1]) continue;
      std::fill_n(to, begin, A{0});
      widen(from + row * stride[2] + begin * stride[3], stride[3], end - begin, to + begin);
      std::fill(to + end, to + s_.staged_width, A{0});
    }
  }

  static void widen(const T* from, std::int64_t stride, std::int64_t count, A* to) {
    if (stride == 1) return widen_run(from, count, to);
    for (std::int64_t i = 0; i < count; ++i) to[i] = widened(from + i * stride);
  }

  // One tile at the start of `w`; returns how many columns it has.
  template <int kRows>
  std::int64_t tile(const OutputRow& at, Range h, Range w, std::int64_t first_row, std::int64_t first_column,
                    const A* staged) const {
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<A>()));
    HWY_ALIGN A sums[kRows * sums_stride<A>()];
    Tile<A> t;
    const std::int64_t row = (h.begin - first_row) * p_.stride[1];
    t.row_stride = s_.staged_width;
    t.plane_stride = s_.staged_rows * s_.staged_width;
    t.input = staged + row * t.row_stride + w.begin - first_column;
    t.planes = at.kd;
    t.inside = {-input_row(h.begin), p_.input[1] - input_row(h.begin)};
    t.weights = weights_;
    t.sums = sums;
    constexpr int kVectors = tile_vectors(kRows), kFewVectors = (kVectors + 2) / 3;
    const bool few = w.size() <= kFewVectors * lanes;
    (few ? sum_tile<A, kRows, kFewVectors> : sum_tile<A, kRows, kVectors>)(p_, t);
    const std::int64_t columns = std::min(w.size(), (few ? kFewVectors : kVectors) * lanes);
    for (std::int64_t r = 0; r < h.size(); ++r)
      store_row(at, h.begin + r, {w.begin, w.begin + columns}, sums + r * sums_stride<A>());
    return columns;
  }

  void store_row(const OutputRow& at, std::int64_t h, Range w, A* sums) const {
    OutputRow row = at;
    row.h = h;
    row.kh = taps_inside(p_, 1, h);
    if (!finite_) skip_padding(row, w, sums);
    TileStore<A, Out> to = tile_store<A, Out>(p_, a_, row, w.begin, 0);
    if (to.out_stride != 1 || (to.addend && to.addend_stride != 1))
      return store_tile(sums, 1, w.size(), 1, to, p_.epilogue);
    if (to.bias) to.bias = bias_;
    store_tile(sums, 0, 1, w.size(), to, p_.epilogue);
  }

  // The zero of padding times an infinite weight is NaN: such outputs are summed again over the taps they meet.
  void skip_padding(const OutputRow& at, Range w, A* sums) const {
    const auto& stride = a_.input.stride;
    for (std::int64_t o = w.begin; o < w.end; ++o) {
      const Range kw = taps_inside(p_, 2, o);
      if (kw.size() == p_.kernel[2]) continue;
      A sum = 0;
      for (std::int64_t d = at.kd.begin; d < at.kd.end; ++d)
        for (std::int64_t h = at.kh.begin; h < at.kh.end; ++h)
          for (std::int64_t k = kw.begin; k < kw.end; ++k) {
            const std::int64_t at_input = at.n * stride[0] +
                                          (at.d * p_.stride[0] + d * p_.dilation[0] - p_.pad_lo[0]) * stride[1] +
                                          (input_row(at.h) + h * p_.dilation[1]) * stride[2] +
                                          (o + k * p_.dilation[2] - p_.pad_lo[2]) * stride[3];
            sum += widened(reinterpret_cast<const T*>(a_.input.data) + at_input) *
                   weights_[(d * p_.kernel[1] + h) * p_.kernel[2] + k];
          }
      sums[o - w.begin] = sum;
    }
  }

  const Layout& s_;
  const ConvProblem& p_;
  const Operands<Device>& a_;
  const A* weights_;
  bool finite_ = true;
  A bias_[sums_stride<A>()];
};

template <class T, class Out>
void run_as(const Layout& s, const Operands<Device>& a, std::byte* workspace) {
  using A = Accumulator<T>;
  auto* weights = reinterpret_cast<A*>(workspace);
  pack_panel(typed<T>(a.weight, 0), s.p.kernel, 1, 0, 1, weights, 1);
  const Filter<T, Out> filter(s, a, weights);
  ScratchSlots slots(workspace + s.packed_bytes, s.stage_bytes, s.slots);
  slots.run(s.tasks(), [&](std::int64_t t, std::byte* scratch) { filter.task(t, reinterpret_cast<A*>(scratch)); });
}

void Run(const Layout& s, const Operands<Device>& a, std::byte* workspace) {
  with_types(s.p, [&](auto in, auto out) { run_as<decltype(in), decltype(out)>(s, a, workspace); });
}

}  // namespace vkconv::cpu::image_filter::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace vkconv::cpu::image_filter {

HWY_EXPORT(Run);

void run(const Layout& s, const Operands<Device>& a, std::byte* workspace) {
  HWY_DYNAMIC_DISPATCH(Run)(s, a, workspace);
}

}  // namespace vkconv::cpu::image_filter
#endif
