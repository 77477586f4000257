// int64 arithmetic that throws ProblemError instead of wrapping.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/error.h"

namespace vkconv {

[[noreturn]] inline void throw_size_overflow() {
  throw ProblemError("a size that follows from the shapes, stride, padding and dilation exceeds 64-bit integers");
}

inline std::int64_t checked_mul(std::int64_t a, std::int64_t b) {
  std::int64_t r;
  if (__builtin_mul_overflow(a, b, &r)) throw_size_overflow();
  return r;
}

inline std::int64_t checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t r;
  if (__builtin_add_overflow(a, b, &r)) throw_size_overflow();
  return r;
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {  // b > 0; rounds towards +infinity
  return a / b + (a % b > 0);
}

constexpr std::int64_t floor_div(std::int64_t a, std::int64_t b) {  // b > 0; rounds towards -infinity
  return a / b - (a % b < 0);
}

constexpr std::int64_t floor_mod(std::int64_t a, std::int64_t b) {  // b > 0; in [0, b)
  return a - floor_div(a, b) * b;
}

constexpr std::int64_t round_up(std::int64_t a, std::int64_t multiple) { return ceil_div(a, multiple) * multiple; }

// Rounded up, so that what follows in a workspace is aligned as the workspace is.
inline constexpr std::int64_t kWorkspaceAlignment = 256;
constexpr std::size_t aligned_bytes(std::int64_t bytes) {
  return static_cast<std::size_t>(round_up(bytes, kWorkspaceAlignment));
}

// The length of the parts when `a` is cut evenly into as few as are at most `most` long.
constexpr std::int64_t even_part(std::int64_t a, std::int64_t most) { return ceil_div(a, ceil_div(a, most)); }

}  // namespace vkconv
