// From a DType value to a C++ type: with_type(p.dtype, [&](auto zero) { using T = decltype(zero); ... }).
#pragma once
#include <array>
#include <cstddef>
#include <cstring>

#include "core/dtype.h"
#include "core/half.h"

namespace vkconv {

template <class F>
decltype(auto) with_type(DType t, F&& f) {
  switch (t) {
    case DType::f16:
      return f(Half{});
    case DType::bf16:
      return f(BFloat16{});
    case DType::f64:
      return f(double{});
    case DType::f32:
      break;
  }
  return f(float{});
}

// A number as one element: the first size_bytes(t) bytes.
inline std::array<std::byte, sizeof(double)> encoded(double value, DType t) {
  std::array<std::byte, sizeof(double)> bytes{};
  with_type(t, [&](auto zero) {
    const auto element = from_double<decltype(zero)>(value);
    std::memcpy(bytes.data(), &element, sizeof element);
  });
  return bytes;
}

}  // namespace vkconv
