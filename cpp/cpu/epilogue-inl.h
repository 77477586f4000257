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
#include "cpu/bounds.h"
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

// A tile vector by vector: value(row, o, read) is what goes to channel o of a row, where read(p) reads what there is of
// a vector.
template <class A, class Out, class F>
HWY_INLINE void store_vectors(std::int64_t rows, std::int64_t channels, const TileStore<A, Out>& to, F value) {
  const hn::ScalableTag<A> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d)), whole = channels / lanes * lanes;
  const auto rest = static_cast<std::size_t>(channels - whole);
  for (std::int64_t r = 0; r < rows; ++r) {
    Out* out = to.out + r * to.out_stride;
    for (std::int64_t o = 0; o < whole; o += lanes)
      store(value(r, o, [&](const A* p) HWY_ATTR { return hn::LoadU(d, p); }), d, out + o);
    if (rest > 0)
      store_n(value(r, whole, [&](const A* p) HWY_ATTR { return load_n(d, p, rest); }), d, out + whole, rest);
  }
}

template <class A, class Out>
HWY_NOINLINE void finish_tile(const A* HWY_RESTRICT sums, std::int64_t row_stride, std::int64_t rows,
                              std::int64_t channels, const TileStore<A, Out>& to, const Epilogue& epilogue) {
  with_activation(hn::ScalableTag<A>(), epilogue, [&](auto activation) HWY_ATTR {
    store_vectors(rows, channels, to, [&](std::int64_t r, std::int64_t o, auto read) HWY_ATTR {
      auto v = read(sums + r * row_stride + o);
      if (to.addend) v = hn::Add(v, read(to.addend + r * to.addend_stride + o));
      if (to.bias) v = hn::Add(v, read(to.bias + o));
      return activation(v);
    });
  });
}

template <class A, class Out>
HWY_INLINE void store_tile(const A* HWY_RESTRICT sums, std::int64_t row_stride, std::int64_t rows,
                           std::int64_t channels, const TileStore<A, Out>& to, const Epilogue& epilogue) {
  if (!only_rounds(epilogue)) return finish_tile(sums, row_stride, rows, channels, to, epilogue);
  store_vectors(rows, channels, to,
                [&](std::int64_t r, std::int64_t o, auto read) HWY_ATTR { return read(sums + r * row_stride + o); });
}

}  // namespace vkconv::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
