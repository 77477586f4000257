// Activations of vectors and of rows of sums.
// Included once per instruction set by Highway's foreach_target.
#if defined(VKCONV_CPU_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VKCONV_CPU_ACTIVATION_INL_H_
#undef VKCONV_CPU_ACTIVATION_INL_H_
#else
#define VKCONV_CPU_ACTIVATION_INL_H_
#endif

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "cpu/bounds.h"
#include "cpu/simd-inl.h"
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// low <= x <= high, where a NaN stays one; x86 gives the second operand when one is a NaN.
template <class D>
HWY_INLINE hn::Vec<D> clamp_keep_nan(hn::Vec<D> x, hn::Vec<D> low, hn::Vec<D> high) {
#if HWY_ARCH_X86
  return hn::Min(high, hn::Max(low, x));
#else
  x = hn::IfThenElse(hn::Lt(x, low), low, x);
  return hn::IfThenElse(hn::Gt(x, high), high, x);
#endif
}

// x (1 + erf(x / sqrt 2)) / 2. Of float by the polynomial of least maximal error (Remez) in x^2, scaled to [-1, 1], for
// erf(x / sqrt 2) / (2 x): the error is below 1.5e-7 |x|. Of double a lane at a time.
template <class D>
HWY_INLINE hn::Vec<D> gelu(D d, hn::Vec<D> x) {
  if constexpr (std::is_same_v<hn::TFromD<D>, double>) {
    HWY_ALIGN double lanes[HWY_MAX_BYTES / sizeof(double)];
    hn::Store(x, d, lanes);
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) {
      const double bounded = std::max(lanes[i], -100.0);  // whose gelu is 0, as that of all below
      lanes[i] = bounded * 0.5 * (1 + std::erf(bounded * 0.70710678118654752));
    }
    return hn::Load(d, lanes);
  } else {
    constexpr float kReach = 5.375f;  // beyond it, gelu is x or 0
    constexpr float kCoefficients[] = {3.625187092e-04f, -9.558673482e-04f, 8.383905515e-04f, -1.167345792e-03f,
                                       3.522997489e-03f, -6.490563042e-03f, 9.445542470e-03f, -1.377478521e-02f,
                                       1.947236434e-02f, -2.564232424e-02f, 3.211439401e-02f, -3.930616006e-02f,
                                       4.869071394e-02f, -6.562239677e-02f, 1.315357685e-01f};
    const auto t = hn::MulAdd(hn::Mul(x, x), hn::Set(d, 2 / (kReach * kReach)), hn::Set(d, -1.0f));
    auto sum = hn::Zero(d);
    for (const float c : kCoefficients) sum = hn::MulAdd(sum, t, hn::Set(d, c));
    const auto inside = hn::Mul(x, hn::MulAdd(x, sum, hn::Set(d, 0.5f)));
    return hn::IfThenElse(hn::Gt(hn::Abs(x), hn::Set(d, kReach)), hn::Max(x, hn::Zero(d)), inside);
  }
}

// exp(x) of float for |x| <= 87: 2^n exp(r), where n is the integer next to x / ln 2. ln 2 is subtracted in two parts,
// the first of which has so few digits that n times it is exact. exp(r) = 1 + r + r^2 q(r), by the polynomial q of
// least maximal error (Remez) for |r| <= ln 2 / 2: 3.1e-9.
template <class D>
HWY_INLINE hn::Vec<D> bounded_exp(D d, hn::Vec<D> x) {
  constexpr float kCoefficients[] = {8.368851066e-03f, 4.166840108e-02f, 1.666651952e-01f, 4.999999337e-01f};
  const hn::RebindToSigned<D> integers;
  const auto n = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504f)));
  const auto near = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  const auto r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), near);
  auto q = hn::Set(d, 1.381432056e-03f);
  for (const float c : kCoefficients) q = hn::MulAdd(q, r, hn::Set(d, c));
  const auto y = hn::Add(hn::MulAdd(hn::Mul(r, r), q, r), hn::Set(d, 1.0f));
  return hn::BitCast(d, hn::Add(hn::BitCast(integers, y), hn::ShiftLeft<23>(hn::ConvertTo(integers, n))));
}

