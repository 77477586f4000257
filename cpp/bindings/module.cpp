// The extension module vkconv._core: positional functions behind the documented ones of the package.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <vector>

#include "bindings/description.h"
#include "bindings/device_array.h"
#include "bindings/operations.h"
#include "bindings/prepared.h"
#include "bindings/prepared_chain.h"
#include "bindings/public_class.h"
#include "bindings/settings.h"
#include "bindings/without_gil.h"
#include "core/error.h"
#include "cpu/strided_copy.h"

namespace vkconv::bindings {
namespace {

// The module keeps a reference, and the package presents the class as its own.
PyObject* make_exception(py::module_& m, const char* name, PyObject* base, const char* doc) {
  PyObject* made = PyErr_NewExceptionWithDoc((std::string("vkconv.") + name).c_str(), doc, base, nullptr);
  if (!made) throw py::error_already_set();
  m.attr(name) = py::handle(made);
  return made;
}

void bind_errors(py::module_& m) {
  static PyObject* error =
      make_exception(m, "Error", PyExc_RuntimeError, "Root of the errors that only vkconv raises.");
  static PyObject* device_error =
      make_exception(m, "DeviceError", error, "A device is missing, was lost or refused a call. The next call works.");
  py::register_exception_translator([](std::exception_ptr p) {
    try {
      if (p) std::rethrow_exception(p);
    } catch (const ProblemError& e) {
      PyErr_SetString(PyExc_ValueError, e.what());
    } catch (const OutOfMemory& e) {
      PyErr_SetString(PyExc_MemoryError, e.what());
    } catch (const DeviceError& e) {
      PyErr_SetString(device_error, e.what());
    } catch (const Error& e) {
      PyErr_SetString(error, e.what());
    }
  });
}

void bind_forward(py::module_& m) {
  m.def("conv", [](int rank, Object input, Object weight, Object stride, Object padding, Object dilation,
                   Object input_dilation, Object groups, Object flip, Object pads, Object padding_mode, Object bias,
                   Object activation, Object precision, Object device, Object algorithm, Object workspace_limit,
                   Object out) {
    return conv(rank, input, weight, {stride, padding, pads, dilation, input_dilation, groups, flip, padding_mode},
                {bias, activation}, {precision, device, algorithm, workspace_limit}, out);
  });
  m.def("depthwise_conv", [](int rank, Object input, Object weight, Object stride, Object padding, Object dilation,
                             Object pads, Object padding_mode, Object bias, Object activation, Object precision,
                             Object device, Object algorithm, Object workspace_limit, Object out) {
    return depthwise_conv(rank, input, weight, {stride, padding, pads, dilation, {}, {}, {}, padding_mode},
                          {bias, activation}, {precision, device, algorithm, workspace_limit}, out);
  });
  m.def("conv_transpose", [](int rank, Object input, Object weight, Object stride, Object padding, Object dilation,
                             Object output_padding, Object groups, Object pads, Object bias, Object activation,
                             Object precision, Object device, Object algorithm, Object workspace_limit, Object out) {
    return conv_transpose(rank, input, weight, {stride, padding, pads, dilation, {}, groups}, output_padding,
                          {bias, activation}, {precision, device, algorithm, workspace_limit}, out);
  });
}

// A copy in new memory of the pool, without gaps, its axes in their order.
py::array dense(py::handle value) {
  Array array = read_array(value, "array", 1, kMaxDimensions, Layout::any);
  array.settle();
  py::array made = new_array(array.native_dtype(), array.extents());
  const StridedArray from = array.strided(), to = packed(from, static_cast<std::byte*>(made.mutable_data()));
  const WithoutGilForLong release;
  cpu::copy(from, to);
  return made;
}

// Of operations that are written in Python.
void bind_checks(py::module_& m) {
  m.def("require_array", &require_array);
  m.def("dense", &dense);
  m.def("parsed_axes", [](Object value, const char* name, int rank, std::int64_t minimum) {
    const Extent3 all = parse_extents(value, name, rank, minimum, 1);
    return std::vector<std::int64_t>(all.end() - rank, all.end());
  });
  m.def("parsed_shape", &parse_shape);
  m.def("parsed_border", [](Object mode) {
    const Border border = parse_border(mode);
    return py::make_tuple(to_string(border.mode), border.value);
  });
  m.def("resolved_pads",
        [](Object spatial, Object kernel, Object stride, Object padding, Object dilation, Object pads) {
          return resolved_pads(spatial, kernel, {stride, padding, pads, dilation});
        });
}

void bind_gradients(py::module_& m) {
  // `other` is the weight of an input gradient, or the input of a weight gradient; `shape` that of the result.
  const auto bind = [&m](const char* name, auto gradient) {
    m.def(name, [gradient](Object grad, Object other, Object shape, Object stride, Object padding, Object dilation,
                           Object input_dilation, Object groups, Object flip, Object pads, Object padding_mode,
                           Object precision, Object device, Object algorithm, Object workspace_limit, Object out) {
      return gradient(grad, other, shape, {stride, padding, pads, dilation, input_dilation, groups, flip, padding_mode},
                      {precision, device, algorithm, workspace_limit}, out);
    });
  };
  bind("conv_input_grad", &conv_input_grad);
  bind("conv_weight_grad", &conv_weight_grad);
  m.def("conv_bias_grad",
        [](Object grad, Object precision, Object device, Object algorithm, Object workspace_limit, Object out) {
          return conv_bias_grad(grad, {precision, device, algorithm, workspace_limit}, out);
        });
}

void bind_prepared(py::module_& m) {
  auto type = public_class<PreparedConvolution>(
      m, "PreparedConv",
      "A convolution with fixed weights, made by `vkconv.prepare`. Call it as ``conv(input, out=None, addend=None)``; "
      "``addend`` has the output's shape, is float32 (float64 for float64) and is added before the activation.");
  made_only_by(type, "vkconv.prepare and vkconv.prepare_transpose");
  type.def("__call__", &PreparedConvolution::call, py::arg("input"), py::arg("out") = py::none(),
           py::arg("addend") = py::none())
      .def("__repr__", &PreparedConvolution::repr)
      .def("__copy__", [](const py::object& self) { return self; })  // it never changes
      .def("__deepcopy__", [](const py::object& self, Object) { return self; })
      .def("__reduce__", [](Object) -> py::object {
        throw py::type_error(
            "a PreparedConv holds weights in layouts of its device and cannot be pickled: pickle the "
            "arguments of vkconv.prepare");
      });
  m.def("prepare",
        [](Object weight, Object bias, Object stride, Object padding, Object dilation, Object input_dilation,
           Object groups, Object flip, Object pads, Object padding_mode, bool transposed, Object output_padding,
           Object activation, Object precision, Object device, Object algorithm, Object workspace_limit) {
          return std::make_unique<PreparedConvolution>(
              weight, GeometryArguments{stride, padding, pads, dilation, input_dilation, groups, flip, padding_mode},
              transposed ? output_padding : Object{}, EpilogueArguments{bias, activation},
              OptionArguments{precision, device, algorithm, workspace_limit});
        });
}

}  // namespace
}  // namespace vkconv::bindings

PYBIND11_MODULE(_main_core, m, pybind11::mod_gil_not_used()) {
  using namespace vkconv::bindings;
  m.doc() = "The compiled half of vkconv. Use the functions of the package vkconv.";
  load_numpy();
  bind_errors(m);
  bind_forward(m);
  bind_checks(m);
  bind_gradients(m);
  bind_arrays(m);
  bind_descriptions(m);
  bind_prepared(m);
  bind_prepared_chain(m);
  bind_settings(m);
  bind_xla(m);
}

// In a subinterpreter before Python 3.12, pybind11 waits forever for a lock that its own thread holds.
extern "C" PYBIND11_EXPORT PyObject* PyInit__core() {
#if PY_VERSION_HEX < 0x030C0000
  if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
    PyErr_SetString(PyExc_ImportError, "vkconv cannot be imported in a subinterpreter");
    return nullptr;
  }
#endif
  return PyInit__main_core();
}
