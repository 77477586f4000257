// Loads and stores shared by every SIMD kernel. A kernel computes in accumulator vectors (float, or
// double for f64) whatever the operands' type: values are widened when loaded and rounded once when stored.
// Included once per instruction set by Highway's foreach_target.
#if defined(VKCONV_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VKCONV_CPU_SIMD_INL_H_
#undef VKCONV_CPU_SIMD_INL_H_
#else
#define VKCONV_CPU_SIMD_INL_H_
#endif

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "core/problem.h"
#include "cpu/lines.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Whether tiles fill 32 vector registers, which AVX-512 and Arm have, or 16.
#ifdef VKCONV_FEW_ROWS  // an instrumented tile of 14 rows compiles for half an hour
inline constexpr bool kManyRegisters = false;
#else
inline constexpr bool kManyRegisters = (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3) || HWY_ARCH_ARM;
#endif

// The baseline of x86-64, for processors without AVX2: few of the forms that make other instruction sets' tiles faster,
// because each takes its time to compile.
inline constexpr bool kFewForms = HWY_TARGET == HWY_SSE4;

template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, double>, double, float>;
template <class T>
using AccumulatorTag = hn::ScalableTag<Accumulator<T>>;

// f(0), ..., f(n - 1) with constant arguments, for what needs constants. Arrays of vectors indexed by them live in
// registers, as they do in loops of constant length under HWY_UNROLL, which compile several times as fast.
template <class F, int... i>
HWY_INLINE void unroll(std::integer_sequence<int, i...>, [[maybe_unused]] F f) {
  (f(std::integral_constant<int, i>()), ...);
}
template <int n, class F>
HWY_INLINE void unroll(F f) {
  unroll(std::make_integer_sequence<int, n>(), f);
}

template <class T>
inline constexpr std::int64_t kLineValues = kLineBytes / sizeof(T);  // of a line of memory

// The same vector in a register. Of a vector that is loaded for several multiply-adds GCC makes a memory operand of
// each, and the processor's loads, one or two a cycle, become the bound. Without AVX-512 the registers are too few.
template <class V>
HWY_INLINE V held(V v) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  asm("" : "+v"(v.raw));
#endif
  return v;
}

// The same pointer, not seen to be multiples of a stride from another: the compiler would keep every multiple, most of
// them on the stack.
template <class T>
HWY_INLINE T* hidden(T* pointer) {
  asm("" : "+r"(pointer));
  return pointer;
}

// sum += x * b in the register of `sum`. Where most registers are full, GCC makes do with sums that move to that of x,
// and spills some or reads b from memory for every row: 1.1 times as long with 16 registers.
template <class V>
HWY_INLINE void add_product(V x, V b, V& sum) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && HWY_COMPILER_GCC
  if constexpr (sizeof(hn::TFromV<V>) == 4)
    asm("vfmadd231ps %2, %1, %0" : "+v"(sum.raw) : "v"(x.raw), "v"(b.raw));
  else
    asm("vfmadd231pd %2, %1, %0" : "+v"(sum.raw) : "v"(x.raw), "v"(b.raw));
#else
  sum = hn::MulAdd(x, b, sum);
#endif
}

