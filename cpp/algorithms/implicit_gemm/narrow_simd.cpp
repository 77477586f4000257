// Tiles of the narrow kernel: every pixel of a tile and output channel has a vector of partial sums; a step multiplies
// one vector of each pixel's run by one vector of each channel's weights. Four such vectors are added across lanes
// together, by interleaving them.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "algorithms/implicit_gemm/narrow_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <algorithm>
#include <vector>

#include "algorithms/implicit_gemm/narrow.h"
#include "cpu/epilogue-inl.h"
#include "cpu/pack-inl.h"
#include "cpu/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::HWY_NAMESPACE {

inline constexpr std::int64_t kSegmentPixels = 64;  // whose sums are stored together

// Pixels of a tile with `outputs` channels: so many that the sums fill the registers.
constexpr int tile_pixels(int outputs) {
  const int sums = kManyRegisters ? 24 : 10, most = kManyRegisters ? 16 : 8;
  return std::clamp(sums / outputs, 1, most);
}

// 16 bytes: the sums of the lanes of four floats' vectors, or two doubles'.
template <class D, class V>
HWY_INLINE void store_lane_sums(D d, V v, hn::TFromD<D>* to) {
  if constexpr (HWY_MAX_BYTES > 16 && hn::MaxLanes(D()) * sizeof(hn::TFromD<D>) > 16) {
    const hn::Half<D> half;
    store_lane_sums(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), to);
  } else {
    hn::StoreU(v, d, to);
  }
}

// sums[i] = sum over the lanes of v[i]. Writes up to 16 bytes past sums + n.
template <class A, int n, class V>
HWY_INLINE void add_across_lanes(const V (&v)[n], A* HWY_RESTRICT sums) {
  const hn::ScalableTag<A> d;
  constexpr int kTogether = 16 / sizeof(A);
  unroll<(n + kTogether - 1) / kTogether>([&](auto g) __attribute__((always_inline)) {
    constexpr int i = g * kTogether;
    const auto at = [&](auto j) __attribute__((always_inline)) {
      if constexpr (i + j < n)
        return v[i + j];
      else
        return hn::Zero(d);
    };
    const auto pair = [&](auto a, auto b) __attribute__((always_inline)) {
      return hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
    };
    using std::integral_constant;
    const V low = pair(at(integral_constant<int, 0>()), at(integral_constant<int, 1>()));
    if constexpr (kTogether == 2) {
      store_lane_sums(d, low, sums + i);
    } else {
      const hn::Repartition<double, decltype(d)> two;
      const V high = pair(at(integral_constant<int, 2>()), at(integral_constant<int, 3>()));
      const auto l = hn::BitCast(two, low), h = hn::BitCast(two, high);
      store_lane_sums(
          d, hn::Add(hn::BitCast(d, hn::InterleaveLower(two, l, h)), hn::BitCast(d, hn::InterleaveUpper(two, l, h))),
          sums + i);
    }
  });
}

// One step of a run: load(p) is the next vector of pixel p, weight(o) of channel o.
template <int kOutputs, int kPixels, class V, class Load, class Weight>
HWY_INLINE void add_products(V (&sum)[kOutputs * kPixels], Load load, Weight weight) {
  if constexpr (kOutputs <= kPixels) {
    V w[kOutputs];
    HWY_UNROLL(16)
    for (int o = 0; o < kOutputs; ++o) w[o] = weight(o);
    HWY_UNROLL(32)
    for (int p = 0; p < kPixels; ++p) {
      const V x = kOutputs > 1 ? held(load(p)) : load(p);
      HWY_UNROLL(16)
      for (int o = 0; o < kOutputs; ++o) sum[p * kOutputs + o] = hn::MulAdd(x, w[o], sum[p * kOutputs + o]);
    }
  } else {
    V x[kPixels];
    HWY_UNROLL(16)
    for (int p = 0; p < kPixels; ++p) x[p] = load(p);
    HWY_UNROLL(32)
    for (int o = 0; o < kOutputs; ++o) {
      const V w = kPixels > 1 ? held(weight(o)) : weight(o);
      HWY_UNROLL(16)
      for (int p = 0; p < kPixels; ++p) sum[p * kOutputs + o] = hn::MulAdd(x[p], w, sum[p * kOutputs + o]);
    }
  }
}

