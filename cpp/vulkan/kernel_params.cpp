#include "vulkan/kernel_params.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/checked.h"

namespace vkconv::vulkan {
namespace {

// Leaves room for tiles that reach past the last output.
constexpr std::int64_t kIndexLimit = std::int64_t{1} << 30, kCountLimit = std::int64_t{1} << 31;

Int3 narrow(const Extent3& e) {
  return {static_cast<std::int32_t>(e[0]), static_cast<std::int32_t>(e[1]), static_cast<std::int32_t>(e[2])};
}

bool axis_fits(const ConvProblem& p, int a) {
  const std::int64_t last_output = std::max<std::int64_t>(p.output[a] - 1, 0);
  const std::int64_t last_tap = std::max<std::int64_t>(p.kernel[a] - 1, 0);
  const std::int64_t reach = checked_add(checked_mul(last_output, p.stride[a]), checked_mul(last_tap, p.dilation[a]));
  return p.input[a] < kIndexLimit && checked_mul(p.input[a], p.input_dilation[a]) < kIndexLimit &&
         p.output[a] < kIndexLimit && reach < kIndexLimit && p.stride[a] < kIndexLimit && p.dilation[a] < kIndexLimit &&
         p.pad_lo[a] < kIndexLimit && p.pad_lo[a] > -kIndexLimit;
}

std::array<std::uint32_t, 2> real_bits(double v, DType t) {
  if (accumulator(t) == DType::f64) {
    const auto bits = std::bit_cast<std::uint64_t>(v);
    return {static_cast<std::uint32_t>(bits), static_cast<std::uint32_t>(bits >> 32)};
  }
  return {std::bit_cast<std::uint32_t>(static_cast<float>(v)), 0};
}

}  // namespace

Support kernel_support(const ConvProblem& p, const Traits& traits) {
  if (!supports_dtype(traits, p.dtype))
    return Support::no("the device has no arithmetic in " + std::string(to_string(p.dtype)));
  const bool fits = axis_fits(p, 0) && axis_fits(p, 1) && axis_fits(p, 2) && p.batch < kIndexLimit &&
                    p.in_channels < kIndexLimit && p.out_channels < kIndexLimit;
  if (!fits) return Support::no("an extent or position exceeds 2^30");
  // A loop of these kernels takes at least two terms a step.
  if (traits.type == DeviceType::software && p.pass != Pass::weight_grad)
    return loop_support(ceil_div(p.taps() * p.in_channels_per_group(), 2));
  return Support::yes();
}

Support workgroup_support(std::int64_t workgroups) {
  if (workgroups >= kCountLimit) return Support::no("the result needs over 2^31 workgroups");
  return Support::yes();
}

Support pixels_support(const ConvProblem& p) {
  if (p.batch * p.output_pixels() >= kCountLimit) return Support::no("there are over 2^31 output pixels");
  return Support::yes();
}

Support weights_support(const ConvProblem& p) {
  if (p.weight_elements() >= kCountLimit) return Support::no("the weights exceed 2^31 elements");
  return Support::yes();
}

Support loop_support(std::int64_t iterations) {
  if (iterations > kSoftwareLoopIterations)
    return Support::no("a sum has more terms than a software device's loops may take");
  return Support::yes();
}

std::int64_t definition_iterations(const ConvProblem& p, std::int64_t outputs, std::int64_t channels) {
  return checked_mul(checked_mul(outputs, p.taps()), ceil_div(p.in_channels_per_group(), channels) + 1);
}

std::int64_t power_of_two_above(std::int64_t n) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(n, 1))));
}

std::uint32_t tile_width(std::int64_t channels) {
  if (channels <= 32) return narrow(power_of_two_above(channels));
  return round_up(channels, 32) * 10 < round_up(channels, 64) * 9 ? 32 : 64;
}

double block_length(std::int64_t terms) {
  constexpr double kLeastTerms = 32;
  return std::max(double(terms) / std::cbrt(2.0 * double(terms)), kLeastTerms);
}

bool has_padding(const ConvProblem& p) {
  for (int a = 0; a < 3; ++a)
    if (p.pad_lo[a] > 0 || pad_hi(p, a) > 0 || p.input_dilation[a] > 1) return true;
  return false;
}

GeometryParams geometry_params(const ConvProblem& p) {
  return {static_cast<std::int32_t>(p.batch),
          static_cast<std::int32_t>(p.in_channels),
          static_cast<std::int32_t>(p.out_channels),
          static_cast<std::int32_t>(p.groups),
          narrow(p.input),
          narrow(p.kernel),
          narrow(p.output),
          narrow(p.stride),
          narrow(p.dilation),
          narrow(p.input_dilation),
          narrow(p.pad_lo)};
}

EpilogueParams epilogue_params(const ConvProblem& p, const Operands<Device>& a) {
  return {a.bias, a.addend.data, pixel_strides(a.addend), real_bits(p.epilogue.alpha, p.dtype),
          real_bits(p.epilogue.beta, p.dtype)};
}

OperandParams operand_params(const ConvProblem& p, const Operands<Device>& a, const WeightView<Pointer>& weight) {
  return {a.input.data,           weight.data,          a.output.data, pixel_strides(a.input), pixel_strides(a.output),
          weight_strides(weight), epilogue_params(p, a)};
}

std::vector<std::uint32_t> epilogue_constants(const ConvProblem& p, const Operands<Device>& a) {
  const DType sum = accumulator(p.dtype);
  const auto stores = [&](std::uint32_t unit) {
    return aligned_to(unit, a.output, p.out_channels, p.output_dtype) &&
           (!p.epilogue.addend || aligned_to(unit, a.addend, p.out_channels, sum)) &&
           (!p.epilogue.bias || a.bias % (unit * size_bytes(sum)) == 0);
  };
  return {p.epilogue.bias, p.epilogue.addend, static_cast<std::uint32_t>(p.epilogue.activation),
          p.output_dtype != p.dtype,
          stores(4)   ? 4u
          : stores(2) ? 2u
                      : 1u};
}

std::vector<std::uint32_t> group_epilogue_constants(const ConvProblem& p, const Operands<Device>& a) {
  std::vector<std::uint32_t> constants = epilogue_constants(p, a);
  while (p.out_channels_per_group() % constants.back() != 0) constants.back() /= 2;
  return constants;
}

Strides4 pixel_strides(const View<Pointer>& v) { return {v.stride[0], v.stride[1], v.stride[2], v.stride[3]}; }

WeightStrides weight_strides(const WeightView<Pointer>& v) { return {v.group, v.out, v.in, v.tap}; }

bool aligned(const View<Pointer>& v, std::int64_t elements, std::size_t bytes) {
  return v.data % bytes == 0 && std::ranges::all_of(pixel_strides(v), [&](auto s) { return s % elements == 0; });
}

bool aligned_to(std::int64_t unit, const View<Pointer>& v, std::int64_t channels, DType t) {
  return channels % unit == 0 && aligned(v, unit, static_cast<std::size_t>(unit) * size_bytes(t));
}

std::string shader_name(std::string_view algorithm, DType t) {
  return std::string(algorithm) + "_" + std::string(to_string(t));
}

double flops_per_second(const Traits& traits, DType t) {
  return t == DType::f64 ? traits.rates.f64_flops_per_second : traits.rates.f32_flops_per_second;
}

}  // namespace vkconv::vulkan
