#include "bindings/device_array.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "bindings/arguments.h"
#include "bindings/arrays.h"
#include "bindings/description.h"
#include "bindings/dlpack.h"
#include "bindings/public_class.h"
#include "bindings/without_gil.h"

namespace vkconv::bindings {
namespace {

// The entries of a key, one an axis: an ellipsis stands for whole axes, and so do the axes at the end.
std::vector<py::object> entries_of(py::handle key, std::size_t ndim) {
  std::vector<py::object> entries;
  if (py::isinstance<py::tuple>(key))
    for (const py::handle item : key) entries.push_back(py::reinterpret_borrow<py::object>(item));
  else
    entries.push_back(py::reinterpret_borrow<py::object>(key));
  const auto dots = std::find_if(entries.begin(), entries.end(), [](auto& e) { return e.ptr() == Py_Ellipsis; });
  const std::size_t given = entries.size() - (dots != entries.end());
  if (given > ndim)
    throw py::index_error("an array of " + std::to_string(ndim) + " dimensions was indexed with " +
                          std::to_string(given) + " items");
  const py::object whole = py::slice(0, PY_SSIZE_T_MAX, 1);
  const auto at = dots == entries.end() ? entries.end() : entries.erase(dots);
  entries.insert(at, ndim - given, whole);
  return entries;
}

struct Axis {
  std::int64_t start, step, count;
};

Axis slice_axis(py::handle slice, std::int64_t extent) {
  Py_ssize_t start = 0, stop = 0, step = 1;
  if (PySlice_Unpack(slice.ptr(), &start, &stop, &step) != 0) throw py::error_already_set();
  const Py_ssize_t count = PySlice_AdjustIndices(extent, &start, &stop, step);
  return {count > 0 ? start : 0, step, count};
}

std::int64_t index_of(py::handle entry, std::int64_t extent) {
  const std::int64_t index = parse_int(entry, "index", std::numeric_limits<std::int64_t>::min());
  if (index < -extent || index >= extent)
    throw py::index_error("index " + std::to_string(index) + " is outside of an axis of " + std::to_string(extent));
  return index < 0 ? index + extent : index;
}

}  // namespace

std::int64_t elements_of(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

StridedArray strided_array(std::byte* data, DType t, const std::int64_t* shape, const std::int64_t* stride,
                           std::size_t ndim) {
  StridedArray a;
  a.data = data;
  a.element_bytes = size_bytes(t);
  for (std::size_t i = 0; i < ndim; ++i) {
    a.extent[6 - ndim + i] = shape[i];
    a.stride[6 - ndim + i] = stride[i];
  }
  return a;
}

DeviceArray::DeviceArray(OpenDevice device, std::shared_ptr<ArrayMemory> memory, DType dtype, py::dtype numpy_dtype,
                         Extents shape)
    : device_(std::move(device)),
      memory_(std::move(memory)),
      dtype_(dtype),
      numpy_dtype_(std::move(numpy_dtype)),
      shape_(std::move(shape)),
      stride_(dense_strides(shape_)),
      data_(memory_->address()) {}

DeviceArray DeviceArray::copy_of(py::handle value, OpenDevice device) {
  py::object host = py::reinterpret_borrow<py::object>(value);
  if (py::isinstance<DeviceArray>(value)) host = value.cast<const DeviceArray&>().numpy();
  Array a = read_array(host, "x", 1, kMaxDimensions, Layout::any);
  a.settle();
  const StridedArray from = a.strided();
  std::shared_ptr<ArrayMemory> memory;
  {
    const WithoutGilForLong release;
    memory = a.empty() ? device.backend->allocate(0) : device.backend->upload(from);
  }
  return {std::move(device), std::move(memory), a.dtype, a.native_dtype(), a.extents()};
}

StridedArray DeviceArray::strided() const {
  return strided_array(data_, dtype_, shape_.data(), stride_.data(), shape_.size());
}

py::array DeviceArray::numpy() const {
  py::array made = new_array(numpy_dtype_, shape_);
  if (size() == 0) return made;
  const StridedArray to = packed(strided(), static_cast<std::byte*>(made.mutable_data()));
  const WithoutGilForLong release;
  device_.backend->download(*memory_, strided(), to);
  return made;
}

DeviceArray DeviceArray::item(py::handle key) const {
  const std::vector<py::object> entries = entries_of(key, shape_.size());
  DeviceArray view = *this;
  view.shape_.clear();
  view.stride_.clear();
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const bool last = i + 1 == entries.size();
    if (!PySlice_Check(entries[i].ptr())) {
      if (last || !PyIndex_Check(entries[i].ptr()) || PyBool_Check(entries[i].ptr()))
        throw py::type_error("an Array takes slices and, but for the last axis, integers as index, got " +
                             repr_text(entries[i]));
      offset += index_of(entries[i], shape_[i]) * stride_[i];
      continue;
    }
    const Axis axis = slice_axis(entries[i], shape_[i]);
    if (last && axis.step != 1) throw py::index_error("the last axis of an Array is sliced with step 1 only");
    offset += axis.start * stride_[i];
    view.shape_.push_back(axis.count);
    view.stride_.push_back(axis.step * stride_[i]);
  }
  view.data_ += offset * static_cast<std::int64_t>(size_bytes(dtype_));
  return view;
}

std::string DeviceArray::repr() const {
  return "<vkconv.Array " + dtype_text(numpy_dtype_) + " " + shape_text(shape_) + " on " + device_.name + ">";
}

py::capsule DeviceArray::dlpack(bool copy) const {
  if (copy) return this->copy().dlpack(false);
  if (!host_visible()) {
    PyErr_SetString(PyExc_BufferError,
                    ("the host does not see the memory of " + device_.name + ": use numpy()").c_str());
    throw py::error_already_set();
  }
  {
    const WithoutGilForLong release;
    device_.backend->synchronize();
  }
  return dlpack_capsule({memory_, memory_->host() + (data_ - memory_->address()), dtype_, shape_, stride_});
}

void bind_arrays(py::module_& m) {
  auto type = public_class<DeviceArray>(
      m, "Array",
      "An array in memory of a device, made by `vkconv.array` and by every operation on Arrays.\n\n"
      "It has a NumPy array's ``shape``, ``dtype``, ``ndim``, ``size`` and ``nbytes``, and its device's name as "
      "``device``. Slices, and integers for all axes but the last, give views of the same memory.");
  made_only_by(type, "vkconv.array");
  type.def_property_readonly("shape",
                             [](const DeviceArray& a) {
                               py::tuple shape(a.shape().size());
                               for (std::size_t i = 0; i < a.shape().size(); ++i) shape[i] = a.shape()[i];
                               return shape;
                             })
      .def_property_readonly("dtype", &DeviceArray::numpy_dtype)
      .def_property_readonly("device", [](const DeviceArray& a) { return a.device().name; })
      .def_property_readonly("ndim", [](const DeviceArray& a) { return a.shape().size(); })
      .def_property_readonly("size", &DeviceArray::size)
      .def_property_readonly(
          "nbytes", [](const DeviceArray& a) { return a.size() * static_cast<std::int64_t>(size_bytes(a.dtype())); })
      .def("numpy", &DeviceArray::numpy, "Copy the array into a new NumPy array. Waits for the work that writes it.")
      .def("__getitem__", &DeviceArray::item)
      .def("__len__", [](const DeviceArray& a) { return a.shape().front(); })
      .def("__repr__", &DeviceArray::repr)
      .def("__copy__", &DeviceArray::copy)
      .def("__deepcopy__", [](const DeviceArray& a, py::handle) { return a.copy(); })
      .def("__reduce__",
           [](const DeviceArray& a) {
             const py::object make = py::module_::import("vkconv").attr("array");
             return py::make_tuple(make, py::make_tuple(a.numpy(), a.device().name));
           })
      .def(
          "__array__",
          [](const DeviceArray& a, const py::object& dtype, const py::object& copy) -> py::object {
            if (copy.ptr() == Py_False) throw py::value_error("an Array becomes a NumPy array by a copy only");
            py::object made = a.numpy();
            return dtype.is_none() ? made : made.attr("astype")(dtype, py::arg("copy") = false);
          },
          py::arg("dtype") = py::none(), py::arg("copy") = py::none())
      .def(
          "__dlpack__",
          [](const DeviceArray& a, const py::object&, const py::object&, const py::object& device,
             const py::object& copy) {
            if (!device.is_none() && !device.equal(py::make_tuple(kDLCPU, 0)))
              throw py::buffer_error("dl_device is " + std::string(py::repr(device)) +
                                     ", an Array's memory is given to the host only, (1, 0)");
            return a.dlpack(copy.ptr() == Py_True);
          },
          py::kw_only(), py::arg("stream") = py::none(), py::arg("max_version") = py::none(),
          py::arg("dl_device") = py::none(), py::arg("copy") = py::none())
      .def("__dlpack_device__", [](const DeviceArray& a) {
        if (!a.host_visible()) a.dlpack(false);  // throws
        return py::make_tuple(kDLCPU, 0);
      });
  m.def("array", [](py::handle x, py::handle device) { return DeviceArray::copy_of(x, open_device(device)); });
  m.def("synchronize", [](py::handle device) {
    const auto devices = device.is_none() ? DeviceTable::instance().opened() : std::vector{open_device(device)};
    const WithoutGilForLong release;
    for (const OpenDevice& d : devices) d.backend->synchronize();
  });
}

}  // namespace vkconv::bindings