// sums[pixel][output] of kPixels pixels that are `lda` elements apart, the first `offset` behind the runs' x.
template <class T, int kOutputs, int kPixels>
HWY_NOINLINE void narrow_tile(const TermRuns<T>& terms, std::int64_t offset, std::int64_t lda,
                              Accumulator<T>* HWY_RESTRICT sums) {
  using A = Accumulator<T>;
  const hn::ScalableTag<A> d;
  using V = hn::Vec<decltype(d)>;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d)), ldw = terms.weight_stride;
  constexpr int kSums = kOutputs * kPixels;
  HWY_ALIGN A total[kSums * HWY_MAX_BYTES / sizeof(A)];
  V sum[kSums];
  HWY_UNROLL(32)
  for (int i = 0; i < kSums; ++i) sum[i] = hn::Zero(d);
  const TermRun<T>* run = terms.runs.data();
  for (std::size_t chain = 0; chain < terms.ends.size(); ++chain) {
    for (const TermRun<T>* end = terms.runs.data() + terms.ends[chain]; run != end; ++run) {
      // Every third pixel and channel has its own pointer; the two behind it are reached by scaled addressing.
      const T* x[(kPixels + 2) / 3];
      const A* w[(kOutputs + 2) / 3];
      HWY_UNROLL(16)
      for (int i = 0; i < (kPixels + 2) / 3; ++i) x[i] = run->x + offset + 3 * i * lda;
      HWY_UNROLL(16)
      for (int i = 0; i < (kOutputs + 2) / 3; ++i) w[i] = run->weights + 3 * i * ldw;
      std::int64_t k = 0;
      for (; k + lanes <= run->terms; k += lanes)
        add_products<kOutputs, kPixels>(
            sum, [&](int p) __attribute__((always_inline)) { return load(d, x[p / 3] + p % 3 * lda + k); },
            [&](int o) __attribute__((always_inline)) { return hn::LoadU(d, w[o / 3] + o % 3 * ldw + k); });
      if (const auto rest = static_cast<std::size_t>(run->terms - k); rest > 0)
        add_products<kOutputs, kPixels>(
            sum, [&](int p) __attribute__((always_inline)) { return load_n(d, x[p / 3] + p % 3 * lda + k, rest); },
            [&](int o) __attribute__((always_inline)) { return load_n(d, w[o / 3] + o % 3 * ldw + k, rest); });
    }
    if (terms.ends.size() == 1) break;
    HWY_UNROLL(32)
    for (int i = 0; i < kSums; ++i) {
      A* to = total + i * lanes;
      if (chain > 0) sum[i] = hn::Add(hn::Load(d, to), sum[i]);
      hn::Store(sum[i], d, to);
      if (chain + 1 < terms.ends.size()) sum[i] = hn::Zero(d);
    }
  }
  add_across_lanes<A>(sum, sums);
}

template <class T, int... o>
NarrowTiles<T> make_narrow_tiles(std::integer_sequence<int, o...>) {
  return {{tile_pixels(o + 1)...},
          {narrow_tile<T, o + 1, tile_pixels(o + 1)>...},
          {narrow_tile<T, o + 1, std::min<int>(tile_pixels(o + 1), kCrowdedRows)>...},
          {narrow_tile<T, o + 1, 1>...}};
}

template <class T>
const NarrowTiles<T>& NarrowTilesOf() {
  static const auto made = make_narrow_tiles<T>(std::make_integer_sequence<int, kNarrowOutputs>());
  return made;
}
const NarrowTiles<float>& FloatTiles() { return NarrowTilesOf<float>(); }
const NarrowTiles<double>& DoubleTiles() { return NarrowTilesOf<double>(); }
const NarrowTiles<hwy::float16_t>& Float16Tiles() { return NarrowTilesOf<hwy::float16_t>(); }
const NarrowTiles<hwy::bfloat16_t>& Bfloat16Tiles() { return NarrowTilesOf<hwy::bfloat16_t>(); }

template <class T>
void copy_columns(const T* HWY_RESTRICT x, Range columns, std::int64_t stride, std::int64_t channels,
                  T* HWY_RESTRICT to) {
  if (channels == 1) {  // a call for each would take several times as long
    for (std::int64_t c = columns.begin; c < columns.end; ++c) *to++ = x[c * stride];
  } else {
    for (std::int64_t c = columns.begin; c < columns.end; ++c, to += channels)
      std::copy_n(x + c * stride, channels, to);
  }
}

template <class T, class Out>
class Narrow {
 public:
  using A = Accumulator<T>;

