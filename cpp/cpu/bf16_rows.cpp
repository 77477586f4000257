// Raw intrinsics, because Highway has masked loads of 16-bit values in later versions only.
#include "cpu/bf16_rows.h"

#include <algorithm>

#if defined(__x86_64__)
#include "cpu/bf16_finish-inl.h"

HWY_PUSH_ATTRIBUTES(VKCONV_BF16_ATTRIBUTES)
namespace vkconv::cpu {
namespace {

using Bits = std::uint16_t;
constexpr std::int64_t kLanes = 16;

// Of the first `count` lanes.
inline __attribute__((always_inline)) __mmask16 lanes_below(std::int64_t count) {
  return static_cast<__mmask16>((1U << std::clamp<std::int64_t>(count, 0, kLanes)) - 1);
}

// Pairs of the values of two rows, and the largest of all without their signs.
inline __attribute__((always_inline)) __m512i pairs_of(const Bits* even, const Bits* odd, std::int64_t c,
                                                       __mmask16 mask, __m512i& largest) {
  const auto values = [&](const Bits* row) __attribute__((always_inline)) {
    return _mm512_maskz_cvtepu16_epi32(mask, _mm256_maskz_loadu_epi16(row ? mask : __mmask16{0}, row + c));
  };
  const __m512i pairs = _mm512_or_si512(values(even), _mm512_slli_epi32(values(odd), 16));
  largest = _mm512_max_epu16(largest, _mm512_and_si512(pairs, _mm512_set1_epi16(0x7fff)));
  return pairs;
}

inline __attribute__((always_inline)) bool all_finite(__m512i largest) {
  return _mm512_cmpge_epu16_mask(largest, _mm512_set1_epi16(0x7f80)) == 0;
}

// The even and the odd ones of a vector's four blocks of 128 bits, for shuffles.
constexpr int kEven = 0x88, kOdd = 0xdd;

// Transposes 16 vectors of 16 values of 32 bits: within blocks of four by four, then the blocks.
inline __attribute__((always_inline)) void transpose(__m512i (&v)[16]) {
  __m512i w[16];
  unroll_pairs<4>([&](auto q) __attribute__((always_inline)) {
    constexpr int i = 4 * q;
    const __m512i a = _mm512_unpacklo_epi32(v[i], v[i + 1]), b = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    const __m512i c = _mm512_unpacklo_epi32(v[i + 2], v[i + 3]), d = _mm512_unpackhi_epi32(v[i + 2], v[i + 3]);
    w[i] = _mm512_unpacklo_epi64(a, c), w[i + 1] = _mm512_unpackhi_epi64(a, c);
    w[i + 2] = _mm512_unpacklo_epi64(b, d), w[i + 3] = _mm512_unpackhi_epi64(b, d);
  });
  unroll_pairs<4>([&](auto r) __attribute__((always_inline)) {
    const __m512i even01 = _mm512_shuffle_i32x4(w[r], w[4 + r], kEven),
                  even23 = _mm512_shuffle_i32x4(w[8 + r], w[12 + r], kEven);
    const __m512i odd01 = _mm512_shuffle_i32x4(w[r], w[4 + r], kOdd),
                  odd23 = _mm512_shuffle_i32x4(w[8 + r], w[12 + r], kOdd);
    v[r] = _mm512_shuffle_i32x4(even01, even23, kEven), v[8 + r] = _mm512_shuffle_i32x4(even01, even23, kOdd);
    v[4 + r] = _mm512_shuffle_i32x4(odd01, odd23, kEven), v[12 + r] = _mm512_shuffle_i32x4(odd01, odd23, kOdd);
  });
}

}  // namespace

bool pair_rows(const Bits* const* rows, std::int64_t terms, std::int64_t first, std::int64_t channels,
               std::int64_t columns, Bits* to) {
  __m512i largest = _mm512_setzero_si512();
  for (std::int64_t c = 0; c < columns; c += kLanes) {
    const __mmask16 mask = lanes_below(channels - c);
    Bits* at = to + 2 * c;
    for (std::int64_t t = 0; t < terms; t += 2, at += 2 * columns)
      _mm512_storeu_si512(at, pairs_of(rows[t], rows[t + 1], first + c, mask, largest));
  }
  return all_finite(largest);
}

bool transpose_rows(const Bits* const* rows, std::int64_t terms, std::int64_t first, std::int64_t channels, Bits* to,
                    std::int64_t pitch) {
  __m512i largest = _mm512_setzero_si512();
  for (std::int64_t c = 0; c < channels; c += kLanes) {
    const __mmask16 mask = lanes_below(channels - c);
    for (std::int64_t t = 0; t < terms; t += 2 * kLanes) {
      __m512i pairs[kLanes];
      for (std::int64_t i = 0; i < kLanes; ++i)
        pairs[i] = pairs_of(rows[t + 2 * i], rows[t + 2 * i + 1], first + c, mask, largest);
      transpose(pairs);
      for (std::int64_t i = 0; i < kLanes; ++i) _mm512_storeu_si512(to + (c + i) * pitch + t, pairs[i]);
    }
  }
  return all_finite(largest);
}

}  // namespace vkconv::cpu
HWY_POP_ATTRIBUTES

#endif
