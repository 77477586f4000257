// From a DType value to a C++ type: with_type(p.dtype, [&](auto zero) { using T = decltype(zero); ... }).
#pragma once
#include <utility>

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

}  // namespace vkconv
