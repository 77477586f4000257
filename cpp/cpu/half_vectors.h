// AVX2's kernels on a processor with AVX-512, whose vectors are twice as wide: pixels of few channels fill these.
#pragma once
#include <cstddef>

#include "hwy/targets.h"

namespace vkconv::cpu {

inline constexpr int kHalfVectorBytes = 32;

// Whether dispatch may choose either. It asks the processor, which takes a virtual machine some microseconds.
inline bool has_half_vectors() {
  const auto targets = hwy::SupportedTargets() & HWY_TARGETS;
  return (targets & HWY_AVX3) != 0 && (targets & HWY_AVX2) != 0;
}

// Where Highway's tables have AVX2's kernels, if there are both.
inline std::size_t half_vector_index() {
  hwy::ChosenTarget chosen;
  chosen.Update(HWY_AVX2);
  return chosen.GetIndex();
}

}  // namespace vkconv::cpu
