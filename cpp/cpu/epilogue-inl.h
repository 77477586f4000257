// From a tile of sums to the output: addend, bias, activation, one rounding.
// Include once per instruction set (Highway's foreach_target).
#if defined(VKCONV_CPU_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VKCONV_CPU_EPILOGUE_INL_H_
#undef VKCONV_CPU_EPILOGUE_INL_H_
#else
#define VKCONV_CPU_EPILOGUE_INL_H_
#endif

#include <cstdint>

#include "core/algorithm.h"
#include "cpu/activation-inl.h"
#include "cpu/device.h"
#include "cpu/output_row.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Where a tile of rows by channels goes. Absent addend and bias are null.
template <class A, class Out>
struct TileStore {
  Out* out = nullptr;
  std::int64_t out_stride = 0;  // elements between rows
  const A* addend = nullptr;
  std::int64_t addend_stride = 0;
  const A* bias = nullptr;
};

// Whether the output is the sums, rounded.
constexpr bool only_rounds(const Epilogue& e) { return !e.bias && !e.addend && e.activation == Activation::identity; }

// The outputs of one row from column w on, from `channel` on.
template <class A, class Out>
HWY_INLINE TileStore<A, Out> tile_store(const ConvProblem& p, const Operands<Device>& a, const OutputRow& row,
                                        std::int64_t w, std::int64_t channel) {
  TileStore<A, Out> to;
  to.out = reinterpret_cast<Out*>(a.output.data) + row.offset(a.output, w, channel);
  to.out_stride = a.output.stride[3];
  if (p.epilogue.addend) to.addend = reinterpret_cast<const A*>(a.addend.data) + row.offset(a.addend, w, channel);
  to.addend_stride = a.addend.stride[3];
  if (p.epilogue.bias) to.bias = reinterpret_cast<const A*>(a.bias) + channel;
  return to;
}

template <class A, class Out>
HWY_INLINE void store_tile(const A* HWY_RESTRICT sums, std::int64_t row_stride, std::int64_t rows,
                           std::int64_t channels, const TileStore<A, Out>& to, const Epilogue& epilogue) {
  const hn::ScalableTag<A> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const bool plain = only_rounds(epilogue);
  for (std::int64_t r = 0; r < rows; ++r) {
    const A* row = sums + r * row_stride;
    Out* out = to.out + r * to.out_stride;
    std::int64_t o = 0;
    for (; plain && o + lanes <= channels; o += lanes) store(hn::LoadU(d, row + o), d, out + o);
    for (; o + lanes <= channels; o += lanes) {
      auto v = hn::LoadU(d, row + o);
      if (to.addend) v = hn::Add(v, hn::LoadU(d, to.addend + r * to.addend_stride + o));
      if (to.bias) v = hn::Add(v, hn::LoadU(d, to.bias + o));
      store(activate(d, v, epilogue), d, out + o);
    }
    if (o < channels) {
      const auto rest = static_cast<std::size_t>(channels - o);
      auto v = load_n(d, row + o, rest);
      if (to.addend) v = hn::Add(v, load_n(d, to.addend + r * to.addend_stride + o, rest));
      if (to.bias) v = hn::Add(v, load_n(d, to.bias + o, rest));
      store_n(activate(d, v, epilogue), d, out + o, rest);
    }
  }
}

}  // namespace vkconv::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
