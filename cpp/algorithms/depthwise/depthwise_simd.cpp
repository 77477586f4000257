// Depthwise kernels, compiled once per instruction set and chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "algorithms/depthwise/depthwise_simd.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h comes first.
#include "algorithms/depthwise/depthwise_flat-inl.h"
#include "algorithms/depthwise/depthwise_rows-inl.h"
#include "cpu/half_vectors.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::depthwise::HWY_NAMESPACE {

template <class T>
void run_mode(const Call& call, const Block& block, std::byte* scratch) {
  if (call.mode == Mode::flat) return run_flat<T>(call, block, scratch);
  call.mode == Mode::direct ? run_direct_rows<T>(call, block) : run_staged_rows<T>(call, block, scratch);
}

void run(const Call& call, const Block& block, std::byte* scratch) {
  call.p.dtype == DType::f64 ? run_mode<double>(call, block, scratch) : run_mode<float>(call, block, scratch);
  if (call.stream) hwy::FlushStream();
}

}  // namespace vkconv::cpu::depthwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace vkconv::cpu::depthwise {
HWY_EXPORT(run);

void run_block(const Call& call, const Block& block, std::byte* scratch) {
  if (call.mode == Mode::direct && size_bytes(call.p.dtype) == 2) return run_halves(call, block);
  if (call.half_vectors) return HWY_DISPATCH_TABLE(run)[half_vector_index()](call, block, scratch);
  HWY_DYNAMIC_DISPATCH(run)(call, block, scratch);
}

}  // namespace vkconv::cpu::depthwise
#endif
