// Classes of the package `vkconv`. pybind11 makes an object and its C++ half in two steps, `__new__` and `__init__`, so
// that an object on which `__init__` never ran would be read uninitialised: here `__new__` makes whole objects or none.
#pragma once
#include <pybind11/pybind11.h>

#include <string>
#include <utility>

namespace vkconv::bindings {
namespace py = pybind11;

template <class T>
py::class_<T> public_class(py::module_& m, const char* name, const char* doc) {
  py::class_<T> made(m, name, doc);
  made.attr("__module__") = "vkconv";  // now, because the signatures of methods name it
  return made;
}

// For a class whose objects come from functions only.
template <class T>
void made_only_by(py::class_<T>& type, std::string function) {
  std::string refusal = type.attr("__name__").template cast<std::string>() + " objects are made by " + function;
  type.def_static("__new__", [refusal = std::move(refusal)](const py::args&, const py::kwargs&) -> py::object {
    throw py::type_error(refusal);
  });
}

}  // namespace vkconv::bindings
