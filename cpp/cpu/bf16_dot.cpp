// Raw intrinsics, because Highway has no vdpbf16ps; chosen at run time.
#include "cpu/bf16_dot.h"

#include <cstring>
#include <utility>

#if defined(__x86_64__)
#include "cpu/bf16_finish-inl.h"

HWY_PUSH_ATTRIBUTES(VKCONV_BF16_ATTRIBUTES)
namespace vkconv::cpu {
namespace {

using Kernels = GemmKernels<hwy::bfloat16_t, float>;
using Tile = Kernels::Tile;
using Terms = Kernels::Terms;
using Part = Kernels::Part;
constexpr int kPrefetchPairs = 12, kLanes = kDotTile.lanes;

template <int kRows, int kVectors>
inline __attribute__((always_inline)) void multiply(const Tile& t, const Terms& terms, const Part& part,
                                                    std::int64_t tile, std::int64_t panel) {
  __m512 sum[kRows][kVectors];
  unroll_pairs<kRows>([&](auto r) __attribute__((always_inline)) {
    unroll_pairs<kVectors>([&](auto v) __attribute__((always_inline)) { sum[r][v] = _mm512_setzero_ps(); });
  });
  const std::int64_t first = part.first_row + tile * kRows;
  for (std::int64_t s = 0; s < terms.slice_count; ++s) {
    const hwy::bfloat16_t *a = terms.slices[s].a + first * t.lda, *b = terms.slices[s].b + panel * t.panel_stride;
    const hwy::bfloat16_t *a3 = a + 3 * t.lda, *a6 = a + 6 * t.lda, *a9 = a + 9 * t.lda, *a12 = a + 12 * t.lda;
    for (std::int64_t k = 0; k < terms.kc; k += 2, b += 2 * kVectors * kLanes) {
      __m512i column[kVectors];
      unroll_pairs<kVectors>([&](auto v) __attribute__((always_inline)) {
        column[v] = _mm512_loadu_si512(b + 2 * v * kLanes);
        _mm_prefetch(reinterpret_cast<const char*>(b + 2 * (kPrefetchPairs * kVectors + v) * kLanes), _MM_HINT_T0);
      });
      unroll_pairs<kRows>([&](auto r) __attribute__((always_inline)) {
        int pair;
        const hwy::bfloat16_t* row = r < 3 ? a : r < 6 ? a3 : r < 9 ? a6 : r < 12 ? a9 : a12;
        std::memcpy(&pair, row + r % 3 * t.lda + k, sizeof pair);
        const auto x = (__m512bh)_mm512_set1_epi32(pair);
        unroll_pairs<kVectors>([&](auto v) __attribute__((always_inline)) {
          sum[r][v] = _mm512_dpbf16_ps(sum[r][v], x, (__m512bh)column[v]);
        });
      });
    }
  }
  unroll_pairs<kRows>([&](auto r) __attribute__((always_inline)) {
    finish_row<kVectors>(t, part, first + r, panel * kVectors * kLanes, sum[r]);
  });
}

template <int kRows, int kVectors>
void dot_kernel(const Tile& t, const Terms* chains, const Part& part) {
  for (std::int64_t tile = 0; tile < part.tiles; ++tile) {
    fetch_rows<1>(t, chains, part, tile, kRows);
    for (std::int64_t panel = part.first_panel; panel < part.panels_end; ++panel)
      multiply<kRows, kVectors>(t, *chains, part, tile, panel);
  }
}

template <int kVectors, int... i>
Kernels::Rows dot_kernels(std::integer_sequence<int, i...>) {
  return {dot_kernel<i + 1, kVectors>...};
}

}  // namespace

}  // namespace vkconv::cpu
HWY_POP_ATTRIBUTES

namespace vkconv::cpu {

bool bf16_dot_available() { return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw"); }

const Kernels& bf16_dot_kernels() {
  const std::make_integer_sequence<int, kDotTile.most_rows(2)> rows;
  static const Kernels made{kDotTile, 2, {dot_kernels<1>(rows), dot_kernels<2>(rows)}};
  return made;
}

}  // namespace vkconv::cpu

#endif
