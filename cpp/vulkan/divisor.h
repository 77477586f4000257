// The C++ twin of glsl/divisor.glsl.
#pragma once
#include <bit>
#include <cstdint>

namespace vkconv::vulkan {

struct Divisor {
  std::uint32_t value = 1, multiplier = 1u << 31, shift = 0;
};

// From 1 to 2^31. With 2^(l - 1) < value <= 2^l and multiplier = ceil(2^(31 + l) / value), which is below 2^32, the
// quotient of any n < 2^31 is floor(n * multiplier / 2^(31 + l)): the error n * value / 2^(31 + l) / value is below
// 1 / value (Granlund and Montgomery, "Division by invariant integers using multiplication", 1994).
constexpr Divisor divisor(std::uint32_t value) {
  const auto l = static_cast<std::uint32_t>(std::bit_width(value - 1));
  const std::uint64_t power = std::uint64_t{1} << (31 + l);
  return {value, static_cast<std::uint32_t>((power + value - 1) / value), l};
}

constexpr std::uint32_t divide(std::uint32_t number, const Divisor& by) {
  return static_cast<std::uint32_t>((std::uint64_t{number} << 1) * by.multiplier >> 32 >> by.shift);
}

}  // namespace vkconv::vulkan
