// Raw intrinsics, because Highway has no vdpbf16ps; chosen at run time.
#include "cpu/bf16_dot.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>

HWY_PUSH_ATTRIBUTES("avx512f,avx512vl,avx512bw,avx512dq,avx512bf16")
namespace vkconv::cpu {
namespace {

template <class F, int... i>
inline __attribute__((always_inline)) void unroll(std::integer_sequence<int, i...>, F f) {
  (f(std::integral_constant<int, i>()), ...);
}
template <int n, class F>
inline __attribute__((always_inline)) void unroll(F f) {
  unroll(std::make_integer_sequence<int, n>(), f);
}

using Tile = GemmTile<hwy::bfloat16_t, float>;
constexpr int kPrefetchPairs = 12;

template <int kRows, int kVectors, bool kAccumulate>
inline __attribute__((always_inline)) void multiply(const Tile& t, std::int64_t tile, std::int64_t panel) {
  __m512 sum[kRows][kVectors];
  unroll<kRows>([&](auto r) __attribute__((always_inline)) {
    unroll<kVectors>([&](auto v) __attribute__((always_inline)) { sum[r][v] = _mm512_setzero_ps(); });
  });
  for (std::int64_t s = 0; s < t.slice_count; ++s) {
    const hwy::bfloat16_t *a = t.slices[s].a + tile * kRows * t.lda, *b = t.slices[s].b + panel * t.panel_stride;
    for (std::int64_t k = 0; k < t.kc; k += 2, b += 2 * kVectors * kDotLanes) {
      __m512i column[kVectors];
      unroll<kVectors>([&](auto v) __attribute__((always_inline)) {
        column[v] = _mm512_loadu_si512(b + 2 * v * kDotLanes);
        _mm_prefetch(reinterpret_cast<const char*>(b + 2 * (kPrefetchPairs * kVectors + v) * kDotLanes), _MM_HINT_T0);
      });
      unroll<kRows>([&](auto r) __attribute__((always_inline)) {
        int pair;
        std::memcpy(&pair, a + r * t.lda + k, sizeof pair);
        const auto x = (__m512bh)_mm512_set1_epi32(pair);
        unroll<kVectors>([&](auto v) __attribute__((always_inline)) {
          sum[r][v] = _mm512_dpbf16_ps(sum[r][v], x, (__m512bh)column[v]);
        });
      });
    }
  }
  unroll<kRows>([&](auto r) __attribute__((always_inline)) {
    unroll<kVectors>([&](auto v) __attribute__((always_inline)) {
      float* c = t.c + (tile * kRows + r) * t.ldc + (panel * kVectors + v) * kDotLanes;
      _mm512_storeu_ps(c, kAccumulate ? _mm512_add_ps(_mm512_loadu_ps(c), sum[r][v]) : sum[r][v]);
    });
  });
}

template <int kRows, int kVectors, bool kAccumulate>
void dot_kernel(const Tile& t) {
  for (std::int64_t tile = 0; tile < t.tiles; ++tile)
    for (std::int64_t panel = 0; panel < t.panels; ++panel) multiply<kRows, kVectors, kAccumulate>(t, tile, panel);
}

template <int kVectors, bool kAccumulate, int... i>
constexpr auto dot_table(std::integer_sequence<int, i...>) {
  return std::array{&dot_kernel<i + 1, kVectors, kAccumulate>...};
}

}  // namespace

void round_to_bf16(const float* sums, std::int64_t sum_stride, std::int64_t rows, std::int64_t columns,
                   hwy::bfloat16_t* to, std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; ++r, sums += sum_stride, to += stride)
    for (std::int64_t c = 0; c < columns; c += 2 * kDotLanes) {
      const __m512bh rounded = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(sums + c + kDotLanes), _mm512_loadu_ps(sums + c));
      _mm512_storeu_si512(to + c, (__m512i)rounded);
    }
}

}  // namespace vkconv::cpu
HWY_POP_ATTRIBUTES

namespace vkconv::cpu {

bool bf16_dot_available() { return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw"); }

void bf16_dot_tile(const Tile& tile, int rows, int vectors, bool accumulate) {
  using Rows = std::make_integer_sequence<int, kDotMaxRows>;
  static constexpr auto kStore1 = dot_table<1, false>(Rows()), kAdd1 = dot_table<1, true>(Rows());
  static constexpr auto kStore2 = dot_table<2, false>(Rows()), kAdd2 = dot_table<2, true>(Rows());
  const auto row = static_cast<std::size_t>(rows - 1);
  for_each_block(tile, vectors * kDotLanes, 2, [&](const Tile& block) {
    if (vectors == 1)
      (accumulate ? kAdd1 : kStore1)[row](block);
    else
      (accumulate ? kAdd2 : kStore2)[row](block);
    accumulate = true;
  });
}

}  // namespace vkconv::cpu

#else

namespace vkconv::cpu {

bool bf16_dot_available() { return false; }
// Never called: not available.
void bf16_dot_tile(const GemmTile<hwy::bfloat16_t, float>&, int, int, bool) {}
void round_to_bf16(const float*, std::int64_t, std::int64_t, std::int64_t, hwy::bfloat16_t*, std::int64_t) {}

}  // namespace vkconv::cpu

#endif
