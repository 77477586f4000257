#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/outer_product_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "cpu/gemm-inl.h"
#include "cpu/gemm_kernels.h"
#include "cpu/outer_product.h"
#include "cpu/processor.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::HWY_NAMESPACE {

// Whether OuterTile::ahead counts: tiles of few registers load too often for more of it.
inline constexpr bool kFetches = kManyRegisters;

template <class T, int kRows, int kVectors, bool kSpread>
HWY_NOINLINE void outer_tile(const OuterTile<T>& t) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  V sum[kRows][kVectors];
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
  }
  for (const OuterSlice<T>*s = t.slices, *end = s + t.slice_count; s != end; ++s) {
    const T* HWY_RESTRICT a = s->rows + t.row;
    const T* HWY_RESTRICT b[kVectors];
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) b[v] = s->vectors + t.offset[v];
    for (std::int64_t k = 0; k < t.count; ++k, a += t.row_step) {
      V column[kVectors];
      if (kFetches) hwy::Prefetch(a + t.ahead * t.row_step);
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) {
        column[v] = hn::LoadU(d, b[v]);
        if (kFetches) hwy::Prefetch(b[v] + t.ahead * t.vector_step);
        b[v] += t.vector_step;
      }
      HWY_UNROLL(16)
      for (int r = 0; r < kRows; ++r) add_row<kSpread>(a + r, column, sum[r]);
    }
  }
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      T* c = t.c + r * t.ldc + t.step[v];
      hn::StoreU(t.adds ? hn::Add(hn::LoadU(d, c), sum[r][v]) : sum[r][v], d, c);
    }
  }
}

// Of 1, 2, ... rows.
template <class T, int kVectors, bool kSpread = false, int... i>
typename OuterKernels<T>::Rows outer_tiles(std::integer_sequence<int, i...>) {
  return {outer_tile<T, i + 1, kVectors, kSpread>...};
}

// As of one_vector_kernels().
template <class T>
typename OuterKernels<T>::Rows one_vector_tiles() {
  constexpr auto kRows = std::make_integer_sequence<int, kMaxOneRows>();
  if constexpr (kSpreadsValues)
    if (zen4()) return outer_tiles<T, 1, true>(kRows);
  return outer_tiles<T, 1>(kRows);
}

template <class T>
const OuterKernels<T>& outer_kernels() {
  static const OuterKernels<T> made{
      gemm_kernels<T>().shape,
      {one_vector_tiles<T>(), outer_tiles<T, 2>(std::make_integer_sequence<int, kMaxRows>()),
       outer_tiles<T, 3>(std::make_integer_sequence<int, kMaxThreeRows>()),
       outer_tiles<T, 4>(std::make_integer_sequence<int, kMaxWideRows>())}};
  return made;
}

const OuterKernels<float>& FloatOuterKernels() { return outer_kernels<float>(); }
const OuterKernels<double>& DoubleOuterKernels() { return outer_kernels<double>(); }

}  // namespace vkconv::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace vkconv::cpu {

HWY_EXPORT(FloatOuterKernels);
HWY_EXPORT(DoubleOuterKernels);

template <>
const OuterKernels<float>& outer_kernels<float>() {
  return HWY_DYNAMIC_DISPATCH(FloatOuterKernels)();
}
template <>
const OuterKernels<double>& outer_kernels<double>() {
  return HWY_DYNAMIC_DISPATCH(DoubleOuterKernels)();
}

}  // namespace vkconv::cpu
#endif
