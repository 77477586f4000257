#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/gemm_kernels_f64_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "cpu/gemm_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::HWY_NAMESPACE {

const GemmKernels<double>& DoubleKernels() { return kernels<double>(); }

}  // namespace vkconv::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace vkconv::cpu {

HWY_EXPORT(DoubleKernels);

template <>
const GemmKernels<double>& gemm_kernels<double>() {
  return HWY_DYNAMIC_DISPATCH(DoubleKernels)();
}

}  // namespace vkconv::cpu
#endif
