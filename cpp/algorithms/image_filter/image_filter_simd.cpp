// Tiles of image_filter. Rows that are summed together share each vector of input: the one under tap row k of the first
// is under tap row k - 1 of the second, and so on. So do outputs of a pixel, whose sums change places with the pixels
// before they are stored.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "algorithms/image_filter/image_filter_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <algorithm>
#include <vector>

#include "algorithms/image_filter/image_filter.h"
#include "algorithms/image_filter/image_filter_stage-inl.h"
#include "core/geometry.h"
#include "cpu/epilogue-inl.h"
#include "cpu/gemm.h"
#include "cpu/pack-inl.h"
#include "cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::image_filter::HWY_NAMESPACE {
using namespace vkconv::cpu::HWY_NAMESPACE;

// Vectors of so many rows or outputs that are summed together. Vectors of input cross cache lines and load at a quarter
// of the rate, so that rows are worth more than vectors.
constexpr int tile_vectors(int together) {
  const int sums = kManyRegisters ? 24 : together > 4 ? 12 : 8;
  return std::clamp(sums / together, 1, static_cast<int>(kMostVectors));
}

// Pixels along W whose sums are stored together, at most.
template <class A>
inline constexpr std::int64_t kStrip = HWY_MAX_BYTES* kMostVectors / static_cast<std::int64_t>(sizeof(A));

// One tile: outputs (h0 + r, w0 + column) for some r, or some channels of those of r = 0.
template <class A>
struct Tile {
  const A* input;               // staged, under output (h0, w0) and tap (0, 0, 0)
  std::int64_t row_stride;      // between staged rows
  std::int64_t plane_stride;    // between the staged planes of two taps along D
  Range planes;                 // taps along D inside the input
  Range inside;                 // staged rows, counted from `input`, that are inside the input
  const std::int64_t* offsets;  // where a staged row has what each term of a kernel row reads
  const A* weights;             // [KD][KH][term of a row][output]
  A* sums;                      // [row or output][kStrip]
};

// Adds one staged row under some terms of a kernel row to sums [kFirst, kFirst + kCount) of the tile. These are
// outputs, or rows: `weights` are those of row kFirst then, and the next row's are one kernel row before them.
template <class A, int kFirst, int kCount, int kOutputs, int kSums, int kColumns, class V>
HWY_INLINE void add_row(const Tile<A>& t, std::int64_t row_terms, const A* HWY_RESTRICT x,
                        const A* HWY_RESTRICT weights, const Range& terms, V (&sum)[kSums][kColumns]) {
  const hn::ScalableTag<A> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t k = terms.begin; k < terms.end; ++k) {
    const A* from = x + t.offsets[k];
    V column[kColumns];
    HWY_UNROLL(8)
    for (int v = 0; v < kColumns; ++v) column[v] = held(hn::LoadU(d, from + v * lanes));
    HWY_UNROLL(16)
    for (int r = 0; r < kCount; ++r) {
      const V w = held(hn::Set(d, kOutputs > 1 ? weights[k * kOutputs + r] : weights[k - r * row_terms]));
      HWY_UNROLL(8)
      for (int v = 0; v < kColumns; ++v) sum[kFirst + r][v] = hn::MulAdd(column[v], w, sum[kFirst + r][v]);
    }
  }
}

// Staged row i meets tap row i - r of output row r: of kRows rows those with 0 <= i - r < kernel height. Four rows may
// be more than the kernel has; of eight, a row meets all or is cut at one end.
template <class A, int kRows, int kColumns, class V>
HWY_INLINE void add_shared_row(const Layout& s, const Tile<A>& t, const A* x, const A* weights, std::int64_t i,
                               const Range& terms, V (&sum)[kRows][kColumns]) {
  const std::int64_t row_terms = s.row_terms();
  const std::int64_t first = std::max<std::int64_t>(0, i - s.p.kernel[1] + 1);
  const std::int64_t count = std::min<std::int64_t>(i, kRows - 1) - first + 1;
  weights += (i - first) * row_terms;
  if (count == kRows) return add_row<A, 0, kRows, 1>(t, row_terms, x, weights, terms, sum);
  unroll<kRows>([&](auto f) __attribute__((always_inline)) {
    unroll<kRows - f>([&](auto c) __attribute__((always_inline)) {
      if constexpr (kRows <= 4 || f == 0 || f + c + 1 == kRows)
        if (first == f && count == c + 1) add_row<A, f, c + 1, 1>(t, row_terms, x, weights, terms, sum);
    });
  });
}

