// What kernels have in common: the C++ twins of glsl/geometry.glsl, weight_strides.glsl and epilogue.glsl, filled from
// a problem.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/algorithm.h"
#include "vulkan/device.h"

namespace vkconv::vulkan {

using Int3 = std::array<std::int32_t, 3>;
using Strides4 = std::array<std::int64_t, 4>;  // N D H W, in elements

struct GeometryParams {
  std::int32_t batch, in_channels, out_channels, groups;
  Int3 input_extent, kernel, output_extent, stride, dilation, input_dilation, pad_lo;
};

// The strides of a WeightView, in elements.
struct WeightStrides {
  std::int64_t group = 0, out_channel = 0, in_channel = 0;
  Extent3 tap{};
};

struct EpilogueParams {
  Pointer bias, addend;
  Strides4 addend_stride;
  std::array<std::uint32_t, 2> alpha, beta;  // bits of a number of the accumulator type
};

// What the parameters of a kernel begin with that reads weights where they lie.
struct OperandParams {
  Pointer input, weight, output;
  Strides4 input_stride, output_stride;
  WeightStrides weight_stride;
  EpilogueParams epilogue;
};

// Multiprocessors that share the workgroups of a dispatch: an H200's, for which tiles are chosen.
inline constexpr std::int64_t kProcessors = 132;

// Whether so little work gets a small tile: a software device compiles a large one for seconds.
inline bool wants_small_tile(const ConvProblem& p, const Traits& traits) {
  constexpr double kSmallFlops = 5e7;
  return traits.type == DeviceType::software && p.flops() < kSmallFlops;
}

// Counts that kernel_support has found to fit.
inline std::uint32_t narrow(std::int64_t v) { return static_cast<std::uint32_t>(v); }

// Yes when kernels can run the problem: the device knows the dtype, and every count and position of the index map
// fits 32 bits. Array offsets are 64 bits wide and need no proof.
Support kernel_support(const ConvProblem& p, const Traits& traits);
// Whether a dispatch can have that many workgroups.
Support workgroup_support(std::int64_t workgroups);
// Whether 32 bits count the output pixels of all images, and the weights.
Support pixels_support(const ConvProblem& p);
Support weights_support(const ConvProblem& p);
// Whether a software device runs that many loop iterations of an invocation: kSoftwareLoopIterations.
Support loop_support(std::int64_t iterations);
// Those in which an invocation computes `outputs` once more by the definition, so many channels at a time, where zeros
// have made NaN of infinities: see direct_sum.glsl.
std::int64_t definition_iterations(const ConvProblem& p, std::int64_t outputs, std::int64_t channels = 1);

// The least power of two that is not below n; 1 for n below it.
std::int64_t power_of_two_above(std::int64_t n);

// Output channels of a tile, at most 64: as many as compute the fewest past the last, since narrower tiles read the
// other operand more often.
std::uint32_t tile_width(std::int64_t channels);

// Terms of a block of a long sum, whose own sum joins the total: about as many blocks as the cube root of twice the
// terms leave the least rounding error when both levels of the sum are counted.
double block_length(std::int64_t terms);

// Whether some tap of some output reads padding or an inserted zero.
bool has_padding(const ConvProblem& p);

GeometryParams geometry_params(const ConvProblem& p);
EpilogueParams epilogue_params(const ConvProblem& p, const Operands<Device>& a);
OperandParams operand_params(const ConvProblem& p, const Operands<Device>& a, const WeightView<Pointer>& weight);
// Specialization constants 0 to 4 of a forward kernel.
std::vector<std::uint32_t> epilogue_constants(const ConvProblem& p, const Operands<Device>& a);
// The same where stores of output channels start anew in each group, so that the last may straddle the next group's.
std::vector<std::uint32_t> group_epilogue_constants(const ConvProblem& p, const Operands<Device>& a);

Strides4 pixel_strides(const View<Pointer>& v);
WeightStrides weight_strides(const WeightView<Pointer>& v);
// Whether `v` begins at a multiple of `bytes`, and its pixels lie multiples of `elements` apart.
bool aligned(const View<Pointer>& v, std::int64_t elements, std::size_t bytes);
// Whether `unit` channels that start at a multiple of it are all there and aligned like a vector of so many.
bool aligned_to(std::int64_t unit, const View<Pointer>& v, std::int64_t channels, DType t);

// "implicit_gemm" and f16 give "implicit_gemm_f16".
std::string shader_name(std::string_view algorithm, DType t);
double flops_per_second(const Traits& traits, DType t);
// That of the H200 on which constants of estimates are fitted, without its matrices.
inline constexpr double kFittedFlopsPerSecond = 57e12;
// Seconds of so many dispatches that wait for each other. Of siblings, which run side by side, each one's part, and
// what a dispatch takes that waits for nothing.
inline double launch_seconds(const Context<Device>& c, double dispatches = 1) {
  constexpr double kBesideOthers = 0.15;  // of a launch
  const double part = c.siblings == 1 ? 1 : 1 / double(c.siblings) + kBesideOthers;
  return dispatches * c.traits.rates.launch_seconds * part;
}

}  // namespace vkconv::vulkan
