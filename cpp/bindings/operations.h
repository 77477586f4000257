// The operations as Python calls them. Everything is parsed and checked here; the public functions in python/vkconv
// only name the arguments. `rank` is the number of spatial axes a function is for, 0 for any.
#pragma once
#include <pybind11/pybind11.h>

#include "bindings/call.h"

namespace vkconv::bindings {

using Object = py::handle;

// Arguments that an operation does not have stay null and mean their defaults.
struct GeometryArguments {
  Object stride, padding, pads, dilation, input_dilation{}, groups{}, flip{}, padding_mode{};
};
struct EpilogueArguments {
  Object bias, activation;
};

py::object conv(int rank, Object input, Object weight, const GeometryArguments& geometry,
                const EpilogueArguments& epilogue, const OptionArguments& options, Object out);
py::object depthwise_conv(int rank, Object input, Object weight, const GeometryArguments& geometry,
                          const EpilogueArguments& epilogue, const OptionArguments& options, Object out);
py::object conv_transpose(int rank, Object input, Object weight, const GeometryArguments& geometry,
                          Object output_padding, const EpilogueArguments& epilogue, const OptionArguments& options,
                          Object out);
py::object conv_input_grad(Object grad, Object weight, Object input_shape, const GeometryArguments& geometry,
                           const OptionArguments& options, Object out);
py::object conv_weight_grad(Object grad, Object input, Object weight_shape, const GeometryArguments& geometry,
                            const OptionArguments& options, Object out);
py::object conv_bias_grad(Object grad, const OptionArguments& options, Object out);

// The numbers that padding in any form means for these extents: (lo, hi) an axis, hi as small as the output allows.
py::list resolved_pads(Object spatial, Object kernel, const GeometryArguments& geometry);

// ---- shared with the prepared object

// The parts of a forward call that do not depend on the input: everything but batch, extents and memory.
struct ForwardSpec {
  Options options;
  Geometry geometry;
  Epilogue epilogue;
  Extent3 kernel{1, 1, 1};
  DType dtype = DType::f32;
  std::int64_t out_channels = 0, in_channels_per_group = 0;
};

// Throws unless `groups` divides the channels, which are `what`: "channels of input".
void require_divided(std::int64_t channels, std::int64_t groups, const char* what);
Array read_input(Object value, int rank, const char* name = "input");
Array read_weight(Object value, int least, int most);
void require_same_dtype(const Array& a, const char* a_name, const Array& b, const char* b_name);
Geometry parse_geometry(int rank, const GeometryArguments& arguments, const char* dilation_name);
void transpose_geometry(Geometry& geometry, const Array& weight, Object padding, Object output_padding);
// Fills in dtype, kernel and channel counts.
void set_weight(ForwardSpec& spec, const Array& weight);
// Where the weights come from: an operand and perhaps a bias in the accumulator type, or a prepared object.
struct Weights {
  Array* weight = nullptr;
  const Array* bias = nullptr;
  PreparedConv* prepared = nullptr;
};
// spec.epilogue says whether there is a bias. `addend` is in the accumulator type, or null.
ConvProblem forward_problem(const ForwardSpec& spec, const Array& input, const Array* addend);
std::vector<std::int64_t> output_shape(int rank, const ConvProblem& p);
Execution forward_execution(const ConvProblem& p, Array& input, const Weights& weights, Array* addend,
                            const Array& output);
py::object forward(const ForwardSpec& spec, Array& input, const Weights& weights, Object out, Array* addend = nullptr);
// An array of the shape of the output, to be added before bias and activation.
Array read_addend(Object value, DType dtype, int ndim);

}  // namespace vkconv::bindings