// The sums of one tile. Chains are closed after the part of a kernel row that completes block_terms() terms.
template <class A, int kRows, int kOutputs, int kColumns>
HWY_NOINLINE void sum_tile(const Layout& s, const Tile<A>& t) {
  static_assert(kRows == 1 || kOutputs == 1);
  constexpr int kSums = kRows * kOutputs;
  const hn::ScalableTag<A> d;
  using V = hn::Vec<decltype(d)>;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d)), terms = s.row_terms(), height = s.p.kernel[1];
  const std::int64_t block = block_terms(terms * height * s.p.kernel[0]), part = even_part(terms, block);
  V sum[kSums][kColumns];
  bool closed = false;
  const auto clear = [&]() __attribute__((always_inline)) {
    HWY_UNROLL(16)
    for (int r = 0; r < kSums; ++r) {
      HWY_UNROLL(8)
      for (int v = 0; v < kColumns; ++v) sum[r][v] = hn::Zero(d);
    }
  };
  const auto close = [&]() __attribute__((always_inline)) {
    HWY_UNROLL(16)
    for (int r = 0; r < kSums; ++r) {
      HWY_UNROLL(8)
      for (int v = 0; v < kColumns; ++v) {
        A* to = t.sums + r * kStrip<A> + v * lanes;
        hn::StoreU(closed ? hn::Add(hn::LoadU(d, to), sum[r][v]) : sum[r][v], d, to);
      }
    }
    closed = true;
    clear();
  };
  clear();
  std::int64_t chain = 0;
  for (std::int64_t plane = t.planes.begin; plane < t.planes.end; ++plane) {
    const A* input = t.input + plane * t.plane_stride;
    const A* weights = t.weights + plane * height * terms * kOutputs;
    for (std::int64_t i = 0; i < height + kRows - 1; ++i) {
      const std::int64_t row = i * s.p.dilation[1];
      if (!t.inside.contains(row)) continue;
      for (std::int64_t k = 0; k < terms; k += part) {
        const Range some{k, std::min(k + part, terms)};
        if constexpr (kRows > 1)
          add_shared_row<A>(s, t, input + row * t.row_stride, weights, i, some, sum);
        else
          add_row<A, 0, kOutputs, kOutputs>(t, terms, input + row * t.row_stride, weights + i * terms * kOutputs, some,
                                            sum);
        chain += part;
        if (chain + part > block) close(), chain = 0;
      }
    }
  }
  if (chain > 0 || !closed) close();
}

// How some vectors are summed: at most as many as are left.
template <class A>
struct Sums {
  void (*sum)(const Layout&, const Tile<A>&);
  std::int64_t vectors;
};

template <class A, int kRows, int kOutputs>
Sums<A> sums_of(std::int64_t left) {
  constexpr int kMost = tile_vectors(kRows * kOutputs);
  if (left >= kMost) return {sum_tile<A, kRows, kOutputs, kMost>, kMost};
  if constexpr (kMost > 3 && !kFewForms)
    if (left >= 3) return {sum_tile<A, kRows, kOutputs, 3>, 3};
  if constexpr (kMost > 2 && !kFewForms)
    if (left >= 2) return {sum_tile<A, kRows, kOutputs, 2>, 2};
  return {sum_tile<A, kRows, kOutputs, 1>, 1};
}

template <class A>
Sums<A> sums_of(std::int64_t rows, std::int64_t outputs, std::int64_t left) {
  if (rows == 8) return sums_of<A, 8, 1>(left);
  if (rows == 4) return sums_of<A, 4, 1>(left);
  Sums<A> found{};
  unroll<kMostTogether>([&](auto o) {
    if (outputs == o + 1) found = sums_of<A, 1, o + 1>(left);
  });
  return found;
}

// Stores what transpose_blocks() made: 16 bytes of a pixel's outputs at every `columns` values.
template <class D>
HWY_INLINE void store_pixels(D d, const hn::Vec<D> (&v)[kTransposedTerms<hn::TFromD<D>>], hn::TFromD<D>* to,
                             std::int64_t columns) {
  constexpr auto kCount = static_cast<int>(kTransposedTerms<hn::TFromD<D>>);
  if constexpr (hn::MaxLanes(D()) > kCount) {
    const hn::Half<D> half;
    hn::Vec<decltype(half)> lower[kCount], upper[kCount];
    unroll<kCount>([&](auto i) __attribute__((always_inline)) {
      lower[i] = hn::LowerHalf(half, v[i]), upper[i] = hn::UpperHalf(half, v[i]);
    });
    store_pixels(half, lower, to, columns);
    store_pixels(half, upper, to + static_cast<std::int64_t>(hn::MaxLanes(half)) * columns, columns);
  } else {
    unroll<kCount>([&](auto i) __attribute__((always_inline)) { hn::StoreU(v[i], d, to + i * columns); });
  }
}

