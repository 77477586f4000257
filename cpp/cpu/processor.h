// Which processor this is, for people and for the committed rates (rates.h).
#pragma once
#include <string>
#include <string_view>

#include "cpu/device.h"

namespace vkconv::cpu {

// As the kernel names it; empty where it does not.
std::string processor_name();

// CPUID's name of a vendor that rates were measured for; empty for any other.
std::string_view processor_vendor();

// Fills in the rates of the row nearest to a processor of the vendor with the traits' instruction set and threads.
void set_rates(Traits& traits, std::string_view vendor);

}  // namespace vkconv::cpu
