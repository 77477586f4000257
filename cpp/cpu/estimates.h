// What the algorithms' estimates have in common.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/checked.h"
#include "cpu/device.h"
#include "cpu/gemm.h"

namespace vkconv::cpu {

// What packing or transforming the weights counts in an estimate. One plan serves prepared weights and those of a call,
// so that both have the same bits: it is the best for their mean.
inline constexpr double kWeightShare = 0.5;

// Multiply-adds of a vector, of all threads together.
inline double vector_products_per_second(const Traits& t, DType operand) {
  return flops_per_second(t, accumulator(operand)) / (2.0 * static_cast<double>(lanes_of(t, operand)));
}

// Loads, stores and permutations, in multiply-adds, over what they are on Zen 4, by which some estimates are fitted:
// cores that multiply more a cycle do not have more of those, as the rate of their L2 shows.
inline double other_operations(const Traits& t) {
  constexpr double kFlopsAByte = 1;  // of L2 on Zen 4 and Zen 5, 2 on Xeons with AVX-512
  return std::max(1.0, t.f32_flops_per_second / (kFlopsAByte * t.cache_bytes_per_second));
}

// Rate between two cores' caches, as a share of a core's own.
inline constexpr double kBetweenCoresShare = 0.1;

// The micro-kernel's tiles on a described processor.
inline RegisterTile register_tile(const Traits& t, DType operand) {
  const std::int64_t lanes = lanes_of(t, operand);
  if (t.vector_bytes >= 64) return {lanes, {14, 14, 9, 6}};
  return {lanes, {12, 6, t.vector_bytes >= 32 ? 4 : 0, 0}};
}

// A single task runs in the caller's thread.
inline double launch_seconds(const Traits& t, std::int64_t tasks) { return tasks > 1 ? t.launch_seconds : 0; }

// The time of equal tasks over what it would be were they shared evenly: few of them leave threads without work.
inline double uneven_share(const Traits& t, std::int64_t tasks) {
  return static_cast<double>(round_up(tasks, t.threads)) / static_cast<double>(std::max<std::int64_t>(tasks, 1));
}

// Tasks that compute for `compute_seconds`, all threads together, while they move `bytes`: neither hides behind the
// other wholly.
inline double section_seconds(const Traits& t, double compute_seconds, double bytes, std::int64_t tasks = 2) {
  return launch_seconds(t, tasks) + std::hypot(compute_seconds, bytes / t.memory_bytes_per_second);
}

// Products fetch their operands ahead of use: the shorter of the two hides behind the longer, but where they take about
// as long.
inline double partly_hidden(double compute_seconds, double read_seconds) {
  return std::cbrt(compute_seconds * compute_seconds * compute_seconds + read_seconds * read_seconds * read_seconds);
}

// Whether so many bytes of weights can be in the shared cache when a call begins.
inline bool fit_shared_cache(const Traits& t, double bytes) { return bytes <= 0.8 * static_cast<double>(t.l3_bytes); }

// Reading weights out of L3, or of memory, and writing them to panels, all threads together: to such as leave their own
// caches, or to scratch that stays there.
inline double packing_seconds(const Traits& t, std::int64_t weights, bool leaves) {
  const double outside = leaves ? 12 : 4, inside = leaves ? 8 : 12;  // bytes of each
  const double of_memory = leaves ? t.memory_bytes_per_second : t.memory_read_bytes_per_second;
  const auto count = static_cast<double>(weights);
  const double outer_rate = fit_shared_cache(t, sizeof(float) * count) ? t.shared_cache_bytes_per_second : of_memory;
  return (inside / t.cache_bytes_per_second + outside / outer_rate) * count;
}

// Reading the packed weights that other threads wrote, a float each.
inline double handing_over_seconds(const Traits& t, std::int64_t weights) {
  const double others = 1 - 1.0 / t.threads;
  return others * sizeof(float) * static_cast<double>(weights) / (kBetweenCoresShare * t.cache_bytes_per_second);
}

}  // namespace vkconv::cpu
