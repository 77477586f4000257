#include "bindings/arrays.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <memory>

#include "bindings/arguments.h"
#include "bindings/overlap.h"
#include "bindings/without_gil.h"
#include "cpu/memory.h"
#include "cpu/strided_copy.h"

namespace vkconv::bindings {
namespace {

// Numbers of NumPy's built-in types; types of other packages (bfloat16 of ml_dtypes) start at 256.
constexpr int kNumPyFloat = 11, kNumPyDouble = 12, kNumPyHalf = 23, kFirstUserType = 256;

// Looked up when the module is imported: a local static would hold its guard while the interpreter switches threads.
struct NumPy {
  py::object ndarray, may_share_memory;
};
const NumPy* numpy = nullptr;

// ml_dtypes is never imported here: who passes a bfloat16 array has imported it.
bool is_bfloat16(const py::dtype& dtype, int number) {
  static std::atomic<int> known = -1;
  if (number < kFirstUserType) return false;
  if (number == known) return true;
  if (dtype.attr("name").cast<std::string>() != "bfloat16") return false;
  known = number;
  return true;
}

DType dtype_of(const py::dtype& dtype, const char* name) {
  switch (const int number = dtype.num()) {
    case kNumPyFloat:
      return DType::f32;
    case kNumPyDouble:
      return DType::f64;
    case kNumPyHalf:
      return DType::f16;
    default:
      if (is_bfloat16(dtype, number)) return DType::bf16;
  }
  throw py::type_error(std::string(name) + " has dtype " + dtype_text(dtype) +
                       ", wanted float32, float16, bfloat16 or float64");
}

// NumPy has two marks for the order of this machine: '=', and the one that names it, which Zarr's arrays have.
bool is_native(const py::dtype& dtype) {
  const char named = std::endian::native == std::endian::little ? '<' : '>';
  return dtype.byteorder() == '=' || dtype.byteorder() == '|' || dtype.byteorder() == named;
}

// Whole elements at aligned addresses.
bool has_element_strides(const py::array& array) {
  const auto element = static_cast<std::size_t>(array.itemsize());
  if (reinterpret_cast<std::uintptr_t>(array.data()) % element != 0) return false;
  for (py::ssize_t a = 0; a < array.ndim(); ++a)
    if (array.shape(a) > 1 && array.strides(a) % static_cast<py::ssize_t>(element) != 0) return false;
  return true;
}

bool has_layout(const py::array& array, Layout layout) {
  const py::ssize_t last = array.ndim() - 1;
  return layout == Layout::any || array.shape(last) <= 1 || array.strides(last) == array.itemsize();
}

// An axis of one element gets the stride that makes a dense array look dense.
void normalize_strides(Array& a) {
  for (int i = a.ndim - 1; i >= 0; --i)
    if (a.shape[i] <= 1) a.stride[i] = i + 1 < a.ndim ? a.stride[i + 1] * a.shape[i + 1] : 1;
}

Array describe(py::array owner, DType dtype) {
  Array a;
  a.dtype = dtype;
  a.ndim = static_cast<int>(owner.ndim());
  a.data = static_cast<std::byte*>(const_cast<void*>(owner.data()));
  for (int i = 0; i < a.ndim; ++i) {
    a.shape[i] = owner.shape(i);
    a.stride[i] = owner.strides(i) / owner.itemsize();
  }
  normalize_strides(a);
  a.numpy_dtype = owner.dtype();
  a.owner = std::move(owner);
  return a;
}

Array describe(const DeviceArray& array, py::handle owner) {
  Array a;
  a.owner = py::reinterpret_borrow<py::object>(owner);
  a.numpy_dtype = array.numpy_dtype();
  a.home = array.device();
  a.memory = array.memory();
  a.dtype = array.dtype();
  a.ndim = static_cast<int>(array.shape().size());
  std::copy(array.shape().begin(), array.shape().end(), a.shape.begin());
  std::copy(array.stride().begin(), array.stride().end(), a.stride.begin());
  a.data = array.data();
  normalize_strides(a);
  return a;
}

py::array numpy_of(const Array& a) { return py::reinterpret_borrow<py::array>(a.owner); }

cpu::StridedCopy copy_of(const Array& a, const py::array& from) {
  cpu::StridedCopy c;
  c.from = static_cast<const std::byte*>(from.data());
  c.element_bytes = static_cast<std::size_t>(from.itemsize());
  c.axes = a.ndim;
  for (int i = 0; i < a.ndim; ++i) {
    c.extent[i] = a.shape[i];
    c.from_stride[i] = from.strides(i);
  }
  return c;
}

// The interpreter's lock is given up for copies that take longer than a switch.
void run_copy(const cpu::StridedCopy& copy, std::size_t bytes) {
  constexpr std::size_t kShortBytes = 64 << 10;
  if (bytes <= kShortBytes) return cpu::run(copy);
  const WithoutGilForLong release;
  cpu::run(copy);
}

std::string dimensions_wanted(std::string_view name, int least, int most) {
  if (least != most) return std::to_string(least) + " to " + std::to_string(most);
  return std::to_string(least) + (name == "weight" ? ": output channels" : ": batch") + ", spatial axes, channels";
}

std::string bias_wanted(std::int64_t length) {
  return ", wanted (" + std::to_string(length) + ",), one value for each output channel";
}

// Nothing converts it on the device.
Array read_device_bias(py::handle value, DType wanted, std::int64_t length) {
  const auto& array = value.cast<const DeviceArray&>();
  if (array.dtype() != wanted)
    throw py::type_error("bias is a vkconv.Array of dtype " + dtype_text(array.numpy_dtype()) + ", wanted " +
                         (wanted == DType::f64 ? "float64" : "float32"));
  if (array.shape().size() != 1 || array.shape()[0] != length)
    throw py::value_error("bias has shape " + shape_text(array.shape()) + bias_wanted(length));
  return describe(array, value);
}

void free_buffer(void* buffer) { delete static_cast<cpu::Buffer*>(buffer); }

}  // namespace

py::array require_array(py::handle value, const char* name) {
  if (!py::isinstance<py::array>(value)) {
    const char* hint = py::isinstance<DeviceArray>(value) ? ": its numpy() is one"
                       : py::hasattr(value, "__dlpack__") ? ": vkconv.from_dlpack views its memory as one"
                                                          : "";
    throw py::type_error(std::string(name) + " must be a NumPy array, got " + type_name(value) + hint);
  }
  // Elements that a mask hides must not be read as numbers.
  if (!py::type::handle_of(value).is(numpy->ndarray) && py::hasattr(value, "mask"))
    throw py::type_error(std::string(name) + " must be an array without a mask, got " + type_name(value));
  return py::reinterpret_borrow<py::array>(value);
}

py::array array_in(cpu::Buffer buffer, const py::dtype& dtype, const std::vector<std::int64_t>& shape) {
  auto kept = std::make_unique<cpu::Buffer>(std::move(buffer));
  std::byte* data = kept->pointer();
  py::capsule owner(kept.get(), free_buffer);
  kept.release();
  return py::array(dtype, shape, data, owner);
}

py::array new_array(const py::dtype& dtype, const std::vector<std::int64_t>& shape) {
  return array_in(cpu::Buffer(static_cast<std::size_t>(elements_of(shape) * dtype.itemsize())), dtype, shape);
}

void load_numpy() {
  const py::module_ module = py::module_::import("numpy");
  numpy = new NumPy{module.attr("ndarray"), module.attr("may_share_memory")};
}

bool Array::empty() const { return std::find(shape.begin(), shape.begin() + ndim, 0) != shape.begin() + ndim; }

Array read_array(py::handle value, const char* name, int least, int most, Layout layout) {
  const bool on_device = py::isinstance<DeviceArray>(value);
  Array a;
  if (on_device) {
    a = describe(value.cast<const DeviceArray&>(), value);
  } else {
    py::array array = require_array(value, name);
    a.ndim = static_cast<int>(array.ndim());
    a.owner = std::move(array);
  }
  if (a.ndim < least || a.ndim > most)
    throw py::value_error(std::string(name) + " has " + counted(a.ndim, "dimension") + ", wanted " +
                          dimensions_wanted(name, least, most));
  if (on_device) return a;
  const py::array array = numpy_of(a);
  const py::dtype dtype = array.dtype();
  a = describe(array, dtype_of(dtype, name));
  a.must_copy = !is_native(dtype) || !has_element_strides(array) || !has_layout(array, layout);
  return a;
}

void require_beside(const Array& operand, const char* name, const Array& leading, const char* leading_name) {
  if (!operand.on_device() || operand.home.name == leading.home.name) return;
  const std::string where = std::string(name) + " is a vkconv.Array on " + operand.home.name + ", " + leading_name;
  if (!leading.on_device())
    throw py::type_error(where + " is a NumPy array: make it an Array, vkconv.array(" + leading_name + ", '" +
                         operand.home.name + "')");
  throw py::value_error(where + " is on " + leading.home.name + ": they must agree");
}

py::dtype Array::native_dtype() const {
  return is_native(numpy_dtype) ? numpy_dtype : py::dtype(numpy_dtype.attr("newbyteorder")("="));
}

void Array::settle() {
  if (!must_copy) return;
  must_copy = false;
  const py::array from = numpy_of(*this);
  cpu::StridedCopy c = copy_of(*this, from);
  c.swap_bytes = !is_native(numpy_dtype);
  std::int64_t elements = 1;
  for (int i = ndim - 1; i >= 0; --i) {
    const bool broadcast = i != ndim - 1 && from.strides(i) == 0;
    if (broadcast && shape[i] > 0) c.extent[i] = 1;
    stride[i] = broadcast ? 0 : elements;
    c.to_stride[i] = stride[i] * from.itemsize();
    elements *= c.extent[i];
  }
  normalize_strides(*this);
  const std::size_t bytes = static_cast<std::size_t>(elements * from.itemsize());
  copy = cpu::Buffer(bytes);
  data = c.to = copy.pointer();
  run_copy(c, bytes);
}

Array read_bias(py::handle value, DType dtype, std::int64_t length) {
  const DType wanted = accumulator(dtype);
  if (py::isinstance<DeviceArray>(value)) return read_device_bias(value, wanted, length);
  py::array array = require_array(value, "bias");
  const py::dtype given = array.dtype();
  const DType type = dtype_of(given, "bias");
  if (type != dtype && type != wanted)
    throw py::type_error("bias has dtype " + dtype_text(given) + ", wanted " +
                         (wanted != dtype       ? "the dtype of input or float32"
                          : dtype == DType::f64 ? "float64"
                                                : "float32"));
  if (array.ndim() != 1 || array.shape(0) != length)
    throw py::value_error("bias has shape " + py::str(array.attr("shape")).cast<std::string>() + bias_wanted(length));
  if (type != wanted || !is_native(given) || !has_element_strides(array) ||
      !has_layout(array, Layout::contiguous_channels))
    array = array.attr("astype")(wanted == DType::f64 ? py::dtype::of<double>() : py::dtype::of<float>(), "C");
  return describe(std::move(array), wanted);
}

View<std::byte*> as_view(const Array& a) {
  View<std::byte*> v{a.data, {}};
  v.stride[4] = 1;
  const int rank = a.ndim - 2;
  for (int i = 0; i < 3; ++i) {
    const int axis = 2 - i;  // W, H, D
    v.stride[1 + axis] = i < rank ? a.stride[rank - i] : a.stride[1] * a.shape[1];
  }
  v.stride[0] = a.stride[0];
  return v;
}

WeightView<std::byte*> as_weight(const Array& a, std::int64_t groups) {
  WeightView<std::byte*> w{a.data};
  const int rank = a.ndim - 2;
  for (int i = 0; i < 3; ++i) w.tap[2 - i] = i < rank ? a.stride[rank - i] : a.stride[1] * a.shape[1];
  w.in = a.stride[a.ndim - 1];
  w.out = a.stride[0];
  w.group = a.stride[0] * (a.shape[0] / groups);
  return w;
}

Extent3 spatial_extents(const Array& a) {
  Extent3 extents{1, 1, 1};
  const int rank = a.ndim - 2;
  for (int i = 0; i < rank; ++i) extents[3 - rank + i] = a.shape[1 + i];
  return extents;
}

std::string dtype_text(const py::dtype& dtype) { return py::str(dtype); }

std::string shape_text(const std::int64_t* shape, std::size_t ndim) {
  std::string text = "(";
  for (std::size_t i = 0; i < ndim; ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + (ndim == 1 ? ",)" : ")");
}

std::string shape_text(const std::vector<std::int64_t>& shape) { return shape_text(shape.data(), shape.size()); }

Destination::Destination(py::handle out, const Array& leading, const std::vector<std::int64_t>& shape, Layout layout)
    : out_(py::reinterpret_borrow<py::object>(out)) {
  if (leading.on_device())
    take_device(leading, shape);
  else if (out.is_none())
    array_ = describe(new_array(leading.native_dtype(), shape), leading.dtype);
  else
    take_host(leading, shape, layout);
}

void Destination::take_host(const Array& leading, const std::vector<std::int64_t>& shape, Layout layout) {
  const py::array out = require_array(out_, "out");
  const py::dtype dtype = leading.native_dtype();
  if (!out.dtype().equal(dtype))
    throw py::type_error("out has dtype " + dtype_text(out.dtype()) + ", wanted " + dtype_text(dtype));
  const std::vector<std::int64_t> given(out.shape(), out.shape() + out.ndim());
  if (given != shape) throw py::value_error("out has shape " + shape_text(given) + ", wanted " + shape_text(shape));
  if (!out.writeable()) throw py::value_error("out is read-only");
  staged_ = !has_element_strides(out) || !has_layout(out, layout);
  if (may_overlap_itself(out)) throw py::value_error("out has elements that share memory with each other");
  array_ = describe(staged_ ? new_array(dtype, shape) : out, leading.dtype);
}

void Destination::take_device(const Array& leading, const std::vector<std::int64_t>& shape) {
  if (out_.is_none()) {
    const std::size_t bytes = static_cast<std::size_t>(elements_of(shape)) * size_bytes(leading.dtype);
    std::shared_ptr<ArrayMemory> memory;
    {
      const WithoutGil release;  // the device may have to finish work first
      memory = leading.home.backend->allocate(bytes);
    }
    const py::object made =
        py::cast(DeviceArray(leading.home, std::move(memory), leading.dtype, leading.numpy_dtype, shape));
    array_ = describe(made.cast<const DeviceArray&>(), made);
    return;
  }
  if (!py::isinstance<DeviceArray>(out_))
    throw py::type_error("out must be a vkconv.Array on " + leading.home.name + ", got " + type_name(out_));
  const auto& out = out_.cast<const DeviceArray&>();
  if (out.device().name != leading.home.name)
    throw py::value_error("out is on " + out.device().name + ", the operands are on " + leading.home.name);
  if (out.dtype() != leading.dtype)
    throw py::type_error("out has dtype " + dtype_text(out.numpy_dtype()) + ", wanted " +
                         dtype_text(leading.numpy_dtype));
  if (out.shape() != shape)
    throw py::value_error("out has shape " + shape_text(out.shape()) + ", wanted " + shape_text(shape));
  array_ = describe(out, out_);
}

void Destination::must_not_overlap(const Array& operand, const char* name) const {
  if (out_.is_none()) return;
  const bool shared = share_memory(array_, out_, operand, numpy->may_share_memory);
  if (shared) throw py::value_error(std::string("out shares memory with ") + name);
}

py::object Destination::finish() {
  if (out_.is_none()) return std::move(array_.owner);
  if (staged_) {
    const auto out = py::reinterpret_borrow<py::array>(out_);
    cpu::StridedCopy c = copy_of(array_, numpy_of(array_));
    c.to = static_cast<std::byte*>(const_cast<void*>(out.data()));
    for (int i = 0; i < c.axes; ++i) c.to_stride[i] = out.strides(i);
    run_copy(c, static_cast<std::size_t>(out.nbytes()));
  }
  return std::move(out_);
}

}  // namespace vkconv::bindings