// Where exp(x) would be subnormal the result is 0: every product with a subnormal number takes Intel's processors 150
// cycles. Of double, Highway's exp never sees a positive argument: it is undefined far above zero, and may lose a NaN.
template <class D>
HWY_INLINE hn::Vec<D> sigmoid(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  const auto one = hn::Set(d, T{1}), least = hn::Set(d, static_cast<T>(sizeof(T) == 8 ? -708 : -87));
  hn::Vec<D> y;
  if constexpr (std::is_same_v<T, double>) {
    const auto z = hn::Exp(d, hn::Max(hn::Neg(hn::Abs(x)), least));
    y = hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), z, one), hn::Add(one, z));
  } else {
    y = hn::Div(one, hn::Add(one, bounded_exp(d, hn::Neg(clamp_keep_nan<D>(x, least, hn::Neg(least))))));
  }
  return hn::IfThenElse(hn::IsNaN(x), x, hn::IfThenZeroElse(hn::Lt(x, least), y));
}

// Sums of the vector at `channel`. Without a bias they are added to the zero that changes none.
template <int kCount, class T>
HWY_INLINE void bound(hn::Vec<hn::ScalableTag<T>> (&sum)[kCount], const Bounding<T>& b, std::int64_t channel) {
  const hn::ScalableTag<T> d;
  const auto bias = b.bias ? hn::LoadU(d, b.bias + channel) : hn::Set(d, static_cast<T>(-0.0));
  const auto low = hn::Set(d, b.low), high = hn::Set(d, b.high);
  HWY_UNROLL(32)
  for (int i = 0; i < kCount; ++i) sum[i] = clamp_keep_nan<decltype(d)>(hn::Add(sum[i], bias), low, high);
}

// Calls f once, with the activation as a function of a vector.
template <class D, class F>
HWY_INLINE void with_activation(D d, const Epilogue& e, F f) {
  using V = hn::Vec<D>;
  const auto set = [&](double c) HWY_ATTR { return hn::Set(d, static_cast<hn::TFromD<D>>(c)); };
  if (const auto bounds = bounds_of(e)) {
    const V low = set(bounds->low), high = set(bounds->high);
    return f([=](V x) HWY_ATTR { return clamp_keep_nan<D>(x, low, high); });
  }
  switch (e.activation) {
    case Activation::leaky_relu:
      return f([=, slope = set(e.alpha)](V x)
                   HWY_ATTR { return hn::IfThenElse(hn::Lt(x, set(0)), hn::Mul(x, slope), x); });
    case Activation::silu:
      return f([=](V x) HWY_ATTR { return hn::Mul(x, sigmoid(d, x)); });
    case Activation::gelu:
      return f([=](V x) HWY_ATTR { return gelu(d, x); });
    case Activation::sigmoid:
      return f([=](V x) HWY_ATTR { return sigmoid(d, x); });
    case Activation::tanh:
      return f([=](V x) HWY_ATTR { return hn::Tanh(d, x); });
    case Activation::hardswish:
      return f([=](V x) HWY_ATTR {
        return hn::Mul(x, hn::Mul(clamp_keep_nan<D>(hn::Add(x, set(3)), set(0), set(6)), set(1.0 / 6)));
      });
    default:
      return;
  }
}

// Of rows in place, `stride` elements apart.
template <class A>
HWY_NOINLINE void activate_rows(A* rows, std::int64_t stride, std::int64_t count, std::int64_t channels,
                                const Epilogue& e) {
  const hn::ScalableTag<A> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d)), whole = channels / lanes * lanes;
  const auto rest = static_cast<std::size_t>(channels - whole);
  with_activation(d, e, [&](auto activation) HWY_ATTR {
    for (std::int64_t r = 0; r < count; ++r) {
      A* const row = rows + r * stride;
      for (std::int64_t i = 0; i < whole; i += lanes) store(activation(load(d, row + i)), d, row + i);
      if (rest > 0) store_n(activation(load_n(d, row + whole, rest)), d, row + whole, rest);
    }
  });
}

}  // namespace vkconv::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
