// Register tiles of the grouped kernel: up to kGroupedPixels neighbouring outputs of one vector of channels, of one row
// or two, stay in registers. Without dilation along W up to three taps, a stride from each other, share each permuted
// input vector; two rows do without dilation along H. Copied rows have zeros at their ends, which are multiplied like
// input, unless an infinite weight would make NaN of that.
#if defined(VKCONV_GROUPED_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VKCONV_GROUPED_TILES_INL_H_
#undef VKCONV_GROUPED_TILES_INL_H_
#else
#define VKCONV_GROUPED_TILES_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "algorithms/implicit_gemm/grouped.h"
#include "core/geometry.h"
#include "cpu/activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::HWY_NAMESPACE {

// Two rows of sums, their weights, a permutation and a vector of input.
inline constexpr bool kRowPairs = kManyRegisters;
// Tiles of a row of kGroupedPixels outputs and more have so many at least.
inline constexpr int kFewestPaired = kGroupedPixels / 2;
// Whether a permutation within blocks is faster than one across them, which takes cores with AVX2 several operations.
inline constexpr bool kFastBlocks = HWY_TARGET == HWY_AVX2;
inline constexpr std::size_t kBlockBytes = 16;
static_assert(!kFastBlocks || !kRowPairs);  // pairs of rows permute all lanes

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
  std::vector<TapRun<A>> runs[kGroupedTaps];  // of 1, 2, ... taps
  std::vector<const A*> ahead;                // lines that are fetched into L2
  std::int64_t step = 0;                      // elements between columns
  std::int64_t in_channels = 0;               // a lane
  std::int64_t stride = 1;                    // between the taps of a run
  std::int64_t row_taps = 0;                  // between those of two rows of outputs
  std::int64_t first = 0;                     // output of the tile

  bool empty() const {
    return std::ranges::all_of(runs, [](const auto& of_taps) { return of_taps.empty(); });
  }
  void clear() {
    for (auto& of_taps : runs) of_taps.clear();
    ahead.clear();
  }
};

// One vector of channels.
template <class A>
struct ChannelVector {
  std::int64_t window;                // first input channel
  std::int64_t reach;                 // input channels from there to those of the vector behind
  const hwy::MakeSigned<A>* indices;  // [in channel of a lane][lanes]: source lane, or its bytes in the block
  const A* weights;                   // [tap][in channel of a lane][lanes]
};

// Of the lanes of a vector; kBlocks: of the bytes of each block by themselves.
template <bool kBlocks, class D, class I>
HWY_INLINE auto permutation(D d, const I* indices) {
  if constexpr (kBlocks)
    return hn::LoadU(hn::RebindToSigned<D>(), indices);
  else
    return hn::SetTableIndices(d, indices);
}
template <bool kBlocks, class D, class P>
HWY_INLINE hn::Vec<D> permuted(D d, hn::Vec<D> x, P permutation) {
  if constexpr (kBlocks)
    return hn::BitCast(d, hn::TableLookupBytes(hn::BitCast(hn::RebindToSigned<D>(), x), permutation));
  else
    return hn::TableLookupLanes(x, permutation);
}

// Adds to the sums of the rows [kFirst, kLast).
template <class A, int kTaps, bool kChecked, bool kBlocks, int kFirst, int kLast, int kRows, int kPixels, class V>
HWY_INLINE void add_taps(const TapRun<A>& run, const TileTaps<A>& taps, const ChannelVector<A>& v,
                         V (&sum)[kRows][kPixels]) {
  const hn::ScalableTag<A> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const A* column = run.x + v.window + taps.first * taps.step;
  const std::int64_t vectors = lanes * taps.in_channels;
  const A* HWY_RESTRICT weights = v.weights + run.tap * vectors;
  const std::uint64_t inside =
      kChecked ? positions_inside(run.inside.begin - taps.first, run.inside.end - taps.first, 0) : 0;
  for (std::int64_t c = 0; c < taps.in_channels; ++c) {
    if constexpr (!kManyRegisters) column = hidden(column);
    const auto indices = permutation<kBlocks>(d, v.indices + c * lanes);
    V weight[kRows][kTaps];
    HWY_UNROLL(2)
    for (int row = kFirst; row < kLast; ++row) {
      HWY_UNROLL(4)
      for (int k = 0; k < kTaps; ++k)
        weight[row][k] = hn::LoadU(d, weights + (k * taps.stride - row * taps.row_taps) * vectors + c * lanes);
    }
    // By constants: columns that a loop skips spill sums where registers are 16.
    unroll<kPixels + kTaps - 1>([&](auto j) __attribute__((always_inline)) {
      if (kChecked && !(inside >> j & 1)) return;
      const V x = permuted<kBlocks>(d, hn::LoadU(d, column + j * taps.step), indices);
      HWY_UNROLL(4)
      for (int k = 0; k < kTaps; ++k) {
        const int pixel = j - k;
        if (pixel < 0 || pixel >= kPixels) continue;
        HWY_UNROLL(2)
        for (int row = kFirst; row < kLast; ++row) sum[row][pixel] = hn::MulAdd(x, weight[row][k], sum[row][pixel]);
      }
    });
  }
}