// to[pixel * outputs + o] = sums[o * kStrip + pixel] for all o < outputs and pixel < pixels. Reads kTransposedTerms
// outputs together, some of them behind the last, and writes a vector's worth of pixels and 16 bytes behind it.
template <class A>
void interleave(const A* HWY_RESTRICT sums, std::int64_t outputs, std::int64_t pixels, A* HWY_RESTRICT to) {
  constexpr auto kCount = static_cast<int>(kTransposedTerms<A>);
  const hn::FixedTag<A, HWY_LANES(A)> d;
  const auto lanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  // What outputs behind the last leave in the next pixel is overwritten by its own.
  for (std::int64_t pixel = 0; pixel < pixels; pixel += lanes)
    for (std::int64_t o = (outputs - 1) / kCount * kCount; o >= 0; o -= kCount) {
      hn::Vec<decltype(d)> v[kCount];
      unroll<kCount>([&](auto i)
                         __attribute__((always_inline)) { v[i] = hn::LoadU(d, sums + (o + i) * kStrip<A> + pixel); });
      transpose_blocks(d, v);
      store_pixels(d, v, to + pixel * outputs + o, outputs);
    }
}

template <class T, class Out>
class Filter {
 public:
  using A = Accumulator<T>;

  Filter(const Layout& s, const Operands<Device>& a, A* packed) : s_(s), p_(s.p), a_(a), packed_(packed) {
    for (std::int64_t i = 0; i < blocks(p_); ++i) pack(i, packed + block(p_, i).begin * terms_);
    for (std::int64_t k = 0; k < s.row_terms(); ++k) {
      const std::int64_t tap = k / p_.in_channels * p_.dilation[2];
      const std::int64_t plane = tap % p_.stride[2] * p_.in_channels + k % p_.in_channels;
      offsets_.push_back(plane * s.staged_width + tap / p_.stride[2]);
    }
    if (p_.epilogue.bias)
      for (std::int64_t i = 0; i < kStrip<A> * p_.out_channels; ++i)
        bias_.push_back(reinterpret_cast<const A*>(a.bias)[i % p_.out_channels]);
  }

  void task(std::int64_t index, A* staged) const {
    const std::int64_t across = index % s_.pieces_across(), down = index / s_.pieces_across() % s_.pieces_down();
    const std::int64_t plane = index / s_.pieces_across() / s_.pieces_down();  // (n, od)
    const Range w{across * s_.piece_pixels, std::min(p_.output[2], (across + 1) * s_.piece_pixels)};
    const Range h{down * s_.piece_rows, std::min(p_.output[1], (down + 1) * s_.piece_rows)};
    const OutputRow first(p_, plane * p_.output[1] + h.begin);
    Tile<A> t;
    t.row_stride = s_.row_stride();
    t.plane_stride = s_.staged_rows * t.row_stride;
    t.planes = first.kd;
    t.offsets = offsets_.data();
    Stage<T>(s_, a_.input).copy(first, h, w, staged);
    const std::int64_t strip = kMostVectors * s_.lanes;
    for (std::int64_t row = h.begin, rows; row < h.end; row += rows) {
      rows = rows_together(p_, h.end - row);
      t.inside = {-input_row(row), p_.input[1] - input_row(row)};
      for (std::int64_t column = w.begin; column < w.end; column += strip) {
        t.input = staged + (row - h.begin) * p_.stride[1] * t.row_stride + column - w.begin;
        sum_strip(t, first, {row, row + rows}, {column, std::min(column + strip, w.end)});
      }
    }
  }

 private:
  struct OutputChannel {
    std::int64_t block, output;
  };

  void pack(std::int64_t i, A* to) {
    const Range outputs = block(p_, i);
    const std::int64_t count = outputs.size();
    pack_panel(typed<T>(a_.weight, 0), p_.kernel, p_.in_channels, outputs.begin, count, to, count);
    if (all_finite(to, count * terms_)) return;
    for (std::int64_t o = 0; o < count; ++o) {
      A zero = 0;  // or NaN
      for (std::int64_t term = 0; term < terms_; ++term) zero += to[term * count + o] * 0;
      if (zero != 0) not_finite_.push_back({i, outputs.begin + o});
    }
  }

