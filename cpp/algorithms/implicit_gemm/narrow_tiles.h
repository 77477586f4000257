// The tiles of the narrow kernel, compiled once for every instruction set (narrow_simd.cpp), behind function pointers
// of the one in use.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "cpu/cache_sets.h"
#include "hwy/base.h"

namespace vkconv::cpu {

inline constexpr std::int64_t kNarrowOutputs = 8;  // channels of a group, at most
inline constexpr std::int64_t kChainSteps = 64;

template <class T>
using SumOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Terms that lie side by side: those of pixel 0 of a tile, and the weights of channel 0.
template <class T>
struct TermRun {
  const T* x;
  const SumOf<T>* weights;
  std::int64_t terms;
};

// The runs of one sum, cut into chains of at most kChainSteps vectors each: chain i ends before run ends[i].
template <class T>
struct TermRuns {
  std::vector<TermRun<T>> runs;
  std::vector<std::size_t> ends;
  std::int64_t weight_stride = 0;  // elements between output channels
  std::int64_t output_stride = 0;  // elements between the inputs of neighbouring outputs along W
  std::vector<T> copied;           // input whose pixels do not lie side by side
};

// By the number of outputs less one: sums[pixel][output] of `pixels` pixels, or of one, that are `lda` elements apart,
// the first `offset` behind the runs' x. Up to 16 bytes behind the sums are written too.
template <class T>
struct NarrowTiles {
  using Tile = void (*)(const TermRuns<T>& terms, std::int64_t offset, std::int64_t lda, SumOf<T>* sums);
  std::array<std::int64_t, kNarrowOutputs> pixels;
  std::array<Tile, kNarrowOutputs> several, few, one;  // `few`: kCrowdedRows at most

  struct Several {
    Tile tile;
    std::int64_t pixels;
  };
  Several several_of(std::int64_t outputs, std::int64_t lda) const {
    const auto kind = static_cast<std::size_t>(outputs - 1);
    if (!crowd_sets(lda * static_cast<std::int64_t>(sizeof(T)))) return {several[kind], pixels[kind]};
    return {few[kind], std::min(pixels[kind], kCrowdedRows)};
  }
};

// float, double, hwy::float16_t and hwy::bfloat16_t.
template <class T>
const NarrowTiles<T>& narrow_tiles();

}  // namespace vkconv::cpu
