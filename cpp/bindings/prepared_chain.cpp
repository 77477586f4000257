#include "bindings/prepared_chain.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "bindings/public_class.h"
#include "bindings/without_gil.h"
#include "core/checked.h"
#include "core/strided_array.h"

namespace vkconv::bindings {
namespace {

// A dense array whose memory comes later.
Array without_memory(DType dtype, const std::vector<std::int64_t>& shape) {
  Array a;
  a.dtype = dtype;
  a.ndim = static_cast<int>(shape.size());
  std::ranges::copy(shape, a.shape.begin());
  std::ranges::copy(dense_strides(shape), a.stride.begin());
  return a;
}

void allocate(Array& a) {
  std::size_t bytes = size_bytes(a.dtype);
  for (int i = 0; i < a.ndim; ++i) bytes *= static_cast<std::size_t>(a.shape[i]);
  a.copy = cpu::Buffer(bytes);
  a.data = a.copy.pointer();
}

void require(const Array& a, const char* name, DType dtype, int rank) {
  if (a.dtype != dtype)
    throw py::type_error(std::string(name) + " of a step has dtype " + std::string(to_string(a.dtype)) + ", wanted " +
                         std::string(to_string(dtype)));
  if (a.ndim != rank + 2)
    throw py::value_error(std::string(name) + " of a step has " + std::to_string(a.ndim) + " dimensions, wanted " +
                          std::to_string(rank + 2));
}

void require_dense(const Array& a, const char* name) {
  const Array dense = without_memory(a.dtype, a.extents());
  for (int i = 0; i < a.ndim; ++i)
    if (a.shape[i] > 1 && a.stride[i] != dense.stride[i])
      throw py::value_error(std::string(name) + " of a step has gaps");
}

cpu::Pixels pixels_of(const Array& a) {
  cpu::Pixels p{a.dtype, a.shape[0], 1, a.last()};
  for (int i = 1; i + 1 < a.ndim; ++i) p.count = checked_mul(p.count, a.shape[i]);
  return p;
}

std::vector<std::int64_t> shape_of_means(const Array& a) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(a.ndim), 1);
  shape.front() = a.shape[0];
  shape.back() = a.last();
  return shape;
}

}  // namespace

PreparedChain::PreparedChain(std::size_t inputs, const std::vector<Operands>& steps, std::vector<std::size_t> results)
    : inputs_(inputs), results_(std::move(results)) {
  for (const auto& [owner, input, second] : steps) {
    if (std::max(input, second.value_or(0)) >= inputs_ + steps_.size())
      throw py::value_error("a step reads what is computed after it");
    steps_.push_back({owner, owner.cast<const PreparedConvolution*>(), input, second, {}});
  }
  std::set<std::size_t> read_later(results_.begin(), results_.end());
  for (const std::size_t place : read_later)
    if (place < inputs_ || place >= inputs_ + steps_.size()) throw py::value_error("no step computes a result");
  if (read_later.size() != results_.size()) throw py::value_error("a result is asked for twice");
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step)
    for (const std::optional<std::size_t> place : {std::optional(step->input), step->second})
      if (place && *place >= inputs_ && read_later.insert(*place).second) step->read_last.push_back(*place);
}

py::list PreparedChain::call(const py::args& arrays) const {
  std::vector<Array> values = read(arrays);
  const std::vector<Work> works = plan(values);
  {
    const WithoutGilForLong release;
    run(works, values);
  }
  py::list made;
  for (const std::size_t place : results_) {
    Array& a = values[place];
    // Operands of a step have its result's type, or that of its sums: some array that came in has it.
    const auto like = std::ranges::find(values, a.dtype, &Array::dtype);
    if (like >= values.begin() + static_cast<std::ptrdiff_t>(inputs_))
      throw py::type_error("no array that came in has the type of a result");
    made.append(array_in(std::move(a.copy), like->native_dtype(), a.extents()));
  }
  return made;
}

std::vector<Array> PreparedChain::read(const py::args& arrays) const {
  if (arrays.size() != inputs_)
    throw py::type_error("got " + std::to_string(arrays.size()) + " arrays, wanted " + std::to_string(inputs_));
  std::vector<Array> values;
  for (const py::handle array : arrays) {
    Array& a = values.emplace_back(read_array(array, "input", 3, kMaxDimensions, Layout::contiguous_channels));
    if (a.on_device()) throw py::type_error("input is a vkconv.Array, wanted a NumPy array");
    a.settle();
  }
  return values;
}

std::vector<PreparedChain::Work> PreparedChain::plan(std::vector<Array>& values) const {
  std::vector<Work> works;
  values.reserve(inputs_ + steps_.size());
  for (const Step& step : steps_) {
    const Array& input = values[step.input];
    const Array* second = step.second ? &values[*step.second] : nullptr;
    Work& work = works.emplace_back();
    if (step.convolution) {
      const ForwardSpec& spec = step.convolution->spec();
      require(input, "input", spec.dtype, spec.geometry.rank);
      if (second) require(*second, "addend", accumulator(spec.dtype), spec.geometry.rank);
      work.problem = forward_problem(spec, input, second);
      values.push_back(without_memory(spec.dtype, output_shape(spec.geometry.rank, *work.problem)));
      continue;
    }
    std::vector<std::int64_t> shape = shape_of_means(input);
    require(input, "input", accumulator(input.dtype), input.ndim - 2);
    require_dense(input, "input");
    if (second) {
      require(*second, "factor", input.dtype, input.ndim - 2);
      require_dense(*second, "factor");
      if (!std::equal(shape.begin(), shape.end(), second->shape.begin()))
        throw py::value_error("the factors of a step are not one for each channel");
      shape = input.extents();
    }
    work.pixels = pixels_of(input);
    values.push_back(without_memory(input.dtype, shape));
  }
  return works;
}

void PreparedChain::run(const std::vector<Work>& works, std::vector<Array>& values) const {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    Array& output = values[inputs_ + i];
    if (output.empty())
      allocate(output);
    else
      run(steps_[i], works[i], values, output);
    for (const std::size_t place : steps_[i].read_last) values[place].copy = {};
  }
}

void PreparedChain::run(const Step& step, const Work& work, std::vector<Array>& values, Array& output) {
  Array& input = values[step.input];
  Array* second = step.second ? &values[*step.second] : nullptr;
  if (step.convolution) {
    allocate(output);
    const ForwardSpec& spec = step.convolution->spec();
    return execute_without_interpreter(
        spec.options, *work.problem,
        forward_execution(*work.problem, input, step.convolution->weights(), second, output), spec.geometry.border);
  }
  if (!second) {
    allocate(output);
    return cpu::channel_means(work.pixels, input.data, output.data);
  }
  const auto& last = step.read_last;
  if (std::find(last.begin(), last.end(), step.input) != last.end()) {  // its memory serves the result
    output.copy = std::move(input.copy);
    output.data = input.data;
  } else {
    allocate(output);
  }
  cpu::multiply_channels(work.pixels, input.data, second->data, output.data);
}

void bind_prepared_chain(py::module_& m) {
  py::class_<PreparedChain> type(m, "PreparedChain");
  made_only_by(type, "vkconv.torch");
  type.def("__call__", &PreparedChain::call);
  m.def("prepare_chain", [](std::size_t inputs, const py::list& steps, const py::list& results) {
    return std::make_unique<PreparedChain>(inputs, steps.cast<std::vector<PreparedChain::Operands>>(),
                                           results.cast<std::vector<std::size_t>>());
  });
}

}  // namespace vkconv::bindings
