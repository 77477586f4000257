// Activations that only bound their argument: kernels apply them to sums that are still in registers.
#pragma once
#include <cstddef>
#include <limits>
#include <optional>

#include "core/problem.h"

namespace vkconv::cpu {

struct Bounds {
  double low, high;
};

inline std::optional<Bounds> bounds_of(const Epilogue& e) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  switch (e.activation) {
    case Activation::identity:
      return Bounds{-kInfinity, kInfinity};
    case Activation::relu:
      return Bounds{0, kInfinity};
    case Activation::relu6:
      return Bounds{0, 6};
    case Activation::clip:
      return Bounds{e.alpha, e.beta};
    default:
      return std::nullopt;
  }
}

// Whether the outputs are the sums, rounded.
constexpr bool only_rounds(const Epilogue& e) { return !e.bias && !e.addend && e.activation == Activation::identity; }

// Whether at most a bias and bounds come between the sums and the outputs.
inline bool only_bounds(const Epilogue& e) { return !e.addend && bounds_of(e); }

// A bias, null or of channel 0, and bounds for sums that are still in registers.
template <class T>
struct Bounding {
  bool needed = false;  // else the outputs are the sums
  const T* bias = nullptr;
  T low = 0, high = 0;
};

template <class T>
Bounding<T> bounding(const Epilogue& e, const std::byte* bias) {
  Bounding<T> b;
  b.needed = !only_rounds(e);
  if (e.bias) b.bias = reinterpret_cast<const T*>(bias);
  if (const auto bounds = bounds_of(e)) b.low = static_cast<T>(bounds->low), b.high = static_cast<T>(bounds->high);
  return b;
}

}  // namespace vkconv::cpu
