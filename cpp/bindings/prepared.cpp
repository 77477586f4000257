#include "bindings/prepared.h"

#include <optional>

#include "bindings/without_gil.h"
#include "core/checked.h"

namespace vkconv::bindings {
namespace {

py::object on_host(py::handle value) {
  if (py::isinstance<DeviceArray>(value)) return value.cast<const DeviceArray&>().numpy();
  return py::reinterpret_borrow<py::object>(value);
}

}  // namespace

PreparedConvolution::PreparedConvolution(Object weight_argument, const GeometryArguments& geometry,
                                         Object output_padding, const EpilogueArguments& epilogue,
                                         const OptionArguments& options) {
  // The kept copy is made from host memory.
  const py::object host_weight = on_host(weight_argument), host_bias = on_host(epilogue.bias);
  Array weight = read_weight(host_weight, 3, kMaxDimensions);
  spec_.geometry = parse_geometry(weight.ndim - 2, geometry, output_padding ? "dilation" : "kernel_dilation");
  if (output_padding) transpose_geometry(spec_.geometry, weight, geometry.padding, output_padding);
  set_weight(spec_, weight);
  require_divided(weight.shape[0], spec_.geometry.groups, "output channels of weight");
  parse_activation(epilogue.activation, spec_.epilogue);
  spec_.epilogue.bias = !host_bias.is_none();
  std::optional<Array> bias;
  if (spec_.epilogue.bias) bias = read_bias(host_bias, weight.dtype, weight.shape[0]);
  spec_.options = parse_options(options);
  numpy_dtype_ = weight.native_dtype();

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
  p.epilogue.bias = spec_.epilogue.bias;
  if (bias) operands.bias = bias->data;
  canonicalize(p, operands);
  spec_.geometry.flip = false;  // the kept copy is mirrored already
  const WithoutGil release;
  weights_ = spec_.options.device.backend->prepare(p, operands);
}

py::object PreparedConvolution::call(Object input_argument, Object out, Object addend_argument) const {
  Array input = read_input(input_argument, spec_.geometry.rank);
  if (input.dtype != spec_.dtype)
    throw py::type_error("input has dtype " + dtype_text(input.numpy_dtype) + ", the prepared weight has " +
                         dtype_text(numpy_dtype_) + ": they must agree");
  if (input.on_device() && input.home.name != spec_.options.device.name)
    throw py::value_error("input is a vkconv.Array on " + input.home.name + ", the prepared weight is on " +
                          spec_.options.device.name);
  std::optional<Array> addend;
  if (!addend_argument.is_none()) {
    addend = read_addend(addend_argument, spec_.dtype, input.ndim);
    require_beside(*addend, "addend", input, "input");
  }
  return forward(spec_, input, weights(), out, addend ? &*addend : nullptr);
}

std::string PreparedConvolution::repr() const {
  std::string text =
      "<vkconv.PreparedConv " + dtype_text(numpy_dtype_) + " weight (" + std::to_string(spec_.out_channels);
  for (int a = 3 - spec_.geometry.rank; a < 3; ++a) text += ", " + std::to_string(spec_.kernel[a]);
  return text + ", " + std::to_string(spec_.in_channels_per_group) + ") on " + spec_.options.device.name + ">";
}

}  // namespace vkconv::bindings
