#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/gemm_kernels_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "cpu/gemm-inl.h"
#include "cpu/gemm_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::HWY_NAMESPACE {

template <class T>
const GemmKernels<T>& kernels() {
  static const GemmKernels<T> made = [] {
    GemmKernels<T> k;
    k.lanes = panel_columns<T>() / 2;
    k.max_rows = kMaxRows;
    k.max_wide_rows = kMaxWideRows;
    for (int rows = 1; rows <= kMaxRows; ++rows) {
      k.kernels[0][static_cast<std::size_t>(rows - 1)] = micro_kernel_for<T, 1>(rows);
      k.kernels[1][static_cast<std::size_t>(rows - 1)] = micro_kernel_for<T, 2>(rows);
    }
    if constexpr (kMaxWideRows > 0)
      for (int rows = 1; rows <= kMaxWideRows; ++rows)
        k.kernels[2][static_cast<std::size_t>(rows - 1)] = micro_kernel_for<T, 4>(rows);
    return k;
  }();
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
