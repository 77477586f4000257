// The table of Winograd's kernels, once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "algorithms/winograd/winograd_simd.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h

#include "algorithms/winograd/winograd_kernels.h"
#include "algorithms/winograd/winograd_staging-inl.h"
#include "algorithms/winograd/winograd_transforms-inl.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::HWY_NAMESPACE {

template <int kShape>
constexpr winograd::TileKernels tile_kernels() {
  constexpr winograd::TileShape s = winograd::kTileShapes[kShape];
  using T = TileTransforms<s.md, s.mh, s.mw, s.rd, s.rh, s.rw>;
  return {T::input, T::input_pixels, T::template weight<false>, T::template weight<true>, T::output};
}

template <int... i>
winograd::Kernels winograd_table(std::integer_sequence<int, i...>) {
  return {static_cast<std::int64_t>(hn::Lanes(FloatTag())),
          {tile_kernels<i>()...},
          stage_pixels,
          finish_row,
          stage_weights,
          [](const float* from, std::int64_t stride, std::int64_t columns, std::int64_t rows, float* to,
             std::int64_t to_stride) { pack_run(from, stride, 1, columns, rows, to, to_stride); }};
}

const winograd::Kernels& winograd_kernels() {
  static const winograd::Kernels table = winograd_table(std::make_integer_sequence<int, winograd::kTileShapeCount>());
  return table;
}

}  // namespace vkconv::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace vkconv::cpu {
HWY_EXPORT(winograd_kernels);
const winograd::Kernels& winograd::kernels() { return HWY_DYNAMIC_DISPATCH(winograd_kernels)(); }
}  // namespace vkconv::cpu
#endif
