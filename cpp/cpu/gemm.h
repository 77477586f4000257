// Arguments of the register-tiled matrix product in gemm-inl.h.
#pragma once
#include <cstdint>

namespace vkconv::cpu {

// Longest chain of additions into one accumulator. Longer sums are sums of block sums: the rounding error of a chain
// of n positive terms is about 0.4 sqrt(n / 3) roundings of its result (standard deviation), so blocks keep it to a
// few. 64 costs 2 % of the rate.
inline constexpr std::int64_t kBlockTerms = 64;

// Terms a block for a sum of `terms`: beyond 64 blocks, adding the blocks up would cost more than longer ones.
constexpr std::int64_t block_terms(std::int64_t terms) {
  return kBlockTerms * ((terms + kBlockTerms * kBlockTerms - 1) / (kBlockTerms * kBlockTerms));
}

// Rows of A that are `lda` apart, times `kc` consecutive rows of a packed panel of B.
template <class T>
struct GemmSlice {
  const T* a;  // row 0
  const T* b;  // kc rows of `columns` values
};

// C[rows][columns] = or += sum over slices s and k < kc of s.a[row * lda + k] * s.b[k * columns + column].
template <class T>
struct GemmTile {
  const GemmSlice<T>* slices = nullptr;
  std::int64_t slice_count = 0;
  std::int64_t kc = 0;   // terms a slice
  std::int64_t lda = 0;  // elements between rows of A; any sign
  T* c = nullptr;
  std::int64_t ldc = 0;  // elements between rows of C
  std::int64_t block = kBlockTerms;  // longest chain of gemm_tile; block_terms() of the whole sum
};

}  // namespace vkconv::cpu
