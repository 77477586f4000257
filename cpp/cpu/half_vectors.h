// Kernels with vectors half as wide as the widest of a processor with AVX-512: pixels of few channels fill those.
#pragma once
#include <cstddef>

#include "hwy/targets.h"

namespace vkconv::cpu {

inline constexpr int kHalfVectorBytes = 32;

// Whether this processor runs both, as far as dispatch is not restricted.
inline bool has_half_vectors() {
  const auto targets = hwy::SupportedTargets() & HWY_TARGETS;
  return (targets & HWY_AVX3) != 0 && (targets & HWY_AVX2) != 0;
}

// Where Highway's tables of kernels have them.
inline std::size_t half_vector_index() {
  hwy::ChosenTarget chosen;
  chosen.Update(HWY_AVX2);
  return chosen.GetIndex();
}

}  // namespace vkconv::cpu
