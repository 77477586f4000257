// What the plan (fft_depthwise_cpu.cpp) hands to the code compiled once per instruction set (fft_depthwise_simd.cpp).
//
// A line of the input, W long, is cut into blocks of `outputs` outputs. A block is a cyclic convolution of length
// `size`: its input positions are transformed, multiplied by the transform of the kernel and transformed back
// (overlap-save: the last reach - 1 results wrap around and are dropped). Two channels share a complex transform, one
// as its real part, the other as its imaginary part; vectors hold several such pairs.
#pragma once
#include <vector>

#include "core/algorithm.h"
#include "core/geometry.h"
#include "cpu/device.h"

namespace vkconv::cpu::fft_depthwise {

struct Transform {
  std::int64_t size = 2;  // a power of two
  std::int64_t outputs = 1, blocks = 1;
  std::vector<double> twiddles;
};

// For transforms of n = size, size / 4, ... down to 8 in turn: cos and sin of -2 pi j i / n for i = 1, 2, 3, j < n / 4.
std::vector<double> make_twiddles(std::int64_t size);

// Channels of a vector of pairs in the instruction set in use.
std::int64_t group_channels();

// Channels [channel, channel + group_channels()) of input and output lines (n, d, h), counted through.
struct Part {
  std::int64_t channel = 0;
  Range lines{};
};

struct Call {
  const ConvProblem& p;
  const Operands<Device>& operands;
  const Transform& transform;
};

// Scratch of run_part(): the transform of the kernel and that of a block.
std::size_t scratch_bytes(const Transform& transform);
void run_part(const Call& call, const Part& part, std::byte* scratch);

}  // namespace vkconv::cpu::fft_depthwise
