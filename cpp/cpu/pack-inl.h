// Packing of weights into the panels of gemm-inl.h, widened to the accumulator type.
// Include once per instruction set (Highway's foreach_target).
#if defined(VKCONV_CPU_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VKCONV_CPU_PACK_INL_H_
#undef VKCONV_CPU_PACK_INL_H_
#else
#define VKCONV_CPU_PACK_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "core/geometry.h"
#include "core/view.h"
#include "cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR  // which has no interleaving
// Values of type A in a 16-byte vector: what a transposition takes of every row at a time.
template <class A>
inline constexpr std::int64_t kTransposedTerms = 16 / static_cast<std::int64_t>(sizeof(A));

// 16 bytes, once widened, of each of MaxLanes(d) / kTransposedTerms rows: rows 0, kTransposedTerms, ...
template <class D, class T>
HWY_INLINE hn::Vec<D> load_some_rows(D d, const T* from, std::int64_t stride) {
  if constexpr (hn::MaxLanes(d) <= kTransposedTerms<hn::TFromD<D>>) {
    return load(d, from);
  } else {
    const hn::Half<D> half;
    const auto upper = load_some_rows(half, from + static_cast<std::int64_t>(hn::MaxLanes(half)) * stride, stride);
    return hn::Combine(d, upper, load_some_rows(half, from, stride));
  }
}

// Of each 16 bytes of the vectors the transposition: v[i] has there what the vectors, in their order, had in element i.
template <class D>
HWY_INLINE void transpose_blocks(D d, hn::Vec<D> (&v)[kTransposedTerms<hn::TFromD<D>>]) {
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    const auto lower = hn::InterleaveLower(d, v[0], v[1]);
    v[1] = hn::InterleaveUpper(d, v[0], v[1]);
    v[0] = lower;
  } else {
    const hn::RepartitionToWide<D> pair;
    const auto low01 = hn::BitCast(pair, hn::InterleaveLower(d, v[0], v[1])),
               low23 = hn::BitCast(pair, hn::InterleaveLower(d, v[2], v[3]));
    const auto up01 = hn::BitCast(pair, hn::InterleaveUpper(d, v[0], v[1])),
               up23 = hn::BitCast(pair, hn::InterleaveUpper(d, v[2], v[3]));
    v[0] = hn::BitCast(d, hn::InterleaveLower(pair, low01, low23));
    v[1] = hn::BitCast(d, hn::InterleaveUpper(pair, low01, low23));
    v[2] = hn::BitCast(d, hn::InterleaveLower(pair, up01, up23));
    v[3] = hn::BitCast(d, hn::InterleaveUpper(pair, up01, up23));
  }
}

// to[k * columns + o] = from[o * stride + k] for MaxLanes(d) o and kTransposedTerms k.
template <class D, class T>
HWY_INLINE void transpose_rows(D d, const T* from, std::int64_t stride, hn::TFromD<D>* to, std::int64_t columns) {
  constexpr auto kTerms = static_cast<int>(kTransposedTerms<hn::TFromD<D>>);
  hn::Vec<D> v[kTerms];
  unroll<kTerms>([&](auto i) __attribute__((always_inline)) { v[i] = load_some_rows(d, from + i * stride, stride); });
  transpose_blocks(d, v);
  unroll<kTerms>([&](auto i) __attribute__((always_inline)) { hn::StoreU(v[i], d, to + i * columns); });
}

// The same for any number of o, as many at a time as a vector has lanes, and whole kTransposedTerms of `terms`; returns
// how many o it took: all but fewer than kTransposedTerms.
template <class D, class T>
std::int64_t transpose_block(D d, const T* from, std::int64_t stride, std::int64_t terms, std::int64_t count,
                             hn::TFromD<D>* to, std::int64_t columns) {
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(D()));
  constexpr std::int64_t kTerms = kTransposedTerms<hn::TFromD<D>>;
  std::int64_t o = 0;
  for (; o + kLanes <= count; o += kLanes)
    for (std::int64_t k = 0; k + kTerms <= terms; k += kTerms)
      transpose_rows(d, from + o * stride + k, stride, to + k * columns + o, columns);
  if constexpr (kLanes > kTerms)
    o += transpose_block(hn::Half<D>(), from + o * stride, stride, terms, count - o, to + o, columns);
  return o;
}
#endif

// `count` output channels of `terms` terms each: to[k * columns + o] = from[o * out_stride + k * in_stride].
template <class T>
void pack_run(const T* from, std::int64_t out_stride, std::int64_t in_stride, std::int64_t terms, std::int64_t count,
              Accumulator<T>* to, std::int64_t columns) {
  if (out_stride == 1 && count >= static_cast<std::int64_t>(hn::Lanes(AccumulatorTag<T>()))) {
    for (std::int64_t k = 0; k < terms; ++k) widen_run(from + k * in_stride, count, to + k * columns);
    return;
  }
  std::int64_t done = 0, whole = 0;  // channels and terms that are transposed in vectors
#if HWY_TARGET != HWY_SCALAR
  using A = Accumulator<T>;
  if (in_stride == 1) {
    whole = terms / kTransposedTerms<A> * kTransposedTerms<A>;
    done = transpose_block(hn::FixedTag<A, HWY_LANES(A)>(), from, out_stride, whole, count, to, columns);
  }
#endif
  for (std::int64_t k = 0; k < terms; ++k)
    for (std::int64_t o = k < whole ? done : 0; o < count; ++o)
      to[k * columns + o] = widened(from + o * out_stride + k * in_stride);
}

