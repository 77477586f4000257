// What stands for the micro-kernels of bf16 pairs on processors other than x86, which have none.
#if !defined(__x86_64__)
#include "cpu/bf16_dot.h"
#include "cpu/bf16_rows.h"
#include "cpu/bf16_tiles.h"

namespace vkconv::cpu {

bool bf16_dot_available() { return false; }
bool bf16_tiles_available() { return false; }

// Never used: not available.
bool pair_rows(const std::uint16_t* const*, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::uint16_t*) {
  return false;
}
bool transpose_rows(const std::uint16_t* const*, std::int64_t, std::int64_t, std::int64_t, std::uint16_t*,
                    std::int64_t) {
  return false;
}
const GemmKernels<hwy::bfloat16_t, float>& bf16_dot_kernels() {
  static const GemmKernels<hwy::bfloat16_t, float> none{};
  return none;
}
const GemmKernels<hwy::bfloat16_t, float>& bf16_tile_kernels(int) { return bf16_dot_kernels(); }

}  // namespace vkconv::cpu

#endif
