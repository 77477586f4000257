// Tiles of the grouped kernel: up to kGroupedPixels neighbouring outputs of one vector of channels, of one row or two,
// stay in registers. Without dilation along W up to three taps, a stride from each other, share each permuted input
// vector; two rows do without dilation along H. Copied rows have zeros at their ends, which are multiplied like input,
// unless an infinite weight would make NaN of that.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "algorithms/implicit_gemm/grouped_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "algorithms/implicit_gemm/grouped.h"
#include "cpu/epilogue-inl.h"
#include "cpu/gemm-inl.h"
#include "cpu/input_rows-inl.h"
#include "cpu/scratch.h"
#include "cpu/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::HWY_NAMESPACE {

// Two rows of sums, their weights, a permutation and a vector of input.
inline constexpr bool kRowPairs = kMaxRows > 6;
// Tiles of a row of kGroupedPixels outputs and more have so many at least.
inline constexpr int kFewestPaired = kGroupedPixels / 2;
inline constexpr int kMostTaps = 3;  // of a run, that share the permuted input

// Taps [0, kTaps), a stride from each other, at the input columns x, x + step, ...; columns outside `inside` are
// padding and skipped. Both for the first output of a row.
template <class A>
struct TapRun {
  const A* x;  // of channel 0
  Range inside;
  std::int64_t tap;  // of the first row of outputs; the second meets the line with a kernel row before
  Range rows{0, 1};  // of outputs that meet the line
};

// The taps of a row of tiles, or of two rows, the same for all channels.
template <class A>
struct TileTaps {
  std::vector<TapRun<A>> runs[kMostTaps];  // of 1, 2, ... taps
  std::int64_t step = 0;                   // elements between columns
  std::int64_t in_channels = 0;            // a group
  std::int64_t stride = 1;                 // between the taps of a run
  std::int64_t row_taps = 0;               // between those of two rows of outputs
  std::int64_t first = 0;                  // output of the tile

  bool empty() const {
    return std::ranges::all_of(runs, [](const auto& of_taps) { return of_taps.empty(); });
  }
  void clear() {
    for (auto& of_taps : runs) of_taps.clear();
  }
};

// One vector of channels.
template <class A>
struct ChannelVector {
  std::int64_t window;                // first input channel
  const hwy::MakeSigned<A>* indices;  // [in channel of the group][lanes]: source lane
  const A* weights;                   // [tap][in channel][lanes]
};

// Adds to the sums of the rows [kFirst, kLast).
template <class A, int kTaps, bool kChecked, int kFirst, int kLast, int kRows, int kPixels, class V>
HWY_INLINE void add_taps(const TapRun<A>& run, const TileTaps<A>& taps, const ChannelVector<A>& v,
                         V (&sum)[kRows][kPixels]) {
  const hn::ScalableTag<A> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const A* HWY_RESTRICT column = run.x + v.window + taps.first * taps.step;
  const std::int64_t vectors = lanes * taps.in_channels;
  const A* HWY_RESTRICT weights = v.weights + run.tap * vectors;
  for (std::int64_t c = 0; c < taps.in_channels; ++c) {
    const auto indices = hn::SetTableIndices(d, v.indices + c * lanes);
    V weight[kRows][kTaps];
    unroll<kLast - kFirst>([&](auto i) __attribute__((always_inline)) {
      constexpr int kRow = kFirst + i;
      unroll<kTaps>([&](auto k) __attribute__((always_inline)) {
        weight[kRow][k] = hn::LoadU(d, weights + (k * taps.stride - kRow * taps.row_taps) * vectors + c * lanes);
      });
    });
    unroll<kPixels + kTaps - 1>([&](auto j) __attribute__((always_inline)) {
      if (kChecked && !run.inside.contains(taps.first + j)) return;
      const V x = hn::TableLookupLanes(hn::LoadU(d, column + j * taps.step), indices);
      unroll<kTaps>([&](auto k) __attribute__((always_inline)) {
        constexpr int kPixel = j - k;
        if constexpr (kPixel >= 0 && kPixel < kPixels)
          unroll<kLast - kFirst>([&](auto i) __attribute__((always_inline)) {
            constexpr int kRow = kFirst + i;
            sum[kRow][kPixel] = hn::MulAdd(x, weight[kRow][k], sum[kRow][kPixel]);
          });
      });
    });
  }
}

