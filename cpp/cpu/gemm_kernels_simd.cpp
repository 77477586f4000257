#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/gemm_kernels_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "cpu/gemm-inl.h"
#include "cpu/gemm_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::HWY_NAMESPACE {

// Of 1, 2, ... rows.
template <class T, int kVectors, int... i>
typename GemmKernels<T>::Rows micro_kernels(std::integer_sequence<int, i...>) {
  return {micro_kernel<T, i + 1, kVectors>...};
}

template <class T>
const GemmKernels<T>& kernels() {
  static const GemmKernels<T> made{{panel_columns<T>() / 2, {kMaxOneRows, kMaxRows, kMaxThreeRows, kMaxWideRows}},
                                   1,
                                   {micro_kernels<T, 1>(std::make_integer_sequence<int, kMaxOneRows>()),
                                    micro_kernels<T, 2>(std::make_integer_sequence<int, kMaxRows>()),
                                    micro_kernels<T, 3>(std::make_integer_sequence<int, kMaxThreeRows>()),
                                    micro_kernels<T, 4>(std::make_integer_sequence<int, kMaxWideRows>())}};
  return made;
}

const GemmKernels<float>& FloatKernels() { return kernels<float>(); }
const GemmKernels<double>& DoubleKernels() { return kernels<double>(); }

}  // namespace vkconv::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace vkconv::cpu {

HWY_EXPORT(FloatKernels);
HWY_EXPORT(DoubleKernels);

template <>
const GemmKernels<float>& gemm_kernels<float>() {
  return HWY_DYNAMIC_DISPATCH(FloatKernels)();
}
template <>
const GemmKernels<double>& gemm_kernels<double>() {
  return HWY_DYNAMIC_DISPATCH(DoubleKernels)();
}

}  // namespace vkconv::cpu
#endif
