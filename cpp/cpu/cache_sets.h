// Rows of memory that fall into the same set of L1.
#pragma once
#include <cstdint>

namespace vkconv::cpu {

// Lines so many bytes apart, or a multiple, share a set of L1 with 64 sets, as all have; it holds eight of them or a
// few more. A tile that goes through more rows beside each other finds each line gone before it reads the next value of
// it, and what the hardware has fetched ahead as well.
inline constexpr std::int64_t kSetsBytes = 4096, kCrowdedRows = 7;

// Whether lines so far apart share one set, or so few `sets` of them.
constexpr bool crowd_sets(std::int64_t stride_bytes, std::int64_t sets = 1) {
  return stride_bytes != 0 && sets * stride_bytes % kSetsBytes == 0;
}

}  // namespace vkconv::cpu
