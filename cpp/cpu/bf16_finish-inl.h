// What the micro-kernels of bf16 pairs make of a row of sums, in AVX-512.
#pragma once
#include <immintrin.h>

#include <utility>

#include "cpu/gemm_kernels.h"
#include "hwy/base.h"

#define VKCONV_BF16_ATTRIBUTES "avx512f,avx512vl,avx512bw,avx512dq,avx512bf16"

HWY_PUSH_ATTRIBUTES(VKCONV_BF16_ATTRIBUTES)
namespace vkconv::cpu {

template <class F, int... i>
inline __attribute__((always_inline)) void unroll_pairs(std::integer_sequence<int, i...>, F f) {
  (f(std::integral_constant<int, i>()), ...);
}
template <int n, class F>
inline __attribute__((always_inline)) void unroll_pairs(F f) {
  unroll_pairs(std::make_integer_sequence<int, n>(), f);
}

inline __attribute__((always_inline)) __m512 finished(const GemmFinish<hwy::bfloat16_t, float>& f, __m512 v,
                                                      std::int64_t row, std::int64_t column) {
  if (f.addend) v = _mm512_add_ps(v, _mm512_loadu_ps(f.addend + row * f.addend_stride + column));
  if (f.bias) v = _mm512_add_ps(v, _mm512_loadu_ps(f.bias + column));
  // Of a NaN and a number, these give the second operand. (GCC 12 warns of the unmasked ones' undefined operand.)
  constexpr __mmask16 kAll = 0xffff;
  v = _mm512_maskz_max_ps(kAll, _mm512_set1_ps(f.low), v);
  return _mm512_maskz_min_ps(kAll, _mm512_set1_ps(f.high), v);
}

// One row of a panel of so many vectors, the first of them at `column`.
template <int kVectors>
inline __attribute__((always_inline)) void finish_row(const GemmTile<hwy::bfloat16_t, float>& t,
                                                      const GemmPart<hwy::bfloat16_t, float>& part, std::int64_t row,
                                                      std::int64_t column, __m512 (&sum)[kVectors]) {
  constexpr int kLanes = 16;
  const auto* f = part.finish;
  float* c = t.c + row * t.ldc + column;
  unroll_pairs<kVectors>([&](auto v) __attribute__((always_inline)) {
    constexpr int kFirst = v * kLanes;
    if (part.accumulate) sum[v] = _mm512_add_ps(_mm512_loadu_ps(c + kFirst), sum[v]);
    if (f) sum[v] = finished(*f, sum[v], row, column + kFirst);
    if (!f || !f->rounded) _mm512_storeu_ps(c + kFirst, sum[v]);
  });
  if (!f || !f->rounded) return;
  auto* to = f->rounded + row * f->rounded_stride + column;
  if constexpr (kVectors == 2)
    _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(sum[1], sum[0]));
  else
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), (__m256i)_mm512_cvtneps_pbh(sum[0]));
}

}  // namespace vkconv::cpu
HWY_POP_ATTRIBUTES