// Where the sums of a row of a tile go: the outputs, when at most a bias and bounds come between, or else an array.
template <class A, class Out>
struct GroupedSums {
  A* sums;
  std::int64_t stride;  // between pixels
  Out* out = nullptr;
  std::int64_t out_stride = 0;
  const A* bias = nullptr;
  bool bounded = false;  // outputs lie between
  A low = 0, high = 0;
};

// The sums of the vector `channel` lanes behind the first.
template <class A, class Out, int kPixels, class V>
HWY_INLINE void store_sums(const V (&sum)[kPixels], const GroupedSums<A, Out>& to, std::int64_t channel) {
  const hn::ScalableTag<A> d;
  const auto each = [&](auto* first, std::int64_t stride, auto finished) __attribute__((always_inline)) {
    unroll<kPixels>([&](auto i) __attribute__((always_inline)) { store(finished(sum[i]), d, first + i * stride); });
  };
  const auto same = [](V v) __attribute__((always_inline)) { return v; };
  if (!to.out) return each(to.sums, to.stride, same);
  if (!to.bias && !to.bounded) return each(to.out + channel, to.out_stride, same);
  const V low = hn::Set(d, to.low), high = hn::Set(d, to.high);
  const V bias = to.bias ? hn::LoadU(d, to.bias + channel) : hn::Set(d, static_cast<A>(-0.0));
  each(
      to.out + channel, to.out_stride, [&](V v) __attribute__((always_inline)) {
        return clamp_keep_nan<decltype(d)>(hn::Add(v, bias), low, high);
      });
}

// Sums of kPixels outputs. Chains are closed after `block` terms, as in gemm.h.
template <class A, class Out, int kPixels, bool kChecked>
HWY_NOINLINE void grouped_tile(const TileTaps<A>& taps, const ChannelVector<A>& v, std::int64_t block,
                               const GroupedSums<A, Out>& to) {
  const hn::ScalableTag<A> d;
  using V = hn::Vec<decltype(d)>;
  V sum[1][kPixels];
  const auto clear = [&]() __attribute__((always_inline)) {
    unroll<kPixels>([&](auto i) __attribute__((always_inline)) { sum[0][i] = hn::Zero(d); });
  };
  clear();
  std::int64_t chain = 0;
  bool closed = false;
  const auto add_closed = [&]() __attribute__((always_inline)) {
    if (!closed) return;
    unroll<kPixels>([&](auto i) __attribute__((always_inline)) {
      sum[0][i] = hn::Add(hn::LoadU(d, to.sums + i * to.stride), sum[0][i]);
    });
  };
  const auto close = [&]() __attribute__((always_inline)) {
    add_closed();
    unroll<kPixels>([&](auto i) __attribute__((always_inline)) { hn::StoreU(sum[0][i], d, to.sums + i * to.stride); });
    clear();
    closed = true;
    chain = 0;
  };
  unroll<kMostTaps>([&](auto i) __attribute__((always_inline)) {
    constexpr int kTaps = kMostTaps - i;
    for (const TapRun<A>& run : taps.runs[kTaps - 1]) {
      if (chain + kTaps * taps.in_channels > block && chain > 0) close();
      add_taps<A, kTaps, kChecked, 0, 1>(run, taps, v, sum);
      chain += kTaps * taps.in_channels;
    }
  });
  add_closed();
  store_sums(sum[0], to, 0);
}

// Sums of two rows of kPixels outputs, of one chain each. Of several vectors, all lanes are outputs.
template <class A, class Out, int kPixels, bool kChecked>
HWY_NOINLINE void grouped_pair(const TileTaps<A>& taps, std::span<const ChannelVector<A>> vectors,
                               const GroupedSums<A, Out>* to) {
  const hn::ScalableTag<A> d;
  std::int64_t channel = 0;
  for (const ChannelVector<A>& v : vectors) {
    hn::Vec<decltype(d)> sum[2][kPixels];
    unroll<2 * kPixels>([&](auto i) __attribute__((always_inline)) { sum[i / kPixels][i % kPixels] = hn::Zero(d); });
    unroll<kMostTaps>([&](auto i) __attribute__((always_inline)) {
      constexpr int kTaps = kMostTaps - i;
      for (const TapRun<A>& run : taps.runs[kTaps - 1])
        if (run.rows.end == 1)
          add_taps<A, kTaps, kChecked, 0, 1>(run, taps, v, sum);
        else if (run.rows.begin == 1)
          add_taps<A, kTaps, kChecked, 1, 2>(run, taps, v, sum);
        else
          add_taps<A, kTaps, kChecked, 0, 2>(run, taps, v, sum);
    });
    store_sums(sum[0], to[0], channel);
    store_sums(sum[1], to[1], channel);
    channel += static_cast<std::int64_t>(hn::Lanes(d));
  }
}