// sum += *a * b, in one instruction that reads and spreads the value, where there is one.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3 && HWY_COMPILER_GCC
inline constexpr bool kSpreadsValues = true;
template <class V>
HWY_INLINE void add_value_product(const hn::TFromV<V>* a, V b, V& sum) {
  if constexpr (sizeof(hn::TFromV<V>) == 4)
    asm("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(sum.raw) : "v"(b.raw), "m"(*a));
  else
    asm("vfmadd231pd %2%{1to8%}, %1, %0" : "+v"(sum.raw) : "v"(b.raw), "m"(*a));
}
#else
inline constexpr bool kSpreadsValues = false;
#endif

// f(zero) with the SIMD type of a number that is summed in float.
template <class F>
HWY_INLINE void with_float_type(DType dtype, F f) {
  if (dtype == DType::f16) return f(hwy::float16_t{});
  if (dtype == DType::bf16) return f(hwy::bfloat16_t{});
  f(float{});
}
// f(zero) with the SIMD type of any.
template <class F>
HWY_INLINE void with_simd_type(DType dtype, F f) {
  if (dtype == DType::f64) return f(double{});
  with_float_type(dtype, f);
}
// f(operand, output) with those of a forward problem.
template <class F>
HWY_INLINE void with_types(const ConvProblem& p, F f) {
  with_simd_type(p.dtype, [&](auto in) {
    if (p.output_dtype == p.dtype) return f(in, in);
    f(in, Accumulator<decltype(in)>{});
  });
}

// ---- float16 where the processor does not convert it (before F16C, which comes with AVX2's processors): as IEEE 754
// has it, rounded to nearest even, with subnormals, infinities and NaN

#if HWY_TARGET == HWY_SSE4
template <class D>
HWY_INLINE hn::Vec<D> half_to_float(D d, hn::Vec<hn::Rebind<std::uint32_t, D>> half) {
  const hn::Rebind<std::uint32_t, D> u32;
  const hn::Rebind<std::int32_t, D> i32;
  const auto magnitude = hn::And(half, hn::Set(u32, 0x7fff));
  // The exponents' biases are 127 - 15 apart; the product also makes normal numbers of subnormal ones.
  const auto finite = hn::Mul(hn::BitCast(d, hn::ShiftLeft<13>(magnitude)), hn::Set(d, 0x1p112f));
  const auto beyond = hn::RebindMask(u32, hn::Gt(hn::BitCast(i32, magnitude), hn::Set(i32, 0x7bff)));
  const auto sign = hn::ShiftLeft<16>(hn::AndNot(hn::Set(u32, 0x7fff), half));
  const auto special = hn::IfThenElseZero(beyond, hn::Set(u32, 0x7f800000));
  return hn::BitCast(d, hn::Or(hn::Or(hn::BitCast(u32, finite), sign), special));
}

template <class D>
HWY_INLINE hn::Vec<hn::Rebind<std::uint32_t, D>> float_to_half(D d, hn::Vec<D> v) {
  const hn::Rebind<std::uint32_t, D> u32;
  const hn::Rebind<std::int32_t, D> i32;
  const auto is_above = [&](auto bits, std::int32_t bound) HWY_ATTR {
    return hn::RebindMask(u32, hn::Gt(hn::BitCast(i32, bits), hn::Set(i32, bound)));
  };
  const auto magnitude = hn::And(hn::BitCast(u32, v), hn::Set(u32, 0x7fffffff));
  // To even: the half of the last kept bit less one, and one more where that bit is set, carry just when rounding up.
  const auto even = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(u32, 1));
  const auto rebased = hn::Sub(magnitude, hn::Set(u32, 112u << 23));
  const auto normal = hn::ShiftRight<13>(hn::Add(hn::Add(rebased, even), hn::Set(u32, 0xfff)));
  // One unit of the last place of 0.5f is the smallest half: the sum rounds to a multiple of it.
  const auto sum = hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f));
  const auto subnormal = hn::Sub(hn::BitCast(u32, sum), hn::Set(u32, 0x3f000000));
  auto half = hn::IfThenElse(is_above(magnitude, 0x387fffff), normal, subnormal);      // from 2^-14 on
  half = hn::IfThenElse(is_above(magnitude, 0x477fffff), hn::Set(u32, 0x7c00), half);  // infinity from 2^16 on
  half = hn::IfThenElse(is_above(magnitude, 0x7f800000), hn::Set(u32, 0x7e00), half);  // NaN
  return hn::Or(half, hn::ShiftRight<16>(hn::AndNot(hn::Set(u32, 0x7fffffff), hn::BitCast(u32, v))));
}
#endif

// ---- 16-bit numbers as accumulators and back. `T` only says which they are; rounding is to nearest even.

template <class D>
using HalfTag = hn::Rebind<std::uint16_t, D>;

template <class T, class D>
HWY_INLINE hn::Vec<D> widen_half(D d, hn::Vec<HalfTag<D>> half) {
  const hn::Rebind<std::uint32_t, D> u32;
  if constexpr (std::is_same_v<T, hwy::bfloat16_t>) {
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(u32, half)));
  } else {
#if HWY_TARGET == HWY_SSE4
    return half_to_float(d, hn::PromoteTo(u32, half));
#else
    return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), half));
#endif
  }
}

template <class T, class D>
HWY_INLINE hn::Vec<HalfTag<D>> round_to_half([[maybe_unused]] D d, hn::Vec<D> v) {
  const HalfTag<D> u16;
  if constexpr (std::is_same_v<T, hwy::bfloat16_t>) {
    // bits + 0x7fff + (bit 16) carries into the upper half exactly when rounding to even goes up; NaN stays quiet NaN.
    const hn::Rebind<std::uint32_t, D> u32;
    const auto bits = hn::BitCast(u32, v);
    const auto even = hn::And(hn::ShiftRight<16>(bits), hn::Set(u32, 1));
    const auto rounded = hn::Add(bits, hn::Add(even, hn::Set(u32, 0x7fff)));
    const auto quiet = hn::Or(bits, hn::Set(u32, 0x400000));
    return hn::TruncateTo(u16, hn::ShiftRight<16>(hn::IfThenElse(hn::RebindMask(u32, hn::IsNaN(v)), quiet, rounded)));
  } else {
#if HWY_TARGET == HWY_SSE4
    return hn::TruncateTo(u16, float_to_half(d, v));
#else
    return hn::BitCast(u16, hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), v));
#endif
  }
}

// ---- loads: any operand type to the accumulator type

