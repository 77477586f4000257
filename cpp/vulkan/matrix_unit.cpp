#include "vulkan/matrix_unit.h"

#include <algorithm>
#include <string>

#include "core/checked.h"
#include "vulkan/kernel_params.h"
#include "vulkan/side_by_side.h"

namespace vkconv::vulkan {

std::optional<MatrixUnit> matrix_unit(const Traits& traits, DType operand) {
  const bool emulated = traits.type == DeviceType::software;
  std::optional<MatrixUnit> best;
  for (const CooperativeMatrix& s : traits.cooperative_matrices) {
    // An octet runs along k, four sums along n, and an emulated matrix has at most 256 elements.
    constexpr std::uint32_t most_extent = 256;
    const bool usable = std::max({s.m, s.n, s.k}) <= most_extent && s.operand == operand && s.sum == DType::f32 &&
                        s.k % kOctet == 0 && s.n % 4 == 0 && s.m * s.k <= 256 && s.k * s.n <= 256 && s.m * s.n <= 256;
    if (!usable || (best && best->shape.m * best->shape.n * best->shape.k >= s.m * s.n * s.k)) continue;
    best = MatrixUnit{s, emulated, emulated ? s.m : traits.limits.subgroup_size};
  }
  if (!best && emulated) best = MatrixUnit{{16, 16, 16, operand, DType::f32}, true, 16};
  return best;
}

std::int64_t most_tile_octets(const Traits& traits) {
  constexpr std::int64_t other_octets = 1;  // the largest magnitudes of fp32 stages
  return static_cast<std::int64_t>(traits.limits.shared_memory_bytes) / kOctetBytes - other_octets;
}

std::uint32_t load_unit(const View<Pointer>& v, std::int64_t channels, DType t) {
  const auto loads = [&](std::int64_t unit) {
    const std::int64_t bytes = std::min(unit * static_cast<std::int64_t>(size_bytes(t)), kOctetBytes);
    return channels % unit == 0 && aligned(v, unit, static_cast<std::size_t>(bytes));
  };
  std::uint32_t unit = kOctet;
  while (unit > 1 && !loads(unit)) unit = t == DType::f32 ? 1 : unit / 2;
  return unit;
}

Support matrix_support(const ConvProblem& p, const Traits& traits) {
  constexpr std::int64_t most_columns = std::int64_t{1} << 30;
  if (p.dtype == DType::f64) return Support::no("has no products of fp64");
  if (p.dtype == DType::f32 && p.precision == Precision::highest)
    return Support::no("precision 'highest' does not split fp32 into halves");
  if (p.input_dilated()) return Support::no("does not insert zeros into the input");
  if (Support s = kernel_support(p, traits); !s) return s;
  const DType operand = matrix_operand(p.dtype);
  const auto unit = matrix_unit(traits, operand);
  if (!unit) return Support::no("the device has no cooperative matrices of " + std::string(to_string(operand)));
  if (p.dtype == DType::f32 && !unit->emulated && !traits.features.subgroup_arithmetic)
    return Support::no("the device has no maximum over a subgroup");
  const Features& f = traits.features;
  if (!unit->emulated && !(f.memory_model && f.float16 && (operand != DType::bf16 || (f.bfloat16 && f.int16))))
    return Support::no("the device lacks what shaders with cooperative matrices use beside them");
  const ConvProblem q = rows_as_slices(p);
  const SideBySide layout = side_by_side(q);
  if (layout.slices >= most_columns || checked_mul(layout.columns(), q.stride[2]) >= most_columns)
    return Support::no("the images side by side exceed 2^30 columns");
  return Support::yes();
}

}  // namespace vkconv::vulkan