template <class T>
WeightView<const T*> typed(const WeightView<std::byte*>& w, std::int64_t group) {
  return {reinterpret_cast<const T*>(w.data) + group * w.group, w.group, w.out, w.in, w.tap};
}

// Terms that go together: their part of a panel stays in L1 while it is filled, some columns at a time.
inline constexpr std::int64_t kPackedTogether = 256;

// Rows `terms` of the panel of output channels [first, first + count) of one group, at `to`: rows are in the order
// (KD, KH, KW, in), columns beyond `count` are zero. `weight` is at the group.
template <class T>
void pack_terms(const WeightView<const T*>& weight, const Extent3& kernel, std::int64_t in_channels, Range terms,
                std::int64_t first, std::int64_t count, Accumulator<T>* to, std::int64_t columns) {
  const T* from = weight.data + first * weight.out;
  if (count < columns)
    for (std::int64_t k = 0; k < terms.size(); ++k)
      for (std::int64_t o = count; o < columns; ++o) to[k * columns + o] = 0;
  // Axes whose stride continues the run of the axis inside it are one run.
  std::int64_t run = in_channels;
  Extent3 outer = kernel;
  for (std::size_t axis = 3; axis-- > 0;) {
    if (outer[axis] != 1 && weight.tap[axis] != run * weight.in) break;
    run *= outer[axis];
    outer[axis] = 1;
  }
  for (std::int64_t begin = terms.begin, end; begin < terms.end; begin = end) {
    const std::int64_t i = begin / run;
    end = std::min({terms.end, (i + 1) * run, begin + kPackedTogether});
    pack_run(from + weight.offset(tap_at(outer, i)) + (begin - i * run) * weight.in, weight.out, weight.in, end - begin,
             count, to + (begin - terms.begin) * columns, columns);
  }
}

// All rows.
template <class T>
void pack_panel(const WeightView<const T*>& weight, const Extent3& kernel, std::int64_t in_channels, std::int64_t first,
                std::int64_t count, Accumulator<T>* panel, std::int64_t columns) {
  const std::int64_t terms = kernel[0] * kernel[1] * kernel[2] * in_channels;
  pack_terms(weight, kernel, in_channels, {0, terms}, first, count, panel, columns);
}

// Whether none of `count` values is infinite or NaN.
template <class T>
bool all_finite(const T* values, std::int64_t count) {
  const AccumulatorTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  // NaN from the first such value on; several, since one would wait for itself.
  V zeros[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  std::int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes)
    for (std::int64_t j = 0; j < 4; ++j) zeros[j] = hn::MulAdd(load(d, values + i + j * lanes), hn::Zero(d), zeros[j]);
  for (; i + lanes <= count; i += lanes) zeros[0] = hn::MulAdd(load(d, values + i), hn::Zero(d), zeros[0]);
  Accumulator<T> rest = 0;
  for (; i < count; ++i) rest += widened(values + i) * 0;
  const V all = hn::Add(hn::Add(zeros[0], zeros[1]), hn::Add(zeros[2], zeros[3]));
  return hn::AllTrue(d, hn::Eq(all, hn::Zero(d))) && rest == 0;
}

// The panel of the micro-kernels of bf16 pairs: to[k / 2][columns][2]. The channels of every tap, or of every row of
// taps (`rows`), are followed by zeros, so that they are `padded`, an even number.
template <class T>
void pack_pairs(const WeightView<const T*>& weight, const Extent3& kernel, std::int64_t in_channels, bool rows,
                std::int64_t padded, std::int64_t first, std::int64_t count, T* to, std::int64_t columns) {
  const auto even = [](std::int64_t stride) { return stride % 2 == 0; };
  // Pairs that are whole, and lie like floats, are packed as if each were one.
  const bool aligned = reinterpret_cast<std::uintptr_t>(weight.data) % alignof(float) == 0;
  const bool whole = aligned && in_channels % 2 == 0 && weight.in == 1 && even(weight.out) &&
                     std::all_of(weight.tap.begin(), weight.tap.end(), even);
  const auto pack_whole = [&](const T* data, const Extent3& taps) {
    const WeightView<const float*> pairs{reinterpret_cast<const float*>(data),
                                         0,
                                         weight.out / 2,
                                         1,
                                         {weight.tap[0] / 2, weight.tap[1] / 2, weight.tap[2] / 2}};
    pack_panel(pairs, taps, in_channels / 2, first, count, reinterpret_cast<float*>(to), columns);
  };
  if (whole && in_channels == padded) return pack_whole(weight.data, kernel);
  const Extent3 run{1, 1, rows ? kernel[2] : 1};
  const std::int64_t along = kernel[2] / run[2], runs = kernel[0] * kernel[1] * along, terms = run[2] * in_channels;
  for (std::int64_t i = 0; i < runs; ++i, to += padded * columns) {
    const T* data = weight.data + i / (kernel[1] * along) * weight.tap[0] + i / along % kernel[1] * weight.tap[1] +
                    i % along * weight.tap[2];
    std::fill(to + terms / 2 * 2 * columns, to + padded * columns, T{});
    if (whole) {
      pack_whole(data, run);
      continue;
    }
    for (std::int64_t k = 0; k < terms; ++k) {
      const T* from = data + first * weight.out + k / in_channels * weight.tap[2] + k % in_channels * weight.in;
      for (std::int64_t o = 0; o < columns; ++o)
        to[(k / 2 * columns + o) * 2 + k % 2] = o < count ? from[o * weight.out] : T{};
    }
  }
}

}  // namespace vkconv::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