template <class A, class Out, bool kChecked, int... i>
constexpr auto grouped_table(std::integer_sequence<int, i...>) {
  return std::array{grouped_tile<A, Out, i + 1, kChecked>...};
}

template <class A, class Out, bool kChecked, int... i>
constexpr auto grouped_pairs(std::integer_sequence<int, i...>) {
  return std::array{grouped_pair<A, Out, kFewestPaired + i, kChecked>...};
}

template <class T, class Out>
class Grouped {
 public:
  using A = Accumulator<T>;
  using Index = hwy::MakeSigned<A>;
  // Halves are copied with zeros at their ends: borders are few.
  static constexpr bool kPairedBorders = std::is_same_v<A, Out>;

  Grouped(const GroupedLayout& s, const Operands<Device>& a, const A* packed) : s_(s), p_(s.p), a_(a) {
    for (std::int64_t v = 0; v < s.vectors; ++v)
      for (std::int64_t c = 0; c < p_.in_channels_per_group(); ++c)
        for (std::int64_t lane = 0; lane < s.lanes; ++lane) {
          const std::int64_t group = std::min(p_.groups - 1, v * s.vector_groups + lane / p_.out_channels_per_group());
          const std::int64_t channel = group * p_.in_channels_per_group() + c - window(v);
          indices_.push_back(static_cast<Index>(std::clamp<std::int64_t>(channel, 0, s.lanes - 1)));
        }
    for (std::int64_t v = 0; v < s.vectors; ++v) {
      zero_ends_ = zero_ends_ && packed[s.mark(v)] != 0;
      vectors_.push_back(
          {window(v), indices_.data() + v * p_.in_channels_per_group() * s.lanes, packed + v * s.terms() * s.lanes});
    }
  }

  void task(std::int64_t chunk, std::byte* scratch) const {
    const Range rows{chunk * s_.chunk_rows, std::min(s_.rows, (chunk + 1) * s_.chunk_rows)};
    const InputRows<T> input(p_, a_.input, rows, {0, p_.output[2]}, scratch, s_.copied, {0, p_.in_channels});
    const std::int64_t tiles = ceil_div(p_.output[2], kGroupedPixels);
    TileTaps<A> lists[3];  // of the first row, the second, and both
    for (TileTaps<A>& taps : lists) {
      taps.step = p_.stride[2] * input.pixel_stride();
      taps.in_channels = p_.in_channels_per_group();
      taps.stride = p_.stride[2];
      taps.row_taps = p_.stride[1] * p_.kernel[2];
    }
    for (std::int64_t r = rows.begin, height; r < rows.end; r += height) {
      const OutputRow row(p_, r);
      height = pairs_ && r + 1 < rows.end && row.h + 1 < p_.output[1] ? 2 : 1;
      for (TileTaps<A>& taps : lists) taps.clear();
      for (std::int64_t t = 0; t < tiles; ++t) {
        const Range w{p_.output[2] * t / tiles, p_.output[2] * (t + 1) / tiles};
        const std::int64_t together = w.size() >= kFewestPaired && (kPairedBorders || inside(w)) ? height : 1;
        for (std::int64_t i = 0; i < height; i += together) {
          TileTaps<A>& taps = lists[together == 2 ? 2 : i];
          const OutputRow at(p_, r + i);
          if (taps.empty()) collect(at, together, input, taps);
          taps.first = w.begin;
          tile(at, together, w, taps);
        }
      }
    }
  }

 private:
  // First input channel loaded for a vector; the load must not run past a pixel that is read in place.
  std::int64_t window(std::int64_t v) const {
    const std::int64_t last = std::max<std::int64_t>(p_.in_channels - s_.lanes, 0);
    return std::min(v * s_.vector_groups * p_.in_channels_per_group(), last);
  }

  // Whether the taps of all outputs `w` of a row are inside the input along W, or on zeros of the copy.
  bool inside(Range w) const { return zero_ends_ || reads_inside(p_, 2, w); }

