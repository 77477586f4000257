#include "bindings/prepared.h"

#include "core/checked.h"

namespace vkconv::bindings {

PreparedConvolution::PreparedConvolution(Object weight_argument, const GeometryArguments& geometry,
                                         Object output_padding, const EpilogueArguments& epilogue,
                                         const OptionArguments& options) {
  Array weight = read_weight(weight_argument, 3, kMaxDimensions);
  spec_.geometry = parse_geometry(weight.ndim - 2, geometry, output_padding ? "dilation" : "kernel_dilation");
  if (output_padding) transpose_geometry(spec_.geometry, weight, geometry.padding, output_padding);
  set_weight(spec_, weight);
  if (weight.shape[0] % spec_.geometry.groups != 0)
    throw py::value_error("groups is " + std::to_string(spec_.geometry.groups) + ", which does not divide the " +
                          std::to_string(weight.shape[0]) + " output channels of weight");
  parse_activation(epilogue.activation, spec_.epilogue);
  if (!epilogue.bias.is_none()) {
    bias_ = read_bias(epilogue.bias, weight.dtype, weight.shape[0]);
    bias_->owner = bias_->owner.attr("copy")();
    bias_->data = static_cast<std::byte*>(bias_->owner.mutable_data());
  }
  spec_.options = parse_options(options);

  ConvProblem p;
  p.dtype = p.output_dtype = spec_.dtype;
  p.groups = spec_.geometry.groups;
  p.out_channels = spec_.out_channels;
  p.in_channels = checked_mul(spec_.in_channels_per_group, p.groups);
  p.kernel = spec_.kernel;
  p.flip = spec_.geometry.flip;
  validate(p);
  HostOperands operands;
  weight.settle();
  operands.weight = as_weight(weight, p.groups);
  canonicalize(p, operands);
  spec_.geometry.flip = false;  // the kept copy is mirrored already
  py::gil_scoped_release release;
  weights_ = spec_.options.device.backend->prepare(p, operands.weight);
}

py::object PreparedConvolution::call(Object input_argument, Object out, Object addend_argument) const {
  Array input = read_input(input_argument, spec_.geometry.rank);
  if (input.dtype != spec_.dtype)
    throw py::type_error("input has dtype " + py::str(input.owner.dtype()).cast<std::string>() +
                         ", the prepared weight has " + std::string(to_string(spec_.dtype)) + ": they must agree");
  std::optional<Array> addend;
  if (!addend_argument.is_none()) addend = read_addend(addend_argument, spec_.dtype, input.ndim);
  return forward(spec_, input, nullptr, bias_ ? &*bias_ : nullptr, out, weights_.get(), addend ? &*addend : nullptr);
}

std::string PreparedConvolution::repr() const {
  std::string text =
      "<vkconv.PreparedConv " + std::string(to_string(spec_.dtype)) + " weight (" + std::to_string(spec_.out_channels);
  for (int a = 3 - spec_.geometry.rank; a < 3; ++a) text += ", " + std::to_string(spec_.kernel[a]);
  return text + ", " + std::to_string(spec_.in_channels_per_group) + ") on " + spec_.options.device.name + ">";
}

}  // namespace vkconv::bindings
