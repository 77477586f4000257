// The micro-kernel of gemm-inl.h on AVX-512's bf16 dot product, which multiplies twice as many values a cycle as fp32
// FMA. Sums are fp32, two terms an instruction, each addition rounded; products are exact. Operands and sums below
// 2^-126 count as zero, so Precision::highest does not use it.
//
// A panel holds pairs of terms: [k / 2][columns][2]. Slices have an even number of terms.
#pragma once
#include <cmath>

#include "cpu/gemm_kernels.h"
#include "hwy/base.h"

namespace vkconv::cpu {

inline constexpr RegisterTile kDotTile{16, {14, 14, 0, 0}};

bool bf16_dot_available();
const GemmKernels<hwy::bfloat16_t, float>& bf16_dot_kernels();

// Terms a block for a sum of `terms`: as long as lets the errors of all its chains add up to that of one chain of
// kBlockTerms, sqrt(terms * kBlockTerms), in multiples of that. Twice as fast as FMA, the products between two blocks
// should be twice as many.
inline std::int64_t dot_block_terms(std::int64_t terms) {
  const double blocks = std::sqrt(static_cast<double>(terms) / static_cast<double>(kBlockTerms));
  return kBlockTerms * std::max<std::int64_t>(1, static_cast<std::int64_t>(blocks));
}

}  // namespace vkconv::cpu