  // The taps along W of kernel row (d, h), which reads the line x: in runs of those a stride apart, dilated ones alone.
  void collect_line(const A* x, std::int64_t d, std::int64_t h, Range rows, std::int64_t pixel_stride,
                    TileTaps<A>& taps) const {
    const std::int64_t stride = p_.stride[2], step = p_.dilation[2] == 1 ? stride : p_.kernel[2];
    for (std::int64_t phase = 0; phase < std::min(step, p_.kernel[2]); ++phase)
      for (std::int64_t k = phase, count; k < p_.kernel[2]; k += count * step) {
        count = std::min<std::int64_t>(kMostTaps, ceil_div(p_.kernel[2] - k, step));
        const std::int64_t column = k * p_.dilation[2] - p_.pad_lo[2];
        const Range inside{ceil_div(-column, stride), floor_div(p_.input[2] - 1 - column, stride) + 1};
        const std::int64_t tap = (d * p_.kernel[1] + h) * p_.kernel[2] + k;
        taps.runs[count - 1].push_back({x + column * pixel_stride, inside, tap, rows});
      }
  }

  // The lines that `rows` rows of outputs from `at` on meet.
  void collect(const OutputRow& at, std::int64_t rows, const InputRows<T>& input, TileTaps<A>& taps) const {
    for (std::int64_t d = at.kd.begin; d < at.kd.end; ++d)
      for (std::int64_t h = 0; h < p_.kernel[1] + (rows - 1) * p_.stride[1]; ++h) {
        const std::int64_t line = at.h * p_.stride[1] + h * p_.dilation[1] - p_.pad_lo[1];
        if (line < 0 || line >= p_.input[1]) continue;
        const A* x = input.row(at.n, at.d * p_.stride[0] + d * p_.dilation[0] - p_.pad_lo[0], line);
        collect_line(x, d, h, {h < p_.kernel[1] ? 0 : 1, h < p_.stride[1] ? 1 : rows}, input.pixel_stride(), taps);
      }
  }

  // Outputs `w` of one row, or of two.
  void tile(const OutputRow& at, std::int64_t rows, Range w, const TileTaps<A>& taps) const {
    HWY_ALIGN A sums[2][kGroupedPixels * HWY_MAX_BYTES / sizeof(A)];
    const std::int64_t out = s_.vector_groups * p_.out_channels_per_group();
    const std::int64_t whole = bounds_ && rows == 2 && out == s_.lanes ? p_.out_channels / s_.lanes : 0;
    for (std::int64_t v = 0, end; v < s_.vectors; v = end) {
      end = std::max(v + 1, whole);
      const std::int64_t count = std::min(out, p_.out_channels - v * out);
      const bool at_once = bounds_ && count == s_.lanes;
      TileStore<A, Out> stores[2];
      GroupedSums<A, Out> to[2];
      OutputRow row = at;
      for (std::int64_t i = 0; i < rows; ++i, ++row.h) {
        stores[i] = tile_store<A, Out>(p_, a_, row, w.begin, v * out);
        to[i] = {sums[i], s_.lanes};
        if (at_once)
          to[i] = {sums[i],        s_.lanes, stores[i].out,   stores[i].out_stride,
                   stores[i].bias, bounded_, A(bounds_->low), A(bounds_->high)};
      }
      run_kernel(rows, w, taps, std::span(vectors_).subspan(v, end - v), to);
      for (std::int64_t i = 0; i < rows && !at_once; ++i)
        store_tile(sums[i], s_.lanes, w.size(), count, stores[i], p_.epilogue);
    }
  }

  void run_kernel(std::int64_t rows, Range w, const TileTaps<A>& taps, std::span<const ChannelVector<A>> vectors,
                  const GroupedSums<A, Out>* to) const {
    using Pixels = std::make_integer_sequence<int, kGroupedPixels>;
    // Tiles of halves by themselves are always checked: kernels without would cost more to compile than they win.
    static constexpr auto kBorder = grouped_table<A, Out, true>(Pixels());
    static constexpr auto kInside = grouped_table<A, Out, !std::is_same_v<A, Out>>(Pixels());
    const auto size = static_cast<std::size_t>(w.size() - 1);
    if constexpr (kRowPairs) {
      using Paired = std::make_integer_sequence<int, kGroupedPixels + 1 - kFewestPaired>;
      static constexpr auto kPairs = grouped_pairs<A, Out, false>(Paired());
      static constexpr auto kBorderPairs = grouped_pairs<A, Out, kPairedBorders>(Paired());
      if (rows == 2) return (inside(w) ? kPairs : kBorderPairs)[size + 1 - kFewestPaired](taps, vectors, to);
    }
    (inside(w) ? kInside : kBorder)[size](taps, vectors[0], block_, to[0]);
  }

