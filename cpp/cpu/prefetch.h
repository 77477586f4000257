// Lines of memory that are fetched before their use.
#pragma once

namespace vkconv::cpu {

inline constexpr int kIntoL1 = 3, kIntoL2 = 2;

// GCC takes a function that does nothing else for one without effects and leaves its calls out, but for the empty
// instruction.
template <int kLevel>
inline __attribute__((always_inline)) void fetch_line(const void* address) {
  constexpr int kRead = 0;
  __builtin_prefetch(address, kRead, kLevel);
  asm volatile("");
}

}  // namespace vkconv::cpu
