// Scalar conversions of the 16-bit types, rounding to nearest even. Kernels use vector forms; these serve scalar
// code and tests.
#pragma once
#include <bit>
#include <cstdint>

namespace vkconv {

struct Half {
  std::uint16_t bits = 0;
};
struct BFloat16 {
  std::uint16_t bits = 0;
};

constexpr float to_float(float v) { return v; }
constexpr double to_float(double v) { return v; }
constexpr float to_float(BFloat16 v) { return std::bit_cast<float>(std::uint32_t{v.bits} << 16); }
constexpr float to_float(Half h) {
  const std::uint32_t sign = std::uint32_t{h.bits & 0x8000u} << 16, magnitude = h.bits & 0x7fffu;
  if (magnitude >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  // Scaling by 2^112 moves the exponent and normalises subnormals exactly.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | sign);
}

namespace detail {
// v / 2^shift for shift >= 1, rounded to nearest even.
constexpr std::uint64_t shift_round_even(std::uint64_t v, int shift) {
  if (shift > 63) return 0;
  const std::uint64_t half = std::uint64_t{1} << (shift - 1), rest = v & (2 * half - 1), q = v >> shift;
  return q + (rest > half || (rest == half && (q & 1)));
}
}  // namespace detail

// From double, in one rounding.
constexpr std::uint16_t round_to_bits(double v, int exponent_bits, int mantissa_bits) {
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(v);
  const auto sign = static_cast<std::uint16_t>(bits >> 63 << 15);
  const std::uint64_t magnitude = bits & ~(std::uint64_t{1} << 63);
  const auto infinity = static_cast<std::uint16_t>(((1u << exponent_bits) - 1) << mantissa_bits);
  if (magnitude > std::uint64_t{0x7ff} << 52)
    return static_cast<std::uint16_t>(sign | infinity | 1u << (mantissa_bits - 1));
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(magnitude >> 52) - 1023 + bias;
  if (exponent >= (1 << exponent_bits) - 1) return sign | infinity;
  // A subnormal result keeps the leading one of the mantissa explicit; rounding may carry into the exponent.
  const std::uint64_t mantissa = (magnitude & ((std::uint64_t{1} << 52) - 1)) | std::uint64_t{1} << 52;
  const int shift = 52 - mantissa_bits + (exponent < 1 ? 1 - exponent : 0);
  const std::uint64_t rounded = detail::shift_round_even(mantissa, shift);
  const std::uint64_t base = exponent < 1 ? 0 : static_cast<std::uint64_t>(exponent - 1) << mantissa_bits;
  return static_cast<std::uint16_t>(sign | (base + rounded));
}

template <class T>
constexpr T from_double(double v) {
  return static_cast<T>(v);
}
template <>
constexpr Half from_double<Half>(double v) {
  return {round_to_bits(v, 5, 10)};
}
template <>
constexpr BFloat16 from_double<BFloat16>(double v) {
  return {round_to_bits(v, 8, 7)};
}

}  // namespace vkconv