template <class D, class T>
HWY_INLINE hn::Vec<D> load(D d, const T* HWY_RESTRICT p) {
  if constexpr (sizeof(T) == 2)
    return widen_half<T>(d, hn::LoadU(HalfTag<D>(), reinterpret_cast<const std::uint16_t*>(p)));
  else
    return hn::LoadU(d, p);
}

// Whether masked loads and stores leave memory behind the mask alone, at every element size, and loads at 4 and 8
// bytes.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
inline constexpr bool kMaskedMemory = true;
#else
inline constexpr bool kMaskedMemory = false;
#endif
inline constexpr bool kMaskedLoads = kMaskedMemory || HWY_TARGET == HWY_AVX2;

// The first n elements, zeros behind them, in pieces of half of the lanes, a quarter, ...
template <class D>
HWY_INLINE hn::Vec<D> load_pieces(D d, const hn::TFromD<D>* HWY_RESTRICT p, std::size_t n) {
  if constexpr (hn::MaxLanes(d) == 1) {
    return n > 0 ? hn::LoadU(d, p) : hn::Zero(d);
  } else {
    const hn::Half<D> half;
    constexpr std::size_t kHalf = hn::MaxLanes(half);
    if (n < kHalf) return hn::ZeroExtendVector(d, load_pieces(half, p, n));
    return hn::Combine(d, load_pieces(half, p + kHalf, n - kHalf), hn::LoadU(half, p));
  }
}

// The first n <= Lanes(d) elements, zeros behind them; reads nothing past p + n.
template <class D, class T>
HWY_INLINE hn::Vec<D> load_n(D d, const T* HWY_RESTRICT p, std::size_t n) {
  if constexpr (sizeof(T) == 2) {
    const HalfTag<D> u16;
    const auto* bits = reinterpret_cast<const std::uint16_t*>(p);
    if constexpr (kMaskedMemory)
      return widen_half<T>(d, hn::MaskedLoad(hn::FirstN(u16, n), u16, bits));
    else
      return widen_half<T>(d, load_pieces(u16, bits, n));
  } else if constexpr (kMaskedLoads) {
    return hn::MaskedLoad(hn::FirstN(d, n), d, p);
  } else {
    return load_pieces(d, p, n);
  }
}

// ---- stores: round the accumulator to the output type

template <class D, class T>
HWY_INLINE void store(hn::Vec<D> v, D d, T* HWY_RESTRICT p) {
  if constexpr (sizeof(T) == 2)
    hn::StoreU(round_to_half<T>(d, v), HalfTag<D>(), reinterpret_cast<std::uint16_t*>(p));
  else
    hn::StoreU(v, d, p);
}

// The first n elements, in the same pieces.
template <class D>
HWY_INLINE void store_pieces(D d, hn::Vec<D> v, hn::TFromD<D>* HWY_RESTRICT p, std::size_t n) {
  if constexpr (hn::MaxLanes(d) == 1) {
    if (n > 0) hn::StoreU(v, d, p);
  } else {
    const hn::Half<D> half;
    constexpr std::size_t kHalf = hn::MaxLanes(half);
    if (n < kHalf) return store_pieces(half, hn::LowerHalf(half, v), p, n);
    hn::StoreU(hn::LowerHalf(half, v), half, p);
    store_pieces(half, hn::UpperHalf(half, v), p + kHalf, n - kHalf);
  }
}

// The first n <= Lanes(d) elements; writes nothing past p + n.
template <class D, class T>
HWY_INLINE void store_n(hn::Vec<D> v, D d, T* HWY_RESTRICT p, std::size_t n) {
  if constexpr (sizeof(T) == 2) {
    const HalfTag<D> u16;
    auto* bits = reinterpret_cast<std::uint16_t*>(p);
    if constexpr (kMaskedMemory)
      hn::BlendedStore(round_to_half<T>(d, v), hn::FirstN(u16, n), u16, bits);
    else
      store_pieces(u16, round_to_half<T>(d, v), bits, n);
  } else if constexpr (kMaskedMemory) {
    hn::BlendedStore(v, hn::FirstN(d, n), d, p);
  } else {
    store_pieces(d, v, p, n);
  }
}

// ---- widening: one element, and `count` of them side by side

template <class T>
HWY_INLINE Accumulator<T> widened(const T* p) {
  const hn::CappedTag<Accumulator<T>, 1> one;
  return hn::GetLane(load(one, p));
}

template <class T>
HWY_INLINE void widen_run(const T* HWY_RESTRICT from, std::int64_t count, Accumulator<T>* HWY_RESTRICT to) {
  const AccumulatorTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(load(d, from + i), d, to + i);
  const auto rest = static_cast<std::size_t>(count - i);
  if (rest > 0) store_n(load_n(d, from + i, rest), d, to + i, rest);
}

}  // namespace vkconv::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
