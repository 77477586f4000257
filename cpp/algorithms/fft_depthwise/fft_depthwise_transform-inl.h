// Complex transforms of vectors of doubles, in place: from natural to bit-reversed order and back, so that nothing is
// permuted. A pass of radix 4 is two of radix 2 in one; quarters follow one another to the end, so that all but the
// first passes of a long transform run in cache. Included once per instruction set.
#if defined(VKCONV_FFT_DEPTHWISE_TRANSFORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VKCONV_FFT_DEPTHWISE_TRANSFORM_INL_H_
#undef VKCONV_FFT_DEPTHWISE_TRANSFORM_INL_H_
#else
#define VKCONV_FFT_DEPTHWISE_TRANSFORM_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::fft_depthwise::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Doubles = hn::ScalableTag<double>;
using Vector = hn::Vec<Doubles>;

inline std::int64_t lanes() { return static_cast<std::int64_t>(hn::Lanes(Doubles())); }

// Element i of an array is a vector of real parts and one of imaginary parts.
struct Complex {
  Vector re, im;
};

HWY_INLINE Complex get(const double* x, std::int64_t i) {
  const Doubles d;
  return {hn::LoadU(d, x + 2 * i * lanes()), hn::LoadU(d, x + (2 * i + 1) * lanes())};
}
HWY_INLINE void set(double* x, std::int64_t i, const Complex& z) {
  const Doubles d;
  hn::StoreU(z.re, d, x + 2 * i * lanes());
  hn::StoreU(z.im, d, x + (2 * i + 1) * lanes());
}

HWY_INLINE Complex operator+(const Complex& a, const Complex& b) { return {hn::Add(a.re, b.re), hn::Add(a.im, b.im)}; }
HWY_INLINE Complex operator-(const Complex& a, const Complex& b) { return {hn::Sub(a.re, b.re), hn::Sub(a.im, b.im)}; }
HWY_INLINE Complex operator*(const Complex& a, const Complex& b) {
  return {hn::NegMulAdd(a.im, b.im, hn::Mul(a.re, b.re)), hn::MulAdd(a.im, b.re, hn::Mul(a.re, b.im))};
}
HWY_INLINE Complex conjugate_product(const Complex& a, const Complex& b) {  // a * conj(b)
  return {hn::MulAdd(a.im, b.im, hn::Mul(a.re, b.re)), hn::NegMulAdd(a.re, b.im, hn::Mul(a.im, b.re))};
}
HWY_INLINE Complex times_i(const Complex& a) { return {hn::Neg(a.im), a.re}; }

HWY_INLINE Complex twiddle(const double* w) {
  const Doubles d;
  return {hn::Set(d, w[0]), hn::Set(d, w[1])};
}

inline void forward_pass(double* x, std::int64_t quarter, const double* twiddles) {
  for (std::int64_t j = 0; j < quarter; ++j, twiddles += 6) {
    const Complex a0 = get(x, j), a1 = get(x, j + quarter), a2 = get(x, j + 2 * quarter), a3 = get(x, j + 3 * quarter);
    const Complex even = a0 + a2, odd = a1 + a3, p = a0 - a2, q = times_i(a1 - a3);
    set(x, j, even + odd);
    set(x, j + quarter, (even - odd) * twiddle(twiddles + 2));
    set(x, j + 2 * quarter, (p - q) * twiddle(twiddles));
    set(x, j + 3 * quarter, (p + q) * twiddle(twiddles + 4));
  }
}

inline void inverse_pass(double* x, std::int64_t quarter, const double* twiddles) {
  for (std::int64_t j = 0; j < quarter; ++j, twiddles += 6) {
    const Complex c0 = get(x, j), c1 = conjugate_product(get(x, j + quarter), twiddle(twiddles + 2));
    const Complex c2 = conjugate_product(get(x, j + 2 * quarter), twiddle(twiddles));
    const Complex c3 = conjugate_product(get(x, j + 3 * quarter), twiddle(twiddles + 4));
    const Complex even = c0 + c1, odd = c0 - c1, p = c2 + c3, q = times_i(c2 - c3);
    set(x, j, even + p);
    set(x, j + quarter, odd + q);
    set(x, j + 2 * quarter, even - p);
    set(x, j + 3 * quarter, odd - q);
  }
}

HWY_INLINE void forward_four(double* x) {
  const Complex a0 = get(x, 0), a1 = get(x, 1), a2 = get(x, 2), a3 = get(x, 3);
  const Complex even = a0 + a2, odd = a1 + a3, p = a0 - a2, q = times_i(a1 - a3);
  set(x, 0, even + odd);
  set(x, 1, even - odd);
  set(x, 2, p - q);
  set(x, 3, p + q);
}

HWY_INLINE void inverse_four(double* x) {
  const Complex c0 = get(x, 0), c1 = get(x, 1), c2 = get(x, 2), c3 = get(x, 3);
  const Complex even = c0 + c1, odd = c0 - c1, p = c2 + c3, q = times_i(c2 - c3);
  set(x, 0, even + p);
  set(x, 1, odd + q);
  set(x, 2, even - p);
  set(x, 3, odd - q);
}

HWY_INLINE void two(double* x) {
  const Complex a = get(x, 0), b = get(x, 1);
  set(x, 0, a + b);
  set(x, 1, a - b);
}

// size = 2, 4, 8, ...; twiddles from make_twiddles(size).
inline void forward(double* x, std::int64_t size, const double* twiddles) {
  if (size == 2) return two(x);
  if (size == 4) return forward_four(x);
  const std::int64_t quarter = size / 4;
  forward_pass(x, quarter, twiddles);
  for (int i = 0; i < 4; ++i) forward(x + 2 * i * quarter * lanes(), quarter, twiddles + 6 * quarter);
}

// size times the inverse.
inline void inverse(double* x, std::int64_t size, const double* twiddles) {
  if (size == 2) return two(x);
  if (size == 4) return inverse_four(x);
  const std::int64_t quarter = size / 4;
  for (int i = 0; i < 4; ++i) inverse(x + 2 * i * quarter * lanes(), quarter, twiddles + 6 * quarter);
  inverse_pass(x, quarter, twiddles);
}

// f(i, j) for the pairs of elements that hold the frequencies k and size - k in bit-reversed order, each once.
// Frequencies 0 and size / 2, their own partners, are elements 0 and 1.
template <class F>
HWY_INLINE void for_each_pair(std::int64_t size, F f) {
  for (std::int64_t first = 2; first < size; first *= 2)
    for (std::int64_t i = first, j = 2 * first - 1; i < j; ++i, --j) f(i, j);
}

}  // namespace vkconv::cpu::fft_depthwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
