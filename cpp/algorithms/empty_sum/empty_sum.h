// What the plan (empty_sum_cpu.cpp) hands to the code compiled once per instruction set.
#pragma once
#include "core/algorithm.h"
#include "cpu/device.h"

namespace vkconv::cpu::empty_sum {

// Stores the epilogues of zeros.
void run(const ConvProblem& p, const Operands<Device>& operands);

}  // namespace vkconv::cpu::empty_sum
