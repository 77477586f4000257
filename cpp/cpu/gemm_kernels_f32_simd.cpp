#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/gemm_kernels_f32_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "cpu/gemm_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::HWY_NAMESPACE {

const GemmKernels<float>& FloatKernels() { return kernels<float>(); }

}  // namespace vkconv::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace vkconv::cpu {

HWY_EXPORT(FloatKernels);

template <>
const GemmKernels<float>& gemm_kernels<float>() {
  return HWY_DYNAMIC_DISPATCH(FloatKernels)();
}

}  // namespace vkconv::cpu
#endif
