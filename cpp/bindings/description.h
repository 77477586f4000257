// vkconv.DeviceDescription: a device that is planned for and need not be here.
#pragma once
#include <pybind11/pybind11.h>

#include <string>

#include "bindings/devices.h"

namespace vkconv::bindings {
namespace py = pybind11;

class DeviceDescription {
 public:
  explicit DeviceDescription(const std::string& json);
  const OpenDevice& device() const { return device_; }  // plans, and computes nothing
  const std::string& json() const { return json_; }

 private:
  std::string json_;
  OpenDevice device_;
};

// What an operation's `device` argument means: a name, None or, for `explain`, a description.
OpenDevice open_device(py::handle device);
bool is_description(py::handle device);

void bind_descriptions(py::module_& m);

}  // namespace vkconv::bindings
