// Which processor this is, for people and for the committed rates (rates.h).
#pragma once
#include <string>

#include "cpu/device.h"

namespace vkconv::cpu {

// As the kernel names it; empty where it does not.
std::string processor_name();

// What CPUID says: empty and 0 on other processors than x86.
struct Processor {
  std::string vendor;
  int family = 0;      // of AMD's, 25 is Zen 3 and 4, 26 is Zen 5; of Intel's, all are 6
  bool avx10 = false;  // Intel's have it from Granite Rapids on
};
Processor processor();

inline bool is_amd(int family) {
  const Processor p = processor();
  return p.vendor == "AuthenticAMD" && p.family == family;
}
// Whether vectors of 64 bytes, if there are any, are Zen 4's: Zen 3, of the same family, has none. Or Zen 5's.
inline bool zen4() { return is_amd(25); }
inline bool zen5() { return is_amd(26); }

// Fills in the rates of the row nearest to a processor with the traits' instruction set, dot product and threads.
void set_rates(Traits& traits, const Processor& processor);

}  // namespace vkconv::cpu
