#include "bindings/operations.h"

#include <algorithm>
#include <optional>

#include "core/dispatch.h"

namespace vkconv::bindings {
namespace {

std::string number(std::int64_t n) { return std::to_string(n); }

void check_kernel(const Extent3& kernel, const std::string& name) {
  for (std::int64_t extent : kernel)
    if (extent < 1) throw py::value_error(name + " has a kernel extent of 0, wanted at least 1");
}

// The channel counts of input, weight and groups, as `p` holds them.
void check_channels(const ConvProblem& p, std::int64_t weight_channels) {
  require_divided(p.in_channels, p.groups, "channels of input");
  require_divided(p.out_channels, p.groups, "output channels of weight");
  if (weight_channels != p.in_channels_per_group())
    throw py::value_error("weight has " + counted(weight_channels, "input channel") + " per group, input has " +
                          number(p.in_channels) + " in " + counted(p.groups, "group") + ": channels are the last axis");
}

std::vector<std::int64_t> shape_of(int rank, std::int64_t outer, const Extent3& extents, std::int64_t channels) {
  std::vector<std::int64_t> shape{outer};
  shape.insert(shape.end(), extents.end() - rank, extents.end());
  shape.push_back(channels);
  return shape;
}

Extent3 extents_of(const std::vector<std::int64_t>& shape) {
  Extent3 extents{1, 1, 1};
  for (std::size_t i = 1; i + 1 < shape.size(); ++i) extents[4 + i - shape.size()] = shape[i];
  return extents;
}

void require_output_shape(const Array& a, const char* name, const ConvProblem& p) {
  const std::vector<std::int64_t> wanted = output_shape(a.ndim - 2, p);
  if (!std::equal(wanted.begin(), wanted.end(), a.shape.begin()))
    throw py::value_error(std::string(name) + " has shape " + shape_text(a.shape.data(), wanted.size()) + ", wanted " +
                          shape_text(wanted) + ", that of the convolution's output");
}

void set_dtype(ConvProblem& p, DType dtype) { p.dtype = p.output_dtype = dtype; }

// Completes the spec from the arguments that all forward operations share, and runs it.
py::object run_forward(ForwardSpec& spec, Array& input, Array& weight, const EpilogueArguments& epilogue,
                       const OptionArguments& options, Object out) {
  require_beside(weight, "weight", input, "input");
  parse_activation(epilogue.activation, spec.epilogue);
  std::optional<Array> bias;
  if (!epilogue.bias.is_none()) {
    bias = read_bias(epilogue.bias, weight.dtype, weight.shape[0]);
    require_beside(*bias, "bias", input, "input");
  }
  spec.epilogue.bias = bias.has_value();
  spec.options = parse_options(options, input, "input");
  return forward(spec, input, {&weight, bias ? &*bias : nullptr}, out);
}

}  // namespace

void require_divided(std::int64_t channels, std::int64_t groups, const char* what) {
  if (channels % groups != 0)
    throw py::value_error("groups is " + number(groups) + ", which does not divide the " + number(channels) + " " +
                          what);
}

Array read_input(Object value, int rank, const char* name) {
  return read_array(value, name, rank ? rank + 2 : 3, rank ? rank + 2 : kMaxDimensions, Layout::contiguous_channels);
}

Array read_weight(Object value, int least, int most) { return read_array(value, "weight", least, most, Layout::any); }

void require_same_dtype(const Array& a, const char* a_name, const Array& b, const char* b_name) {
  if (a.dtype == b.dtype) return;
  throw py::type_error(std::string(a_name) + " has dtype " + dtype_text(a.numpy_dtype) + ", " + b_name + " has " +
                       dtype_text(b.numpy_dtype) + ": they must agree");
}

Geometry parse_geometry(int rank, const GeometryArguments& arguments, const char* dilation_name) {
  Geometry g;
  g.rank = rank;
  g.stride = parse_extents(arguments.stride, "stride", rank, 1, 1);
  g.padding = parse_padding(arguments.padding, arguments.pads, rank);
  g.dilation = parse_extents(arguments.dilation, dilation_name, rank, 1, 1);
  if (arguments.input_dilation)
    g.input_dilation = parse_extents(arguments.input_dilation, "input_dilation", rank, 1, 1);
  if (arguments.groups) g.groups = parse_int(arguments.groups, "groups", 1);
  if (arguments.flip) g.flip = parse_bool(arguments.flip, "flip");
  if (arguments.padding_mode) g.border = parse_border(arguments.padding_mode);
  if (g.border.mode != BorderMode::zeros && g.input_dilation != Extent3{1, 1, 1})
    throw py::value_error(
        "padding_mode is " + repr_text(arguments.padding_mode) +
        ", wanted 'zeros' where input_dilation is not 1: a dilated input has no neighbours to repeat");
  return g;
}

void transpose_geometry(Geometry& geometry, const Array& weight, Object padding, Object output_padding) {
  if (geometry.padding.mode != PaddingMode::numbers)
    throw py::value_error("padding is " + repr_text(padding) +
                          ", wanted numbers: a transposed convolution has no named "
                          "padding");
  const Extent3 kernel = spatial_extents(weight);
  check_kernel(kernel, "weight");
  geometry.transpose(kernel, parse_extents(output_padding, "output_padding", geometry.rank, 0, 0));
}

void set_weight(ForwardSpec& spec, const Array& weight) {
  spec.dtype = weight.dtype;
  spec.kernel = spatial_extents(weight);
  check_kernel(spec.kernel, "weight");
  spec.out_channels = weight.shape[0];
  spec.in_channels_per_group = weight.last();
}

Array read_addend(Object value, DType dtype, int ndim) {
  Array addend = read_array(value, "addend", ndim, ndim, Layout::contiguous_channels);
  if (addend.dtype == accumulator(dtype)) return addend;
  throw py::type_error("addend has dtype " + dtype_text(addend.numpy_dtype) + ", wanted float" +
                       (accumulator(dtype) == DType::f64 ? "64" : "32") + ", in which sums run");
}

std::vector<std::int64_t> output_shape(int rank, const ConvProblem& p) {
  return shape_of(rank, p.batch, p.output, p.out_channels);
}

ConvProblem forward_problem(const ForwardSpec& spec, const Array& input, const Array* addend) {
  ConvProblem p;
  set_dtype(p, spec.dtype);
  p.batch = input.shape[0];
  p.in_channels = input.last();
  p.out_channels = spec.out_channels;
  p.groups = spec.geometry.groups;
  p.input = spatial_extents(input);
  p.kernel = spec.kernel;
  p.epilogue = spec.epilogue;
  p.epilogue.addend = addend != nullptr;
  check_channels(p, spec.in_channels_per_group);
  spec.geometry.apply(p);
  if (addend) require_output_shape(*addend, "addend", p);
  return p;
}

Execution forward_execution(const ConvProblem& p, Array& input, const Weights& weights, Array* addend,
                            const Array& output) {
  const auto [weight, bias, prepared] = weights;
  Execution execution;
  execution.prepared = prepared;
  input.settle();
  execution.operands.input = as_view(input);
  execution.residents.input = input.memory.get();
  if (weight) {
    weight->settle();
    execution.operands.weight = as_weight(*weight, p.groups);
    execution.residents.weight = weight->memory.get();
  }
  if (bias) {
    execution.operands.bias = bias->data;
    execution.residents.bias = bias->memory.get();
  }
  if (addend) {
    addend->settle();
    execution.operands.addend = as_view(*addend);
    execution.residents.addend = addend->memory.get();
  }
  execution.operands.output = as_view(output);
  execution.residents.output = output.memory.get();
  return execution;
}

py::object forward(const ForwardSpec& spec, Array& input, const Weights& weights, Object out, Array* addend) {
  const ConvProblem p = forward_problem(spec, input, addend);
  if (capturing()) {
    execute(spec.options, p, {}, spec.geometry.border);
    return py::none();
  }
  Destination destination(out, input, output_shape(spec.geometry.rank, p), Layout::contiguous_channels);
  destination.must_not_overlap(input, "input");
  if (addend) destination.must_not_overlap(*addend, "addend");
  if (weights.weight) destination.must_not_overlap(*weights.weight, "weight");
  if (weights.bias) destination.must_not_overlap(*weights.bias, "bias");
  if (destination.array().empty()) return destination.finish();
  execute(spec.options, p, forward_execution(p, input, weights, addend, destination.array()), spec.geometry.border);
  return destination.finish();
}

py::object conv(int rank, Object input_argument, Object weight_argument, const GeometryArguments& geometry,
                const EpilogueArguments& epilogue, const OptionArguments& options, Object out) {
  Array input = read_input(input_argument, rank);
  Array weight = read_weight(weight_argument, input.ndim, input.ndim);
  require_same_dtype(weight, "weight", input, "input");
  ForwardSpec spec;
  spec.geometry = parse_geometry(input.ndim - 2, geometry, rank ? "dilation" : "kernel_dilation");
  set_weight(spec, weight);
  return run_forward(spec, input, weight, epilogue, options, out);
}

py::object depthwise_conv(int rank, Object input_argument, Object weight_argument, const GeometryArguments& geometry,
                          const EpilogueArguments& epilogue, const OptionArguments& options, Object out) {
  Array input = read_input(input_argument, rank);
  Array weight = read_weight(weight_argument, input.ndim, input.ndim);
  require_same_dtype(weight, "weight", input, "input");
  const std::int64_t channels = input.last(), outputs = weight.shape[0];
  if (weight.last() != 1)
    throw py::value_error("weight has " + counted(weight.last(), "input channel") + " per group, wanted 1");
  if (channels == 0 ? outputs != 0 : outputs % channels != 0)
    throw py::value_error("weight has " + counted(outputs, "output channel") + ", wanted a multiple of the " +
                          counted(channels, "channel") + " of input");
  ForwardSpec spec;
  spec.geometry = parse_geometry(input.ndim - 2, geometry, "dilation");
  spec.geometry.groups = std::max<std::int64_t>(channels, 1);
  set_weight(spec, weight);
  spec.in_channels_per_group = std::min<std::int64_t>(channels, 1);
  return run_forward(spec, input, weight, epilogue, options, out);
}

py::object conv_transpose(int rank, Object input_argument, Object weight_argument, const GeometryArguments& geometry,
                          Object output_padding, const EpilogueArguments& epilogue, const OptionArguments& options,
                          Object out) {
  Array input = read_input(input_argument, rank);
  Array weight = read_weight(weight_argument, input.ndim, input.ndim);
  require_same_dtype(weight, "weight", input, "input");
  ForwardSpec spec;
  spec.geometry = parse_geometry(input.ndim - 2, geometry, "dilation");
  transpose_geometry(spec.geometry, weight, geometry.padding, output_padding);
  set_weight(spec, weight);
  return run_forward(spec, input, weight, epilogue, options, out);
}

py::list resolved_pads(Object spatial, Object kernel, const GeometryArguments& arguments) {
  const int rank = static_cast<int>(py::len(spatial));
  if (rank < 1 || rank > 3) throw py::value_error("input has " + number(rank) + " spatial axes, wanted 1 to 3");
  const Geometry geometry = parse_geometry(rank, arguments, "dilation");
  ConvProblem p;
  p.input = parse_extents(spatial, "input", rank, 0, 1);
  p.kernel = parse_extents(kernel, "weight's kernel extent", rank, 1, 1);
  geometry.apply(p);
  py::list pads;
  for (int a = 3 - rank; a < 3; ++a) pads.append(py::make_tuple(p.pad_lo[a], pad_hi(p, a)));
  return pads;
}

namespace {

// The forward geometry behind a gradient, from the shapes of input and weight.
ConvProblem gradient_problem(Pass pass, DType dtype, const Geometry& geometry,
                             const std::vector<std::int64_t>& input_shape,
                             const std::vector<std::int64_t>& weight_shape) {
  ConvProblem p;
  p.pass = pass;
  set_dtype(p, dtype);
  p.batch = input_shape.front();
  p.in_channels = input_shape.back();
  p.out_channels = weight_shape.front();
  p.groups = geometry.groups;
  p.input = extents_of(input_shape);
  p.kernel = extents_of(weight_shape);
  check_kernel(p.kernel, pass == Pass::weight_grad ? "weight_shape" : "weight");
  check_channels(p, weight_shape.back());
  geometry.apply(p);
  return p;
}

// Computes a gradient of `shape` from `grad` and the `other` operand (null for the bias). `place` puts the views of
// both and of the array that is written into the execution.
template <class Place>
py::object gradient(const OptionArguments& arguments, const ConvProblem& p, const Border& border,
                    const std::vector<std::int64_t>& shape, Layout layout, Array& grad, Array* other, Object out,
                    Place place) {
  const char* other_name = p.pass == Pass::input_grad ? "weight" : "input";
  if (other) require_beside(*other, other_name, grad, "grad");
  const Options options = parse_options(arguments, grad, "grad");
  if (capturing()) {
    execute(options, p, {}, border);
    return py::none();
  }
  Destination destination(out, grad, shape, layout);
  destination.must_not_overlap(grad, "grad");
  if (other) destination.must_not_overlap(*other, other_name);
  if (destination.array().empty()) return destination.finish();

  grad.settle();
  if (other) other->settle();
  Execution execution;
  execution.operands.output = as_view(grad);
  execution.residents.output = grad.memory.get();
  place(execution, destination.array());
  execute(options, p, execution, border);
  return destination.finish();
}

}  // namespace

py::object conv_input_grad(Object grad_argument, Object weight_argument, Object input_shape,
                           const GeometryArguments& arguments, const OptionArguments& option_arguments, Object out) {
  Array grad = read_input(grad_argument, 0, "grad");
  Array weight = read_weight(weight_argument, grad.ndim, grad.ndim);
  require_same_dtype(weight, "weight", grad, "grad");
  const std::vector<std::int64_t> shape = parse_shape(input_shape, "input_shape", grad.ndim);
  const Geometry geometry = parse_geometry(grad.ndim - 2, arguments, "kernel_dilation");
  const ConvProblem p = gradient_problem(Pass::input_grad, grad.dtype, geometry, shape, weight.extents());
  require_output_shape(grad, "grad", p);
  return gradient(option_arguments, p, geometry.border, shape, Layout::contiguous_channels, grad, &weight, out,
                  [&](Execution& e, const Array& result) {
                    e.operands.weight = as_weight(weight, p.groups);
                    e.operands.input = as_view(result);
                    e.residents.weight = weight.memory.get();
                    e.residents.input = result.memory.get();
                  });
}

py::object conv_weight_grad(Object grad_argument, Object input_argument, Object weight_shape,
                            const GeometryArguments& arguments, const OptionArguments& option_arguments, Object out) {
  Array grad = read_input(grad_argument, 0, "grad");
  Array input = read_input(input_argument, grad.ndim - 2);
  require_same_dtype(input, "input", grad, "grad");
  const std::vector<std::int64_t> shape = parse_shape(weight_shape, "weight_shape", grad.ndim);
  const Geometry geometry = parse_geometry(grad.ndim - 2, arguments, "kernel_dilation");
  const ConvProblem p = gradient_problem(Pass::weight_grad, grad.dtype, geometry, input.extents(), shape);
  require_output_shape(grad, "grad", p);
  return gradient(option_arguments, p, geometry.border, shape, Layout::any, grad, &input, out,
                  [&](Execution& e, const Array& result) {
                    e.operands.input = as_view(input);
                    e.operands.weight = as_weight(result, p.groups);
                    e.residents.input = input.memory.get();
                    e.residents.weight = result.memory.get();
                  });
}

// The bias gradient is the weight gradient of a 1x1 convolution over a constant one. The one takes no memory: strides
// of its view are 0.
py::object conv_bias_grad(Object grad_argument, const OptionArguments& option_arguments, Object out) {
  Array grad = read_input(grad_argument, 0, "grad");
  ConvProblem p;
  p.pass = Pass::weight_grad;
  set_dtype(p, grad.dtype);
  p.batch = grad.shape[0];
  p.out_channels = grad.last();
  p.input = p.output = spatial_extents(grad);
  validate(p);
  auto one = encoded(1, p.dtype);
  return gradient(option_arguments, p, {}, {p.out_channels}, Layout::any, grad, nullptr, out,
                  [&](Execution& e, const Array& result) {
                    e.operands.input.data = one.data();
                    e.operands.input.stride[4] = 1;
                    e.operands.weight.data = result.data;
                    e.operands.weight.out = result.stride[0];
                    e.residents.weight = result.memory.get();
                  });
}

}  // namespace vkconv::bindings
