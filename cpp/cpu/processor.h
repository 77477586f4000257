// Which processor this is, as far as the committed rates (rates.h) tell processors apart.
#pragma once
#include <string_view>

#include "cpu/device.h"

namespace vkconv::cpu {

// CPUID's name of a vendor that rates were measured for; empty for any other.
std::string_view processor_vendor();

// Fills in the rates of the row nearest to a processor of the vendor with the traits' instruction set and threads.
void set_rates(Traits& traits, std::string_view vendor);

}  // namespace vkconv::cpu
