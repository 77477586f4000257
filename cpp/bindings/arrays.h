// Operands and results: NumPy arrays as strided views of host memory, arrays of a device as views of its memory.
#pragma once
#include <pybind11/numpy.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "bindings/device_array.h"
#include "core/problem.h"
#include "core/view.h"
#include "cpu/memory.h"

namespace vkconv::bindings {
namespace py = pybind11;

inline constexpr int kMaxDimensions = 5;

// Call once, before everything else here.
void load_numpy();

// `value`, which must be a NumPy array without a mask, of any dtype.
py::array require_array(py::handle value, const char* name);

// What a kernel asks of an operand's memory, beyond whole elements of native byte order at aligned addresses.
enum class Layout : std::uint8_t {
  any,                 // weights
  contiguous_channels  // input, output, addend
};

// An operand. Its shape and dtype can be judged at once; its memory is read after settle().
struct Array {
  py::object owner;                     // the caller's array
  py::dtype numpy_dtype;                // the caller's, of any byte order
  OpenDevice home;                      // where the array lives; no backend: a NumPy array
  std::shared_ptr<ArrayMemory> memory;  // of an array of a device
  DType dtype = DType::f32;
  int ndim = 0;
  std::array<std::int64_t, kMaxDimensions> shape{};
  std::array<std::int64_t, kMaxDimensions> stride{};  // in elements
  std::byte* data = nullptr;
  bool must_copy = false;  // the kernels cannot read the caller's memory
  cpu::Buffer copy{};

  std::int64_t last() const { return shape[ndim - 1]; }
  std::vector<std::int64_t> extents() const { return {shape.begin(), shape.begin() + ndim}; }
  StridedArray strided() const { return strided_array(data, dtype, shape.data(), stride.data(), ndim); }
  bool on_device() const { return memory != nullptr; }
  bool empty() const;
  py::dtype native_dtype() const;  // of a result
  // Makes `data` and `stride` what the kernels read. Broadcast axes stay broadcast in a copy.
  void settle();
};

// Accepts every array of a supported dtype with `least` to `most` dimensions. A NumPy array is copied only when it has
// foreign byte order, elements at unaligned addresses, or a channel axis that `layout` does not allow.
Array read_array(py::handle value, const char* name, int least, int most, Layout layout);

// A vector of `length` values as a contiguous array of `dtype`'s accumulator type. Its own dtype is either of the two.
Array read_bias(py::handle value, DType dtype, std::int64_t length);

// The axes (N, spatial..., C) of an array at their places among N, D, H, W, C; extents of 1 get the stride that makes
// a dense array look dense.
View<std::byte*> as_view(const Array& a);
WeightView<std::byte*> as_weight(const Array& a, std::int64_t groups);
Extent3 spatial_extents(const Array& a);

// Throws unless `operand` can be used beside `leading`, the operand that decides where an operation runs: a NumPy array
// beside anything, an array of a device beside arrays of that device.
void require_beside(const Array& operand, const char* name, const Array& leading, const char* leading_name);

// A NumPy array in the memory of `buffer`, and one in new memory of the pool.
py::array array_in(cpu::Buffer buffer, const py::dtype& dtype, const std::vector<std::int64_t>& shape);
py::array new_array(const py::dtype& dtype, const std::vector<std::int64_t>& shape);

// "float32", ">f4": as NumPy prints a dtype.
std::string dtype_text(const py::dtype& dtype);

// "(2, 3)", as NumPy prints a shape.
std::string shape_text(const std::int64_t* shape, std::size_t ndim);
std::string shape_text(const std::vector<std::int64_t>& shape);

// The array an operation writes: a new one where its leading operand lives, or the caller's `out`. A caller's NumPy
// array whose strides no kernel can write is served by a new array that finish() copies.
class Destination {
 public:
  Destination(py::handle out, const Array& leading, const std::vector<std::int64_t>& shape, Layout layout);
  const Array& array() const { return array_; }
  // Throws when `operand` shares memory with the caller's array.
  void must_not_overlap(const Array& operand, const char* name) const;
  py::object finish();  // the caller's array, or the new one

 private:
  void take_host(const Array& leading, const std::vector<std::int64_t>& shape, Layout layout);
  void take_device(const Array& leading, const std::vector<std::int64_t>& shape);

  Array array_;
  py::object out_;  // None when there is none
  bool staged_ = false;
};

}  // namespace vkconv::bindings
