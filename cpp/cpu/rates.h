// Measured by bench/calibrate.py, which writes this file. Flops are multiply-adds counted as two, of one core in a full
// register tile; bytes are read and written ones of a copy, where they are not said to be read only.
#pragma once
#include <string_view>

namespace vkconv::cpu {

struct CoreRates {
  std::string_view vendor;  // CPUID's, as the family
  int family;
  std::string_view isa;  // Highway's name
  bool avx10;
  double f32_flops_per_second, f64_flops_per_second;
  double bf16_flops_per_second, bf16_tile_flops_per_second;  // of the dot product, of matrix tiles; 0: there is none
  double f32_parts_flops_per_second;                         // of float32 as parts in tiles
};

inline constexpr CoreRates kCoreRates[] = {
    // AMD EPYC, 2026-11-21
    {"AuthenticAMD", 26, "AVX3", false, 2.53e11, 1.26e11, 4.72e11, 0, 0},
    // AMD EPYC, 2026-11-21
    {"AuthenticAMD", 26, "AVX2", false, 1.29e11, 6.44e10, 0, 0, 0},
    // AMD EPYC, 2026-11-21
    {"AuthenticAMD", 26, "SSE4", false, 4.69e10, 2.67e10, 0, 0, 0},
    // AMD EPYC, 2026-11-23
    {"AuthenticAMD", 25, "AVX3", false, 1.08e11, 5.27e10, 2.17e11, 0, 0},
    // AMD EPYC, 2026-11-23
    {"AuthenticAMD", 25, "AVX2", false, 9.41e10, 4.68e10, 0, 0, 0},
    // AMD EPYC, 2026-11-23
    {"AuthenticAMD", 25, "SSE4", false, 2.79e10, 1.45e10, 0, 0, 0},
    // Intel(R) Xeon(R) Processor, 2026-11-29
    {"GenuineIntel", 6, "AVX3", true, 1.88e11, 9.4e10, 1.16e11, 1.37e12, 2.84e11},
    // Intel(R) Xeon(R) Processor, 2026-11-22
    {"GenuineIntel", 6, "AVX3", false, 1.73e11, 8.66e10, 8.65e10, 1.05e12, 8.88e10},
    // Intel(R) Xeon(R) Processor @ 2.80GHz, 2026-11-23
    {"GenuineIntel", 6, "AVX3", false, 1.48e11, 7.72e10, 0, 0, 0},
    // Intel(R) Xeon(R) Processor, 2026-11-22
    {"GenuineIntel", 6, "AVX2", false, 8.3e10, 4.28e10, 0, 0, 0},
    // Intel(R) Xeon(R) Processor, 2026-11-22
    {"GenuineIntel", 6, "SSE4", false, 2.72e10, 1.69e10, 0, 0, 0},
};

struct HostRates {
  std::string_view vendor;
  int family;
  double cache_bytes_per_second, shared_cache_bytes_per_second;  // of one core, inside L2 and L3
  double shared_cache_read_bytes_per_second;                     // of each of two cores that read L3
  double memory_bytes_per_second, more_memory_bytes_per_second;  // of one core, and what a second one adds
  double memory_read_bytes_per_second;  // of two cores that read; Zen 4's is that of weights of winograd
  double launch_seconds;                // of one parallel section whose threads are awake
};

// The first row serves every vendor without its own.
inline constexpr HostRates kHostRates[] = {
    // AMD EPYC, 2026-11-21
    {"AuthenticAMD", 26, 2.58e11, 1.23e11, 4.92e10, 4.65e10, 4.25e9, 5.87e10, 5.94e-7},
    // AMD EPYC, 2026-11-23
    {"AuthenticAMD", 25, 1.14e11, 9.83e10, 1.01e11, 3.33e10, 4.21e9, 3e10, 7.57e-7},
    // Intel(R) Xeon(R) Processor, 2026-11-22
    {"GenuineIntel", 6, 8.32e10, 3.06e10, 2.92e10, 2.2e10, 2e10, 2.66e10, 1.21e-6},
};

}  // namespace vkconv::cpu
