// Measured by bench/calibrate.py, which writes this file. Flops are multiply-adds counted as two, of one core in a full
// register tile; bytes are read and written ones of a copy.
#pragma once
#include <string_view>

namespace vkconv::cpu {

struct CoreRates {
  std::string_view isa;  // Highway's name
  double f32_flops_per_second, f64_flops_per_second;
  double bf16_flops_per_second;  // of the dot product instruction; 0: there is none
};

// From the widest vectors to the narrowest; the last one serves the instruction sets that are not listed.
inline constexpr CoreRates kCoreRates[] = {
    // AMD EPYC, 2026-11-21
    {"AVX3", 2.53e11, 1.26e11, 4.72e11},
    // AMD EPYC, 2026-11-21
    {"AVX2", 1.29e11, 6.44e10, 0},
    // AMD EPYC, 2026-11-21
    {"SSE4", 4.69e10, 2.67e10, 0},
};

// AMD EPYC, 2026-11-21
inline constexpr struct {
  double cache_bytes_per_second, shared_cache_bytes_per_second;  // of one core, inside L2 and L3
  double memory_bytes_per_second, more_memory_bytes_per_second;  // of one core, and what every further core adds
  double launch_seconds;                                         // of one parallel section whose threads are awake
} kHostRates{2.58e11, 1.23e11, 4.65e10, 4.25e9, 5.94e-7};

}  // namespace vkconv::cpu
