// Arrays that outgrow the caches, and stores past these: lines are not read before they are written, and the next
// reader finds them in memory.
#pragma once
#include <cstdint>

#include "core/geometry.h"
#include "core/view.h"
#include "cpu/cache_sets.h"
#include "cpu/device.h"

namespace vkconv::cpu {

// Of all cores together.
inline double own_cache_bytes(const Traits& t) { return t.threads * static_cast<double>(t.l2_bytes); }

// Whether L3 is hardly faster than memory: it then keeps its rate only where long runs are read and written in order.
inline bool shared_cache_is_slow(const Traits& t) {
  constexpr double kFaster = 2;
  return t.shared_cache_bytes_per_second <= kFaster * t.memory_bytes_per_second;
}

// Whether a core waits for one line of a set of L1 before it gets the next, so that pixels that crowd a set are worth
// copying apart: a Zen 4 core, whose sets hold eight lines, takes 9 cycles for each. One of Emerald Rapids, whose sets
// hold twelve, does not wait, and the copies cost it up to as much as everything else; older ones of Intel with eight
// have its slow L3 in common.
inline bool waits_in_sets(const Traits& t) {
  constexpr std::size_t kSetLines = 8;
  return t.l1_bytes <= kSetLines * static_cast<std::size_t>(kSetsBytes) && !shared_cache_is_slow(t);
}

// Whether an output leaves the caches before its next reader comes, or lies in one that is as slow as memory. Past the
// caches, outputs of twice all L2 are read again at half the rate, those of six times at the same.
inline bool outgrows_caches(const Traits& t, const ConvProblem& p) {
  constexpr double kOwnCaches = 6;
  const double bytes = static_cast<double>(p.output_elements()) * static_cast<double>(size_bytes(p.output_dtype));
  return bytes > (shared_cache_is_slow(t) ? kOwnCaches * own_cache_bytes(t) : static_cast<double>(t.l3_bytes));
}

// Whether an input comes from memory: L3, which other cores use too, holds no more than a part of the arrays. What
// reads several rows of it side by side, which the hardware does not follow, then fetches them ahead.
inline bool comes_from_memory(const Traits& t, const ConvProblem& p) {
  constexpr double kPart = 0.3;
  return p.bytes_moved() > kPart * static_cast<double>(t.l3_bytes);
}

// Whether all vectors of these channels are whole and aligned in `y`.
inline bool whole_vectors(const View<std::byte*>& y, DType t, Range channels, std::int64_t vector_bytes) {
  const auto element = static_cast<std::int64_t>(size_bytes(t));
  std::int64_t bits = (channels.begin | channels.size()) * element;
  for (std::size_t axis = 0; axis < 4; ++axis) bits |= y.stride[axis] * element;
  return (bits | static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(y.data))) % vector_bytes == 0;
}

}  // namespace vkconv::cpu