  const GroupedLayout& s_;
  const ConvProblem& p_;
  const Operands<Device>& a_;
  const bool one_chain_ = 3 * s_.terms() <= 4 * kBlockTerms;  // a third more at most, as in gemm.h
  const std::int64_t block_ = one_chain_ ? s_.terms() : block_terms(s_.terms());
  // The kernels store outputs themselves where nothing but bounds and a bias comes between.
  const std::optional<Bounds> bounds_ = p_.epilogue.addend ? std::nullopt : bounds_of(p_.epilogue);
  const bool bounded_ = p_.epilogue.activation != Activation::identity;
  const bool pairs_ = kRowPairs && p_.dilation[1] == 1 && p_.kernel[1] > p_.stride[1] && one_chain_;
  bool zero_ends_ = s_.copied;  // of the rows, and all weights are finite
  std::vector<Index> indices_;  // [vector][in channel][lanes]
  std::vector<ChannelVector<A>> vectors_;
};

template <class T>
void pack_as(const GroupedLayout& s, const WeightView<std::byte*>& weight, std::byte* packed) {
  const ConvProblem& p = s.p;
  const std::int64_t in = p.in_channels_per_group(), out = p.out_channels_per_group();
  auto* all = reinterpret_cast<Accumulator<T>*>(packed);
  thread_pool().run(s.vectors, [&](std::int64_t v) {
    auto* const first = all + v * s.terms() * s.lanes;
    auto* to = first;
    for (std::int64_t tap = 0; tap < p.taps(); ++tap) {
      const std::int64_t d = tap / (p.kernel[1] * p.kernel[2]), h = tap / p.kernel[2] % p.kernel[1],
                         w = tap % p.kernel[2];
      const T* from =
          reinterpret_cast<const T*>(weight.data) + d * weight.tap[0] + h * weight.tap[1] + w * weight.tap[2];
      for (std::int64_t c = 0; c < in; ++c)
        for (std::int64_t lane = 0; lane < s.lanes; ++lane, ++to) {
          const std::int64_t group = v * s.vector_groups + lane / out;
          const bool used = lane < s.vector_groups * out && group < p.groups;
          *to =
              used ? widened(from + group * weight.group + lane % out * weight.out + c * weight.in) : Accumulator<T>{0};
        }
    }
    all[s.mark(v)] = all_finite(first, to - first) ? 1 : 0;
  });
}

template <class T, class Out>
void run_as(const GroupedLayout& s, const Operands<Device>& a, std::byte* workspace) {
  std::byte* packed = a.prepared ? a.prepared->data.pointer() : workspace;
  if (!a.prepared) pack_as<T>(s, a.weight, packed);
  const Grouped<T, Out> grouped(s, a, reinterpret_cast<const Accumulator<T>*>(packed));
  ScratchSlots slots(workspace + s.packed_bytes, s.stage_bytes, s.slots);
  thread_pool().run(s.chunks(), [&](std::int64_t t) {
    const auto scratch = slots.borrow();
    grouped.task(t, scratch.data());
  });
}

void RunGrouped(const GroupedLayout& s, const Operands<Device>& a, std::byte* workspace) {
  with_types(s.p, [&](auto in, auto out) { run_as<decltype(in), decltype(out)>(s, a, workspace); });
}

void PackGrouped(const GroupedLayout& s, const WeightView<std::byte*>& weight, std::byte* packed) {
  with_types(s.p, [&](auto in, auto) { pack_as<decltype(in)>(s, weight, packed); });
}

}  // namespace vkconv::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace vkconv::cpu {

HWY_EXPORT(RunGrouped);
HWY_EXPORT(PackGrouped);

void run_grouped(const GroupedLayout& s, const Operands<Device>& a, std::byte* workspace) {
  HWY_DYNAMIC_DISPATCH(RunGrouped)(s, a, workspace);
}
void pack_grouped(const GroupedLayout& s, const WeightView<std::byte*>& weight, std::byte* packed) {
  HWY_DYNAMIC_DISPATCH(PackGrouped)(s, weight, packed);
}

}  // namespace vkconv::cpu
#endif
