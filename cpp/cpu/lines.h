// Lines of memory: how long they are, and fetches of them ahead of their use.
#pragma once
#include <cstdint>

namespace vkconv::cpu {

inline constexpr std::int64_t kLineBytes = 64;  // as cores pass memory to each other
inline constexpr int kIntoL1 = 3, kIntoL2 = 2;

// GCC takes a function that does nothing else for one without effects and leaves its calls out, but for the empty
// instruction.
template <int kLevel>
inline __attribute__((always_inline)) void fetch_line(const void* address) {
  constexpr int kRead = 0;
  __builtin_prefetch(address, kRead, kLevel);
  asm volatile("");
}

// The lines of `bytes` bytes, but for the last of them where the first does not begin a line.
template <int kLevel>
inline __attribute__((always_inline)) void fetch_run(const void* first, std::int64_t bytes) {
  for (std::int64_t byte = 0; byte < bytes; byte += kLineBytes)
    fetch_line<kLevel>(static_cast<const char*>(first) + byte);
}

}  // namespace vkconv::cpu
