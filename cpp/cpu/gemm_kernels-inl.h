// The micro-kernels of one type as a table. Included once per instruction set, by a file for each type: their
// compilation takes gigabytes.
#if defined(VKCONV_CPU_GEMM_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VKCONV_CPU_GEMM_KERNELS_INL_H_
#undef VKCONV_CPU_GEMM_KERNELS_INL_H_
#else
#define VKCONV_CPU_GEMM_KERNELS_INL_H_
#endif

#include <limits>
#include <type_traits>
#include <utility>

#include "cpu/gemm-inl.h"
#include "cpu/gemm_kernels.h"
#include "cpu/processor.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::HWY_NAMESPACE {

// Of 1, 2, ... rows.
template <class T, int kVectors, int kChains, bool kSpread, int... i>
typename GemmKernels<T>::Rows micro_kernels(std::integer_sequence<int, i...>) {
  return {micro_kernel<T, i + 1, kVectors, kChains, kSpread>...};
}
template <class T, int kVectors, int kMost, int kChains = 1, bool kSpread = false>
typename GemmKernels<T>::Rows micro_kernels() {
  return micro_kernels<T, kVectors, kChains, kSpread>(std::make_integer_sequence<int, kMost>());
}

// Zen 4 takes a vector of 64 bytes into its queue of stores as two, and a whole tile of them fills it: the products of
// the next chain wait. Twins store half as many: 1.03 to 1.08 times as fast there, 1.02 on Zen 5, where products with
// panels out of L3 are up to 1.17 times as slow. Other processors load more for them than they gain. Double's gain 2 %,
// which is not worth their compilation.
//
// A vector that is loaded for a single product is an instruction more, with which a core of Zen 4 makes 88 GFLOP/s, 118
// without: products of one vector spread the values that they read. On Intel's processors that takes 1.04 times as
// long.
template <class T>
typename GemmKernels<T>::Rows one_vector_kernels() {
  if constexpr (kSpreadsValues)
    if (zen4()) return micro_kernels<T, 1, kMaxOneRows, 1, true>();
  return micro_kernels<T, 1, kMaxOneRows>();
}

template <class T>
const GemmKernels<T>& kernels() {
  constexpr int kTwinRows = std::is_same_v<T, float> ? kMaxTwinRows : 0;
  constexpr std::int64_t kOutOfL3 = 13 << 20, kAny = std::numeric_limits<std::int64_t>::max();
  static const GemmKernels<T> made{
      .shape = {panel_columns<T>() / 2,
                {kMaxOneRows, kMaxRows, kMaxThreeRows, kMaxWideRows},
                zen4() || zen5() ? kTwinRows : 0},
      .kernels = {one_vector_kernels<T>(), micro_kernels<T, 2, kMaxRows>(), micro_kernels<T, 3, kMaxThreeRows>(),
                  micro_kernels<T, 4, kMaxWideRows>()},
      .twins = micro_kernels<T, 2, kTwinRows, 2>(),
      .twin_bytes = zen5() ? kOutOfL3 : kAny};
  return made;
}

}  // namespace vkconv::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