  Narrow(const NarrowLayout& s, const Operands<Device>& a, const A* packed) : s_(s), p_(s.p), a_(a), packed_(packed) {
    if (p_.epilogue.bias)
      for (std::int64_t i = 0; i < kSegmentPixels * outputs_; ++i)
        bias_.push_back(reinterpret_cast<const A*>(a.bias)[i % outputs_]);
  }

  void task(std::int64_t index) const {
    const std::int64_t strip = index % s_.strips(), chunk = index / s_.strips();
    const Range rows{chunk * s_.chunk_rows, std::min(s_.rows, (chunk + 1) * s_.chunk_rows)};
    const Range columns{strip * s_.strip, std::min(p_.output[2], (strip + 1) * s_.strip)};
    TermRuns<T> terms;
    terms.weight_stride = s_.terms;
    for (std::int64_t r = rows.begin; r < rows.end; ++r)
      for (const TapSpan& span : s_.spans) {
        const Range w = common(span.outputs, columns);
        for (std::int64_t group = 0; group < p_.groups && w.size() > 0; ++group)
          pixels(OutputRow(p_, r), w, span.taps, group, terms);
      }
  }

 private:
  // The runs of the pixel at w = 0, were it to meet `taps`, for the outputs of `w`. Which terms are one run is the
  // problem's to say, not the memory's, so that the sums of a view have the bits of the sums of its copy.
  void collect(const OutputRow& at, Range w_range, Range taps, std::int64_t group, TermRuns<T>& terms) const {
    terms.runs.clear();
    terms.ends.clear();
    const auto& stride = a_.input.stride;
    const std::int64_t in = p_.in_channels_per_group();
    const bool whole = p_.dilation[2] == 1 && p_.groups == 1;  // taps along W are one run
    const bool copy = whole && p_.kernel[2] > 1 && stride[3] != in && taps.size() > 0;
    const std::int64_t pixel = copy ? in : stride[3];
    // Taps of an output that end before those of the next one begin are copied without what is between.
    const bool apart = copy && p_.stride[2] > taps.size();
    terms.output_stride = (apart ? taps.size() : p_.stride[2]) * pixel;
    const T* input =
        reinterpret_cast<const T*>(a_.input.data) + at.n * stride[0] + group * in - p_.pad_lo[2] * stride[3];
    const A* weights = packed_ + group * outputs_ * s_.terms;
    const std::int64_t copies = apart ? w_range.size() : 1, outputs_a_copy = w_range.size() / copies;
    const std::int64_t columns = (outputs_a_copy - 1) * p_.stride[2] + taps.size();  // a copy
    if (copy) terms.copied.resize(static_cast<std::size_t>(at.kd.size() * at.kh.size() * copies * columns * in));
    T* to = terms.copied.data();
    std::int64_t steps = 0;
    const auto add = [&](const T* x, const A* w, std::int64_t count) {
      for (std::int64_t k = 0, part; k < count; k += part) {
        part = std::min(count - k, kChainSteps * s_.lanes);
        const std::int64_t more = ceil_div(part, s_.lanes);
        if (steps + more > kChainSteps && steps > 0) terms.ends.push_back(terms.runs.size()), steps = 0;
        terms.runs.push_back({x + k, w + k, part});
        steps += more;
      }
    };
    for (std::int64_t d = at.kd.begin; d < at.kd.end; ++d)
      for (std::int64_t h = at.kh.begin; h < at.kh.end; ++h) {
        const T* x = input + position_of(p_, 0, at.d, d) * stride[1] + position_of(p_, 1, at.h, h) * stride[2];
        if (copy) {
          const T* const begin = to;
          for (std::int64_t w = w_range.begin; w < w_range.end; w += outputs_a_copy, to += columns * in) {
            const std::int64_t first = w * p_.stride[2] + taps.begin;
            copy_columns(x, {first, first + columns}, stride[3], in, to);
          }
          x = begin - w_range.begin * terms.output_stride - taps.begin * in;
        }
        const A* w = weights + (d * p_.kernel[1] + h) * p_.kernel[2] * in;
        for (std::int64_t k = taps.begin; k < taps.end; k += whole ? taps.size() : 1)
          add(x + k * p_.dilation[2] * pixel, w + k * in, (whole ? taps.size() : 1) * in);
      }
    terms.ends.push_back(terms.runs.size());
  }