// Fetches the lines of memory at `channel` that the tile below is the first to read.
template <int kPixels, class A>
HWY_INLINE void fetch_ahead(const TileTaps<A>& taps, std::int64_t channel) {
  const std::int64_t pixel = taps.step / taps.stride;
  for (const A* line : taps.ahead)
    for (std::int64_t j = 0; j < kPixels * taps.stride; ++j)
      fetch_line<kIntoL2>(line + (taps.first * taps.stride + j) * pixel + channel);
}

// Where the sums of a row of a tile go: to the outputs, when at most a bias and bounds come between, or else (`out` is
// null) to an array.
template <class A, class Out>
struct GroupedSums {
  A* sums;
  std::int64_t stride;  // between pixels
  Out* out = nullptr;
  std::int64_t out_stride = 0, channel = 0;  // the first output channel
  const Bounding<A>* bounding = nullptr;
};

// The sums of the vector `lanes` behind the first.
template <class A, class Out, int kPixels, class V>
HWY_INLINE void store_outputs(V (&sum)[kPixels], const GroupedSums<A, Out>& to, std::int64_t lanes) {
  const hn::ScalableTag<A> d;
  const auto each = [&](auto* first, std::int64_t stride) __attribute__((always_inline)) {
    HWY_UNROLL(16)
    for (int i = 0; i < kPixels; ++i) store(sum[i], d, first + i * stride);
  };
  if (!to.out) return each(to.sums, to.stride);
  if (to.bounding->needed) bound(sum, *to.bounding, to.channel + lanes);
  each(to.out + lanes, to.out_stride);
}

// Sums of kPixels outputs of a vector. Chains are closed after `block` terms, as in gemm.h.
template <class A, class Out, int kPixels, bool kChecked, bool kBlocks>
HWY_INLINE void add_tile(const TileTaps<A>& taps, const ChannelVector<A>& v, std::int64_t block,
                         const GroupedSums<A, Out>& to, std::int64_t lanes) {
  const hn::ScalableTag<A> d;
  using V = hn::Vec<decltype(d)>;
  V sum[1][kPixels];
  const auto clear = [&]() __attribute__((always_inline)) {
    HWY_UNROLL(16)
    for (int i = 0; i < kPixels; ++i) sum[0][i] = hn::Zero(d);
  };
  clear();
  std::int64_t chain = 0;
  bool closed = false;
  const auto add_closed = [&]() __attribute__((always_inline)) {
    if (!closed) return;
    HWY_UNROLL(16)
    for (int i = 0; i < kPixels; ++i) sum[0][i] = hn::Add(hn::LoadU(d, to.sums + i * to.stride), sum[0][i]);
  };
  const auto close = [&]() __attribute__((always_inline)) {
    add_closed();
    HWY_UNROLL(16)
    for (int i = 0; i < kPixels; ++i) hn::StoreU(sum[0][i], d, to.sums + i * to.stride);
    clear();
    closed = true;
    chain = 0;
  };
  unroll<kGroupedTaps>([&](auto i) __attribute__((always_inline)) {
    constexpr int kTaps = kGroupedTaps - i;
    for (const TapRun<A>& run : taps.runs[kTaps - 1]) {
      if (chain + kTaps * taps.in_channels > block && chain > 0) close();
      add_taps<A, kTaps, kChecked, kBlocks, 0, 1>(run, taps, v, sum);
      chain += kTaps * taps.in_channels;
    }
  });
  add_closed();
  store_outputs(sum[0], to, lanes);
}

