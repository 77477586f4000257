// The micro-kernels of gemm-inl.h, compiled once for every instruction set, behind function pointers of the one in use.
#pragma once
#include <array>

#include "cpu/gemm.h"

namespace vkconv::cpu {

template <class T>
struct GemmKernels {
  using Kernel = void (*)(const GemmTile<T>&, bool accumulate);
  static constexpr std::size_t kMostRows = 14;

  std::int64_t lanes = 1, max_rows = 1;
  std::array<std::array<Kernel, kMostRows>, 2> kernels{};  // [vectors - 1][rows - 1]

  // One chain of additions: C = or += the sums of 1 <= rows <= max_rows rows by `vectors` (1 or 2) vectors.
  void chain(const GemmTile<T>& tile, std::int64_t rows, int vectors, bool accumulate) const {
    kernels[static_cast<std::size_t>(vectors - 1)][static_cast<std::size_t>(rows - 1)](tile, accumulate);
  }
  // Any number of terms, in the chains of for_each_block().
  void tile(const GemmTile<T>& tile, std::int64_t rows, int vectors, bool accumulate) const {
    for_each_block(tile, vectors * lanes, 1, [&](const GemmTile<T>& block) {
      chain(block, rows, vectors, accumulate);
      accumulate = true;
    });
  }
};

// float and double.
template <class T>
const GemmKernels<T>& gemm_kernels();

}  // namespace vkconv::cpu