  void pixels(const OutputRow& at, Range w, Range taps, std::int64_t group, TermRuns<T>& terms) const {
    const auto& tiles = NarrowTilesOf<T>();
    collect(at, w, taps, group, terms);
    const std::int64_t lda = terms.output_stride;
    const auto one = tiles.one[static_cast<std::size_t>(outputs_ - 1)];
    const auto several = tiles.several_of(outputs_, lda);
    HWY_ALIGN A sums[(kSegmentPixels + 1) * kNarrowOutputs];
    for (std::int64_t first = w.begin; first < w.end; first += kSegmentPixels) {
      const std::int64_t count = std::min(kSegmentPixels, w.end - first);
      std::int64_t i = 0;
      for (; i + several.pixels <= count; i += several.pixels)
        several.tile(terms, (first + i) * lda, lda, sums + i * outputs_);
      for (; i < count; ++i) one(terms, (first + i) * lda, lda, sums + i * outputs_);
      store_segment(at, first, count, group, sums);
    }
  }

  void store_segment(const OutputRow& at, std::int64_t w, std::int64_t count, std::int64_t group, const A* sums) const {
    TileStore<A, Out> to = tile_store<A, Out>(p_, a_, at, w, group * outputs_);
    const bool run = to.out_stride == outputs_ && (!to.addend || to.addend_stride == outputs_);
    if (!run || (to.bias && p_.groups > 1)) return store_tile(sums, outputs_, count, outputs_, to, p_.epilogue);
    if (to.bias) to.bias = bias_.data();
    store_tile(sums, 0, 1, count * outputs_, to, p_.epilogue);
  }

  const NarrowLayout& s_;
  const ConvProblem& p_;
  const Operands<Device>& a_;
  const A* packed_;
  const std::int64_t outputs_ = p_.out_channels_per_group();
  std::vector<A> bias_;  // of a segment's outputs, when one group has them all
};

template <class T>
void pack_as(const NarrowLayout& s, const WeightView<std::byte*>& weight, std::byte* packed) {
  const ConvProblem& p = s.p;
  auto* to = reinterpret_cast<Accumulator<T>*>(packed);
  for (std::int64_t o = 0; o < p.out_channels; ++o, to += s.terms)
    pack_panel(typed<T>(weight, o / p.out_channels_per_group()), p.kernel, p.in_channels_per_group(),
               o % p.out_channels_per_group(), 1, to, 1);
}

template <class T, class Out>
void run_as(const NarrowLayout& s, const Operands<Device>& a, std::byte* workspace) {
  std::byte* packed = a.prepared ? a.prepared->data : workspace;
  if (!a.prepared) pack_as<T>(s, a.weight, packed);
  const Narrow<T, Out> narrow(s, a, reinterpret_cast<const Accumulator<T>*>(packed));
  thread_pool().run(s.tasks(), [&](std::int64_t t) { narrow.task(t); });
}

void RunNarrow(const NarrowLayout& s, const Operands<Device>& a, std::byte* workspace) {
  with_types(s.p, [&](auto in, auto out) { run_as<decltype(in), decltype(out)>(s, a, workspace); });
}

void PackNarrow(const NarrowLayout& s, const WeightView<std::byte*>& weight, std::byte* packed) {
  with_types(s.p, [&](auto in, auto) { pack_as<decltype(in)>(s, weight, packed); });
}

}  // namespace vkconv::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace vkconv::cpu {

HWY_EXPORT(RunNarrow);
HWY_EXPORT(PackNarrow);
HWY_EXPORT(FloatTiles);
HWY_EXPORT(DoubleTiles);
HWY_EXPORT(Float16Tiles);
HWY_EXPORT(Bfloat16Tiles);

template <>
const NarrowTiles<float>& narrow_tiles<float>() {
  return HWY_DYNAMIC_DISPATCH(FloatTiles)();
}
template <>
const NarrowTiles<double>& narrow_tiles<double>() {
  return HWY_DYNAMIC_DISPATCH(DoubleTiles)();
}
template <>
const NarrowTiles<hwy::float16_t>& narrow_tiles<hwy::float16_t>() {
  return HWY_DYNAMIC_DISPATCH(Float16Tiles)();
}
template <>
const NarrowTiles<hwy::bfloat16_t>& narrow_tiles<hwy::bfloat16_t>() {
  return HWY_DYNAMIC_DISPATCH(Bfloat16Tiles)();
}

void run_narrow(const NarrowLayout& s, const Operands<Device>& a, std::byte* workspace) {
  HWY_DYNAMIC_DISPATCH(RunNarrow)(s, a, workspace);
}
void pack_narrow(const NarrowLayout& s, const WeightView<std::byte*>& weight, std::byte* packed) {
  HWY_DYNAMIC_DISPATCH(PackNarrow)(s, weight, packed);
}

}  // namespace vkconv::cpu
#endif
