// Depthwise kernels that read halves, compiled once per instruction set and chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "algorithms/depthwise/depthwise_halves_simd.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h comes first.
#include "algorithms/depthwise/depthwise_rows-inl.h"
#include "cpu/half_vectors.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::depthwise::HWY_NAMESPACE {

void run_direct_halves(const Call& call, const Block& block) {
  call.p.dtype == DType::f16 ? run_direct_rows<hwy::float16_t>(call, block)
                             : run_direct_rows<hwy::bfloat16_t>(call, block);
}

}  // namespace vkconv::cpu::depthwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace vkconv::cpu::depthwise {
HWY_EXPORT(run_direct_halves);

void run_halves(const Call& call, const Block& block) {
  if (call.half_vectors) return HWY_DISPATCH_TABLE(run_direct_halves)[half_vector_index()](call, block);
  HWY_DYNAMIC_DISPATCH(run_direct_halves)(call, block);
}

}  // namespace vkconv::cpu::depthwise
#endif
