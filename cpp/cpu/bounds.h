// Activations that only bound their argument: kernels apply them to sums that are still in registers.
#pragma once
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

}  // namespace vkconv::cpu
