#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/transpose_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "cpu/pack-inl.h"
#include "cpu/transpose.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::HWY_NAMESPACE {

template <class T>
void transpose(const std::byte* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns, std::byte* to,
               std::int64_t to_stride) {
  pack_run(reinterpret_cast<const T*>(from), from_stride, 1, columns, rows, reinterpret_cast<T*>(to), to_stride);
}

Transpose transpose_for(std::size_t element_bytes) { return element_bytes == 8 ? transpose<double> : transpose<float>; }

}  // namespace vkconv::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace vkconv::cpu {
HWY_EXPORT(transpose_for);
Transpose transpose_of(std::size_t element_bytes) { return HWY_DYNAMIC_DISPATCH(transpose_for)(element_bytes); }
}  // namespace vkconv::cpu
#endif
