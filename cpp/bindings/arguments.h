// From Python objects to the integers, words and sequences of a convolution. Every failure is a TypeError or a
// ValueError that names the argument, what came and what was wanted.
#pragma once
#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/border.h"
#include "core/problem.h"

namespace vkconv::bindings {
namespace py = pybind11;

// As a message shows a value: repr() cut to a readable length, and the type's name.
std::string repr_text(py::handle value);
std::string type_name(py::handle value);
std::string counted(std::int64_t n, const std::string& noun);  // "1 value", "2 values"

// `name` is the argument in messages. Booleans are no integers here.
std::int64_t parse_int(py::handle value, const std::string& name, std::int64_t minimum);
double parse_number(py::handle value, const std::string& name);
bool parse_bool(py::handle value, const std::string& name);
std::string parse_word(py::handle value, const std::string& name);  // None is the empty word
std::string required_word(py::handle value, const std::string& name);

// One integer for every spatial axis, or a sequence with one an axis. Axes the rank lacks are `absent`.
Extent3 parse_extents(py::handle value, const std::string& name, int rank, std::int64_t minimum, std::int64_t absent);
// A sequence of `length` integers >= 0.
std::vector<std::int64_t> parse_shape(py::handle value, const std::string& name, int length);

enum class PaddingMode : std::uint8_t { numbers, valid, same, same_lower, full, causal };

struct Padding {
  PaddingMode mode = PaddingMode::numbers;
  Extent3 lo{0, 0, 0}, hi{0, 0, 0};  // of PaddingMode::numbers
};

// padding: an int, one an axis, a pair (lo..., hi...) of sequences, or a word. pads: None or one (lo, hi) an axis.
Padding parse_padding(py::handle padding, py::handle pads, int rank);

// 'zeros', 'reflect', ..., 'constant' or ('constant', value).
Border parse_border(py::handle value);

// None, 'relu', ('leaky_relu', slope), ('clip', lo, hi), ...
void parse_activation(py::handle value, Epilogue& epilogue);
Precision parse_precision(py::handle value);  // None is default_precision()

// Of calls that name none, in every thread: VKCONV_PRECISION, else high.
Precision default_precision();
void set_default_precision(Precision precision);

}  // namespace vkconv::bindings
