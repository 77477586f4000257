#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace vkconv {

enum class DType : std::uint8_t { f32, f16, bf16, f64 };

constexpr std::size_t size_bytes(DType t) { return t == DType::f64 ? 8 : t == DType::f32 ? 4 : 2; }

// Sums run in the accumulator type and are rounded to the output type once.
constexpr DType accumulator(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }
constexpr std::int64_t accumulator_bytes(DType t) { return static_cast<std::int64_t>(size_bytes(accumulator(t))); }

constexpr std::string_view to_string(DType t) {
  switch (t) {
    case DType::f32:
      return "f32";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::f64:
      return "f64";
  }
  return "?";
}

}  // namespace vkconv
