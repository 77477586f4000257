#include "bindings/description.h"

#include "bindings/arguments.h"
#include "bindings/public_class.h"
#include "bindings/vulkan_devices.h"
#include "core/error.h"

namespace vkconv::bindings {
namespace {

constexpr std::string_view kPrefix = "described: ";  // of the name that messages and explanations give the device

DeviceDescription describe(const std::string& name) {
  for (const auto& [known, json] : vulkan_descriptions())
    if (known == name) return DeviceDescription(json);
  if (name.starts_with("vulkan")) return DeviceDescription(vulkan_description(DeviceTable::instance().index_of(name)));
  std::string known;
  for (const auto& [described, json] : vulkan_descriptions()) known += "'" + described + "', ";
  throw ProblemError("name is '" + name + "', wanted " + known + "or a device of this machine as in 'vulkan:0'");
}

}  // namespace

DeviceDescription::DeviceDescription(const std::string& json) : json_(json), device_(described_device(json)) {
  device_.name.insert(0, kPrefix);
}

bool is_description(py::handle device) { return py::isinstance<DeviceDescription>(device); }

OpenDevice open_device(py::handle device) {
  if (is_description(device)) return device.cast<const DeviceDescription&>().device();
  return DeviceTable::instance().open(parse_word(device, "device"));
}

void bind_descriptions(py::module_& m) {
  auto type =
      public_class<DeviceDescription>(m, "DeviceDescription",
                                      "Features, limits and rates of a Vulkan device, which `explain` plans for.\n\n"
                                      "Made of JSON text, or by `vkconv.describe_device`.");
  type.attr("__init__") = py::cpp_function([](py::handle, py::handle) {}, py::is_method(type));
  type.def_static("__new__", [](py::handle, py::handle json) { return DeviceDescription(required_word(json, "json")); })
      .def("__reduce__",
           [](const py::object& self) { return py::make_tuple(py::type::of(self), py::make_tuple(self.attr("json"))); })
      .def_property_readonly("json", &DeviceDescription::json)
      .def("__repr__", [](const DeviceDescription& d) {
        return "<vkconv.DeviceDescription " + d.device().name.substr(kPrefix.size()) + ">";
      });
  m.def("described_devices", [] {
    py::list names;
    for (const auto& [name, json] : vulkan_descriptions()) names.append(name);
    return names;
  });
  m.def("describe_device", [](py::handle name) { return describe(required_word(name, "name")); });
}

}  // namespace vkconv::bindings