  std::int64_t input_row(std::int64_t h) const { return h * p_.stride[1] - p_.pad_lo[1]; }

  void sum_strip(Tile<A>& t, const OutputRow& at, Range h, Range w) const {
    HWY_ALIGN A sums[(kMostOut + kTransposedTerms<A>)*kStrip<A>];
    const std::int64_t vectors = ceil_div(w.size(), s_.lanes);
    const A* const input = t.input;
    for (std::int64_t i = 0; i < blocks(p_); ++i) {
      const Range outputs = block(p_, i);
      t.input = input;
      t.weights = packed_ + outputs.begin * terms_;
      t.sums = sums + outputs.begin * kStrip<A>;
      for (std::int64_t v = 0; v < vectors;) {
        const Sums<A> some = sums_of<A>(h.size(), outputs.size(), vectors - v);
        some.sum(s_, t);
        v += some.vectors;
        t.input += some.vectors * s_.lanes, t.sums += some.vectors * s_.lanes;
      }
    }
    for (std::int64_t r = 0; r < h.size(); ++r) store_row(at, h.begin + r, w, sums + r * kStrip<A>);
  }

  // `sums` are [output][kStrip].
  void store_row(const OutputRow& at, std::int64_t h, Range w, A* sums) const {
    const std::int64_t outputs = p_.out_channels;
    OutputRow row = at;
    row.h = h;
    row.kh = taps_inside(p_, 1, h);
    for (const OutputChannel& channel : not_finite_) skip_padding(row, w, channel, sums + channel.output * kStrip<A>);
    HWY_ALIGN A pixels[kMostOut * (kStrip<A> + HWY_MAX_BYTES / sizeof(A)) + kTransposedTerms<A>];
    if (outputs > 1) interleave(sums, outputs, w.size(), pixels);
    const A* const values = outputs > 1 ? pixels : sums;
    TileStore<A, Out> to = tile_store<A, Out>(p_, a_, row, w.begin, 0);
    if (to.out_stride != outputs || (to.addend && to.addend_stride != outputs))
      return store_tile(values, outputs, w.size(), outputs, to, p_.epilogue);
    if (to.bias) to.bias = bias_.data();
    store_tile(values, 0, 1, w.size() * outputs, to, p_.epilogue);
  }

  // The zero of padding times an infinite weight is NaN: such outputs are summed again over the taps they meet.
  void skip_padding(const OutputRow& at, Range w, const OutputChannel& channel, A* sums) const {
    for (std::int64_t column = w.begin; column < w.end; ++column)
      if (const Range kw = taps_inside(p_, 2, column); kw.size() < p_.kernel[2])
        sums[column - w.begin] = sum_inside(at, column, kw, channel);
  }

  A sum_inside(const OutputRow& at, std::int64_t w, Range kw, const OutputChannel& channel) const {
    const auto& stride = a_.input.stride;
    const Range together = block(p_, channel.block);
    const A* weights = packed_ + together.begin * terms_ + channel.output - together.begin;
    A sum = 0;
    for (std::int64_t d = at.kd.begin; d < at.kd.end; ++d)
      for (std::int64_t h = at.kh.begin; h < at.kh.end; ++h)
        for (std::int64_t k = kw.begin; k < kw.end; ++k)
          for (std::int64_t c = 0; c < p_.in_channels; ++c) {
            const std::int64_t from = at.n * stride[0] + position_of(p_, 0, at.d, d) * stride[1] +
                                      position_of(p_, 1, at.h, h) * stride[2] + position_of(p_, 2, w, k) * stride[3] +
                                      c;
            const std::int64_t term = ((d * p_.kernel[1] + h) * p_.kernel[2] + k) * p_.in_channels + c;
            sum += widened(reinterpret_cast<const T*>(a_.input.data) + from) * weights[term * together.size()];
          }
    return sum;
  }

  const Layout& s_;
  const ConvProblem& p_;
  const Operands<Device>& a_;
  const A* packed_;
  const std::int64_t terms_ = p_.taps() * p_.in_channels;
  std::vector<OutputChannel> not_finite_;  // those with weights that are not
  std::vector<std::int64_t> offsets_;      // see Tile
  std::vector<A> bias_;                    // of the outputs of a strip
};

template <class T, class Out>
void run_as(const Layout& s, const Operands<Device>& a, std::byte* workspace) {
  using A = Accumulator<T>;
  const Filter<T, Out> filter(s, a, reinterpret_cast<A*>(workspace));
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
