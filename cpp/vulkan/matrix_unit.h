// Cooperative matrices of a device, and what the kernels that multiply them have in common.
#pragma once
#include <optional>

#include "core/algorithm.h"
#include "core/view.h"
#include "vulkan/device.h"
#include "vulkan/traits.h"

namespace vkconv::vulkan {

inline constexpr std::int64_t kOctet = 8, kOctetBytes = 16;  // halves that are loaded at once

// The matrices a device multiplies, or those the emulated kernels stand for.
struct MatrixUnit {
  CooperativeMatrix shape;
  bool emulated = false;
  std::uint32_t lanes = 32;  // invocations of a subgroup; a row of a matrix each when emulated
};

// Halves that stand for an operand: fp32 ones are split in two, see split.glsl.
constexpr std::uint32_t parts_of(DType t) { return t == DType::f32 ? 2 : 1; }
// The operands that matrices multiply for a problem's.
constexpr DType matrix_operand(DType t) { return t == DType::f32 ? DType::f16 : t; }

// The largest shape of 16-bit operands and fp32 sums that the kernels can use. A software device without any emulates
// one, so that the kernels are tested there.
std::optional<MatrixUnit> matrix_unit(const Traits& traits, DType operand);

// Octets of shared memory that stages can take on the device.
std::int64_t most_tile_octets(const Traits& traits);

// Channels that a load of operands takes at once: as many of 8, 4, 2 and 1 as are aligned and divide those of a
// group. Of fp32 8 or 1: between them a load saves nothing.
std::uint32_t load_unit(const View<Pointer>& v, std::int64_t channels, DType t);

// Yes when the kernels' operands, positions and matrices are there for the problem, whose pass they also have to know.
Support matrix_support(const ConvProblem& p, const Traits& traits);

}  // namespace vkconv::vulkan
