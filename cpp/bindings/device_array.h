// vkconv.Array: an array in memory of a device, dense or a view of one.
#pragma once
#include <pybind11/numpy.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings/devices.h"
#include "core/dtype.h"
#include "core/strided_array.h"

namespace vkconv::bindings {
namespace py = pybind11;

// Elements of an array of this shape.
std::int64_t elements_of(const std::vector<std::int64_t>& shape);

// Immutable but for its elements. The last axis is always contiguous.
class DeviceArray {
 public:
  using Extents = std::vector<std::int64_t>;

  // Dense; memory that is new is reached through `memory`.
  DeviceArray(OpenDevice device, std::shared_ptr<ArrayMemory> memory, DType dtype, py::dtype numpy_dtype,
              Extents shape);
  // A copy of a NumPy array, or of an array of any device, on `device`.
  static DeviceArray copy_of(py::handle value, OpenDevice device);

  const OpenDevice& device() const { return device_; }
  const std::shared_ptr<ArrayMemory>& memory() const { return memory_; }
  DType dtype() const { return dtype_; }
  const py::dtype& numpy_dtype() const { return numpy_dtype_; }
  const Extents& shape() const { return shape_; }
  const Extents& stride() const { return stride_; }  // in elements
  std::byte* data() const { return data_; }          // of the first element: an address of the device
  std::int64_t size() const { return elements_of(shape_); }

  py::array numpy() const;  // waits for the work that writes the array
  DeviceArray copy() const { return copy_of(numpy(), device_); }
  DeviceArray item(py::handle key) const;  // a view: slices, integers and an ellipsis
  std::string repr() const;
  py::capsule dlpack(bool copy) const;  // waits; throws BufferError where the host does not see the memory
  bool host_visible() const { return memory_->host() != nullptr; }

 private:
  StridedArray strided() const;

  OpenDevice device_;
  std::shared_ptr<ArrayMemory> memory_;
  DType dtype_;
  py::dtype numpy_dtype_;
  Extents shape_, stride_;
  std::byte* data_;
};

// Memory with the shape and the stride, in elements, of `ndim` axes.
StridedArray strided_array(std::byte* data, DType t, const std::int64_t* shape, const std::int64_t* stride,
                           std::size_t ndim);

void bind_arrays(py::module_& m);

}  // namespace vkconv::bindings
