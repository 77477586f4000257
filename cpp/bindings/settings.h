// Devices, plan caches, threads, explanations and facts about the build.
#pragma once
#include <pybind11/pybind11.h>

namespace vkconv::bindings {

void bind_xla(pybind11::module_& m);  // xla_call.cpp
void bind_settings(pybind11::module_& m);

}  // namespace vkconv::bindings
