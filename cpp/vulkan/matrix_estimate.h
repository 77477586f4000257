// What the estimates of kernels on cooperative matrices have in common: the multiprocessors of an H200, cycle by cycle.
// Others are taken to be alike in all but their rate.
#pragma once
#include "core/checked.h"
#include "vulkan/kernel_params.h"
#include "vulkan/matrix_unit.h"

namespace vkconv::vulkan {

inline constexpr std::int64_t kSchedulers = 4;                              // which run a subgroup each
inline constexpr std::int64_t kRegisters = 64 << 10, kMostRegisters = 255;  // of a multiprocessor, an invocation

// Inputs along an axis behind so many neighbouring outputs and taps.
inline std::int64_t extent_of(std::int64_t outputs, std::int64_t taps, std::int64_t stride, std::int64_t dilation) {
  return checked_add(checked_add(checked_mul(outputs - 1, stride), checked_mul(taps - 1, dilation)), 1);
}

// Of the workgroups, `at_once` on each multiprocessor: whole rounds, and a last one. cycles(n) are those of n at once.
template <class F>
double cycles_of_rounds(std::int64_t workgroups, std::int64_t at_once, F cycles) {
  const std::int64_t a_round = at_once * kProcessors, last_round = workgroups % a_round;
  const double whole = double(workgroups / a_round) * cycles(at_once);
  return last_round == 0 ? whole : whole + cycles(ceil_div(last_round, kProcessors));
}

inline double seconds_of_cycles(double cycles, const MatrixUnit& unit, const Traits& traits) {
  constexpr double kClock = 1.7e9;               // of the H200
  constexpr double kEmulatedEfficiency = 0.002;  // of the fp32 rate, as one of halves
  const double rate =
      unit.emulated ? traits.rates.f32_flops_per_second * kEmulatedEfficiency : traits.rates.f16_flops_per_second;
  return cycles / kClock * kFittedFlopsPerSecond / rate;
}

}  // namespace vkconv::vulkan
