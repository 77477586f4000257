// Splitting into the parts of bf16_parts.h, of pixels and of weights, as bf16_tiles.h reads them: kSplitTerms of the
// first part, as many of the second, ..., then the next terms.
// Include once per instruction set (Highway's foreach_target).
#if defined(VKCONV_CPU_BF16_PARTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VKCONV_CPU_BF16_PARTS_INL_H_
#undef VKCONV_CPU_BF16_PARTS_INL_H_
#else
#define VKCONV_CPU_BF16_PARTS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cpu/bf16_parts.h"
#include "cpu/bf16_tiles.h"
#include "cpu/pack-inl.h"
#include "cpu/simd-inl.h"

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3  // tiles are of processors that have AVX-512
HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr std::int64_t kSplitTerms = kTileTerms, kSplitLanes = kSplitTerms / 2;
using SplitTag = hn::FixedTag<float, kSplitLanes>;
using SplitVector = hn::Vec<SplitTag>;
using SplitBits = hn::RebindToUnsigned<SplitTag>;
static_assert(hn::MaxLanes(SplitTag()) == kSplitLanes);

template <class T>
inline constexpr int kParts = parts_of(std::is_same_v<T, float> ? DType::f32 : DType::f16);

// Whether all values seen so far have parts.
class SplitCheck {
 public:
  SplitCheck() : most_(hn::Zero(SplitBits())), least_(hn::Set(SplitBits(), ~std::uint32_t{0})) {}
  HWY_INLINE void see(SplitVector v) {
    const SplitBits u32;
    const auto magnitude = hn::And(hn::BitCast(u32, v), hn::Set(u32, 0x7fffffff));
    most_ = hn::Max(most_, magnitude);
    least_ = hn::Min(least_, hn::Sub(magnitude, hn::Set(u32, 1)));  // zero: the largest number
  }
  bool passed() const {
    const SplitBits u32;
    return hn::GetLane(hn::MaxOfLanes(u32, most_)) < bits(kLeastUnsplit) &&
           hn::GetLane(hn::MinOfLanes(u32, least_)) >= bits(kLeastSplit) - 1;
  }

 private:
  static std::uint32_t bits(float v) {
    std::uint32_t b;
    std::memcpy(&b, &v, sizeof b);
    return b;
  }
  hn::Vec<SplitBits> most_, least_;
};

// As floats whose lower half is zero: what is left after the other parts fits the last one.
template <int kCount>
HWY_INLINE void split(SplitVector v, SplitVector (&part)[kCount]) {
  const SplitTag d;
  const SplitBits u32;
  unroll<kCount - 1>([&](auto i) __attribute__((always_inline)) {
    const auto rounded = hn::Add(hn::BitCast(u32, v), hn::Set(u32, 0x8000));
    part[i] = hn::BitCast(d, hn::And(rounded, hn::Set(u32, 0xffff0000)));
    v = hn::Sub(v, part[i]);
  });
  part[kCount - 1] = v;
}

// Pixels of `in` values, `stride` apart, to pixels of `padded` elements: the parts of the values and of zeros behind
// them. Returns whether all values have parts.
template <class T>
bool split_pixels(const T* from, std::int64_t stride, std::int64_t in, std::int64_t pixels, hwy::bfloat16_t* pixel,
                  std::int64_t padded) {
  SplitCheck check;
  const SplitTag d;
  const hn::Repartition<std::uint16_t, SplitTag> u16;
  for (std::int64_t i = 0; i < pixels; ++i, from += stride, pixel += padded) {
    auto* to = reinterpret_cast<std::uint16_t*>(pixel);
    for (std::int64_t c = 0; c < in; c += kSplitTerms) {
      SplitVector part[2][kParts<T>];
      unroll<2>([&](auto half) __attribute__((always_inline)) {
        const std::int64_t first = c + half * kSplitLanes, count = in - first;
        const auto v = count >= kSplitLanes ? load(d, from + first)
                       : count > 0          ? load_n(d, from + first, static_cast<std::size_t>(count))
                                            : hn::Zero(d);
        check.see(v);
        split(v, part[half]);
      });
      unroll<kParts<T>>([&](auto p) __attribute__((always_inline)) {
        hn::StoreU(hn::ConcatOdd(u16, hn::BitCast(u16, part[1][p]), hn::BitCast(u16, part[0][p])), u16, to);
        to += kSplitTerms;
      });
    }
  }
  return check.passed();
}

// Rows of a panel, `columns` wide, to pairs of them: to[part][pair][columns][2].
template <class T>
void split_rows(const float* rows, std::int64_t columns, hwy::bfloat16_t* to, SplitCheck& check) {
  const SplitTag d;
  const SplitBits u32;
  for (std::int64_t pair = 0; pair < kSplitTerms / 2; ++pair)
    for (std::int64_t o = 0; o < columns; o += kSplitLanes) {
      SplitVector part[2][kParts<T>];
      unroll<2>([&](auto odd) __attribute__((always_inline)) {
        const auto v = hn::LoadU(d, rows + (2 * pair + odd) * columns + o);
        check.see(v);
        split(v, part[odd]);
      });
      unroll<kParts<T>>([&](auto p) __attribute__((always_inline)) {
        const auto both = hn::Or(hn::ShiftRight<16>(hn::BitCast(u32, part[0][p])), hn::BitCast(u32, part[1][p]));
        hn::StoreU(both, u32,
                   reinterpret_cast<std::uint32_t*>(to + p * kSplitTerms * columns + (pair * columns + o) * 2));
      });
    }
}

// The parts of the panel of pack_panel(), the channels of every tap, or of every row of taps (`rows_of_taps`), followed
// by zeros so that they are whole kSplitTerms. Returns whether all weights have parts.
template <class T>
bool pack_parts(const WeightView<const T*>& weight, const Extent3& kernel, std::int64_t in, bool rows_of_taps,
                std::int64_t first, std::int64_t count, hwy::bfloat16_t* to, std::int64_t columns) {
  HWY_ALIGN float rows[kSplitTerms * kMatrixTile.lanes * 2];
  SplitCheck check;
  const std::int64_t all = kernel[0] * kernel[1] * kernel[2] * in, run = rows_of_taps ? kernel[2] * in : in;
  for (std::int64_t begin = 0; begin < all; begin += run)
    for (std::int64_t k = 0; k < run; k += kSplitTerms, to += kParts<T> * kSplitTerms * columns) {
      const std::int64_t terms = std::min(kSplitTerms, run - k);
      pack_terms(weight, kernel, in, {begin + k, begin + k + terms}, first, count, rows, columns);
      std::fill(rows + terms * columns, rows + kSplitTerms * columns, 0.0F);
      split_rows<T>(rows, columns, to, check);
    }
  return check.passed();
}

}  // namespace vkconv::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