// Of several vectors, all lanes are outputs.
template <class A, class Out, int kPixels, bool kChecked, bool kBlocks>
HWY_NOINLINE void grouped_tile(const TileTaps<A>& taps, std::span<const ChannelVector<A>> vectors, std::int64_t block,
                               const GroupedSums<A, Out>& to) {
  constexpr std::int64_t kLine = kLineBytes / static_cast<std::int64_t>(sizeof(A));
  std::int64_t lanes = 0;
  for (const ChannelVector<A>& v : vectors) {
    if (!taps.ahead.empty())
      for (std::int64_t channel = 0; channel < v.reach; channel += kLine)
        fetch_ahead<kPixels>(taps, v.window + channel);
    add_tile<A, Out, kPixels, kChecked, kBlocks>(taps, v, block, to, lanes);
    lanes += static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<A>()));
  }
}

// Adds up the lanes of each group of `channels` in the sums of kPixels pixels, each in the lane of its output.
// `sources`: [channel of the group][lanes].
template <int kPixels, class A>
HWY_INLINE void fold_pixels(const hwy::MakeSigned<A>* sources, std::int64_t channels, A* sums) {
  const hn::ScalableTag<A> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> folded[kPixels];
  HWY_UNROLL(4)
  for (int i = 0; i < kPixels; ++i) folded[i] = hn::Zero(d);
  for (std::int64_t c = 0; c < channels; ++c) {
    const auto indices = hn::SetTableIndices(d, sources + c * lanes);
    HWY_UNROLL(4)
    for (int i = 0; i < kPixels; ++i)
      folded[i] = hn::Add(folded[i], hn::TableLookupLanes(hn::LoadU(d, sums + i * lanes), indices));
  }
  HWY_UNROLL(4)
  for (int i = 0; i < kPixels; ++i) hn::StoreU(folded[i], d, sums + i * lanes);
}

template <class A>
HWY_INLINE void fold_groups(const hwy::MakeSigned<A>* sources, std::int64_t channels, std::int64_t pixels, A* sums) {
  constexpr int kTogether = 4;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<A>()));
  std::int64_t i = 0;
  for (; i + kTogether <= pixels; i += kTogether) fold_pixels<kTogether>(sources, channels, sums + i * lanes);
  for (; i < pixels; ++i) fold_pixels<1>(sources, channels, sums + i * lanes);
}

// Sums of two rows of kPixels outputs, of one chain each. Of several vectors, all lanes are outputs.
template <class A, class Out, int kPixels, bool kChecked>
HWY_NOINLINE void grouped_pair(const TileTaps<A>& taps, std::span<const ChannelVector<A>> vectors,
                               const GroupedSums<A, Out>* to) {
  const hn::ScalableTag<A> d;
  std::int64_t lanes = 0;
  for (const ChannelVector<A>& v : vectors) {
    fetch_ahead<kPixels>(taps, v.window);
    hn::Vec<decltype(d)> sum[2][kPixels];
    HWY_UNROLL(32)
    for (int i = 0; i < 2 * kPixels; ++i) sum[i / kPixels][i % kPixels] = hn::Zero(d);
    unroll<kGroupedTaps>([&](auto i) __attribute__((always_inline)) {
      constexpr int kTaps = kGroupedTaps - i;
      for (const TapRun<A>& run : taps.runs[kTaps - 1])
        if (run.rows.end == 1)
          add_taps<A, kTaps, kChecked, false, 0, 1>(run, taps, v, sum);
        else if (run.rows.begin == 1)
          add_taps<A, kTaps, kChecked, false, 1, 2>(run, taps, v, sum);
        else
          add_taps<A, kTaps, kChecked, false, 0, 2>(run, taps, v, sum);
    });
    store_outputs(sum[0], to[0], lanes);
    store_outputs(sum[1], to[1], lanes);
    lanes += static_cast<std::int64_t>(hn::Lanes(d));
  }
}

template <class A, class Out, bool kChecked, bool kBlocks, int... i>
constexpr auto grouped_table(std::integer_sequence<int, i...>) {
  return std::array{grouped_tile<A, Out, i + 1, kChecked, kBlocks>...};
}

template <class A, class Out, bool kChecked, int... i>
constexpr auto grouped_pairs(std::integer_sequence<int, i...>) {
  return std::array{grouped_pair<A, Out, kFewestPaired + i, kChecked>...};
}

}  // namespace vkconv::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
