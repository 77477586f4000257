#include "bindings/arguments.h"

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

namespace vkconv::bindings {
namespace {

constexpr std::size_t kReprLength = 80;

bool is_text(py::handle value) {
  return PyUnicode_Check(value.ptr()) || PyBytes_Check(value.ptr()) || PyByteArray_Check(value.ptr());
}

// Takes away the error that Python code of an argument raised, where it says that the argument is of a wrong kind; an
// interruption, say, goes on.
void clear_wrong_kind() {
  for (PyObject* kind : {PyExc_TypeError, PyExc_ValueError, PyExc_OverflowError})
    if (PyErr_ExceptionMatches(kind)) return PyErr_Clear();
  throw py::error_already_set();
}

// The items of a list, tuple, 1-D array or other sequence, as they are before code of theirs runs; nothing for text and
// for what cannot be iterated.
std::optional<py::tuple> sequence_of(py::handle value) {
  if (PyLong_Check(value.ptr()) || is_text(value) || !PySequence_Check(value.ptr())) return std::nullopt;
  PyObject* items = PySequence_Tuple(value.ptr());
  if (!items) {
    clear_wrong_kind();  // a zero-dimensional array
    return std::nullopt;
  }
  return py::reinterpret_steal<py::tuple>(items);
}

Py_ssize_t length_of(const py::tuple& items) { return PyTuple_GET_SIZE(items.ptr()); }
py::handle item_of(const py::tuple& items, Py_ssize_t i) { return PyTuple_GET_ITEM(items.ptr(), i); }

[[noreturn]] void wrong_type(const std::string& name, const std::string& wanted, py::handle got) {
  throw py::type_error(name + " must be " + wanted + ", got " + type_name(got));
}

Extent3 parse_axes(const py::tuple& items, const std::string& name, int rank, std::int64_t minimum,
                   std::int64_t absent) {
  if (length_of(items) != rank)
    throw py::value_error(name + " has " + counted(length_of(items), "value") + ", wanted an integer or " +
                          counted(rank, "value") + ", one for each spatial axis");
  Extent3 extents{absent, absent, absent};
  for (int i = 0; i < rank; ++i) extents[3 - rank + i] = parse_int(item_of(items, i), name, minimum);
  return extents;
}

// No sum of two paddings overflows.
constexpr std::int64_t kLeastPadding = -(std::int64_t{1} << 62);

constexpr std::string_view kPaddingModes[] = {"numbers", "valid", "same", "same_lower", "full", "causal"};

std::string_view to_string(PaddingMode mode) { return kPaddingModes[static_cast<std::size_t>(mode)]; }

// The value in [first, last] that `word` names. `others` is what the argument may be beside such a word.
template <class E>
E named(py::handle word, const std::string& argument, E first, E last, const std::string& others = "") {
  std::string names;
  for (auto e = static_cast<int>(first); e <= static_cast<int>(last); ++e)
    if (PyUnicode_CompareWithASCIIString(word.ptr(), to_string(static_cast<E>(e)).data()) == 0)
      return static_cast<E>(e);
  for (auto e = static_cast<int>(first); e <= static_cast<int>(last); ++e)
    names += (names.empty() ? "'" : ", '") + std::string(to_string(static_cast<E>(e))) + "'";
  throw py::value_error(argument + " is " + repr_text(word) + ", wanted " + others + "one of " + names);
}

Precision named_precision(py::handle word, const std::string& argument) {
  return named(word, argument, Precision::highest, Precision::fast);
}

std::atomic<Precision>& process_precision() {
  static std::atomic<Precision> precision = [] {
    const char* text = std::getenv("VKCONV_PRECISION");
    return text && *text ? named_precision(py::str(text), "VKCONV_PRECISION") : Precision::high;
  }();
  return precision;
}

// (lo..., hi...): two sequences with one number an axis each, as in MLX.
Padding parse_lo_hi(const py::tuple& items, int rank) {
  if (length_of(items) != 2)
    throw py::value_error("padding has " + counted(length_of(items), "sequence") +
                          ", wanted the pair (lo..., hi...); pads=[(lo, hi), ...] takes one pair an axis");
  Padding parsed;
  for (int side = 0; side < 2; ++side) {
    const auto values = sequence_of(item_of(items, side));
    if (!values) wrong_type("padding", "a pair of sequences (lo..., hi...)", item_of(items, side));
    (side == 0 ? parsed.lo : parsed.hi) = parse_axes(*values, "padding", rank, kLeastPadding, 0);
  }
  return parsed;
}

Padding parse_pads(py::handle pads, int rank) {
  const auto axes = sequence_of(pads);
  if (!axes) wrong_type("pads", "a sequence of pairs (lo, hi), one for each spatial axis", pads);
  if (length_of(*axes) != rank)
    throw py::value_error("pads has " + counted(length_of(*axes), "item") + ", wanted " + counted(rank, "pair") +
                          " (lo, hi), one for each spatial axis");
  Padding parsed;
  for (int i = 0; i < rank; ++i) {
    const auto pair = sequence_of(item_of(*axes, i));
    if (!pair) wrong_type("pads", "a sequence of pairs (lo, hi)", item_of(*axes, i));
    if (length_of(*pair) != 2)
      throw py::value_error("pads has an item with " + counted(length_of(*pair), "value") + ", wanted a pair (lo, hi)");
    parsed.lo[3 - rank + i] = parse_int(item_of(*pair, 0), "pads", kLeastPadding);
    parsed.hi[3 - rank + i] = parse_int(item_of(*pair, 1), "pads", kLeastPadding);
  }
  return parsed;
}

bool is_zero(py::handle value) {
  return PyLong_CheckExact(value.ptr()) && PyObject_RichCompareBool(value.ptr(), py::int_(0).ptr(), Py_EQ) == 1;
}

}  // namespace

std::string repr_text(py::handle value) {
  const py::str text = py::repr(value);
  if (py::len(text) <= kReprLength) return text;
  return py::cast<std::string>(text[py::slice(0, kReprLength, 1)]) + "...";
}

std::string type_name(py::handle value) {
  return value.is_none() ? "None" : py::str(py::type::of(value).attr("__name__"));
}

std::string counted(std::int64_t n, const std::string& noun) {
  return std::to_string(n) + " " + noun + (n == 1 ? "" : "s");
}

std::int64_t parse_int(py::handle value, const std::string& name, std::int64_t minimum) {
  if (PyBool_Check(value.ptr()) || !PyIndex_Check(value.ptr())) wrong_type(name, "an integer", value);
  const auto index = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
  if (!index) {
    clear_wrong_kind();
    wrong_type(name, "an integer", value);
  }
  int overflow = 0;
  const long long parsed = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (overflow != 0) throw py::value_error(name + " is " + repr_text(index) + ", which exceeds 64-bit integers");
  if (parsed < minimum)
    throw py::value_error(name + " is " + std::to_string(parsed) + ", wanted at least " + std::to_string(minimum));
  return parsed;
}

double parse_number(py::handle value, const std::string& name) {
  const bool number = PyFloat_Check(value.ptr()) || PyIndex_Check(value.ptr()) ||
                      (Py_TYPE(value.ptr())->tp_as_number && Py_TYPE(value.ptr())->tp_as_number->nb_float);
  if (PyBool_Check(value.ptr()) || is_text(value) || !number) wrong_type(name, "a number", value);
  const double parsed = PyFloat_AsDouble(value.ptr());
  if (PyErr_Occurred()) {
    clear_wrong_kind();
    wrong_type(name, "a number", value);
  }
  if (std::isnan(parsed)) throw py::value_error(name + " is NaN, wanted a number");
  return parsed;
}

bool parse_bool(py::handle value, const std::string& name) {
  if (!PyBool_Check(value.ptr())) wrong_type(name, "a bool", value);
  return value.ptr() == Py_True;
}

std::string required_word(py::handle value, const std::string& name) {
  if (!PyUnicode_Check(value.ptr())) wrong_type(name, "a string", value);
  Py_ssize_t length = 0;
  const char* text = PyUnicode_AsUTF8AndSize(value.ptr(), &length);
  if (text && length == 0) throw py::value_error(name + " is an empty string");
  if (text && std::strlen(text) == static_cast<std::size_t>(length)) return text;
  PyErr_Clear();  // half of a surrogate pair; a NUL would end messages
  throw py::value_error(name + " is " + repr_text(value) + ", wanted text");
}

std::string parse_word(py::handle value, const std::string& name) {
  if (value.is_none()) return {};
  if (!PyUnicode_Check(value.ptr())) wrong_type(name, "a string or None", value);
  return required_word(value, name);
}

Extent3 parse_extents(py::handle value, const std::string& name, int rank, std::int64_t minimum, std::int64_t absent) {
  if (const auto items = sequence_of(value)) return parse_axes(*items, name, rank, minimum, absent);
  if (PyBool_Check(value.ptr()) || !PyIndex_Check(value.ptr()))
    wrong_type(name, "an integer or a sequence of " + counted(rank, "integer"), value);
  const std::int64_t every = parse_int(value, name, minimum);
  Extent3 extents{absent, absent, absent};
  for (int a = 3 - rank; a < 3; ++a) extents[a] = every;
  return extents;
}

std::vector<std::int64_t> parse_shape(py::handle value, const std::string& name, int length) {
  const auto items = sequence_of(value);
  // An array given for its shape is a sequence too.
  if (!items || (py::hasattr(value, "ndim") && parse_int(value.attr("ndim"), name, 0) != 1))
    wrong_type(name, "a sequence of " + counted(length, "integer"), value);
  if (length_of(*items) != length)
    throw py::value_error(name + " has " + counted(length_of(*items), "value") + ", wanted " + std::to_string(length));
  std::vector<std::int64_t> shape;
  for (int i = 0; i < length; ++i) shape.push_back(parse_int(item_of(*items, i), name, 0));
  return shape;
}

Padding parse_padding(py::handle padding, py::handle pads, int rank) {
  if (!pads.is_none()) {
    if (!is_zero(padding)) throw py::value_error("padding and pads are both given, wanted one of them");
    return parse_pads(pads, rank);
  }
  Padding parsed;
  if (PyUnicode_Check(padding.ptr())) {
    parsed.mode = named(padding, "padding", PaddingMode::valid, PaddingMode::causal, "numbers or ");
    return parsed;
  }
  const auto items = sequence_of(padding);
  if (items && length_of(*items) > 0 && sequence_of(item_of(*items, 0))) return parse_lo_hi(*items, rank);
  if (!items && (PyBool_Check(padding.ptr()) || !PyIndex_Check(padding.ptr())))
    wrong_type("padding", "an integer, a sequence, a pair (lo..., hi...) of sequences or a string", padding);
  parsed.lo = parsed.hi = parse_extents(padding, "padding", rank, kLeastPadding, 0);
  return parsed;
}

Border parse_border(py::handle value) {
  const bool tuple = PyTuple_Check(value.ptr()) && PyTuple_GET_SIZE(value.ptr()) > 0;
  const py::handle name = tuple ? PyTuple_GET_ITEM(value.ptr(), 0) : value.ptr();
  const Py_ssize_t parameters = tuple ? PyTuple_GET_SIZE(value.ptr()) - 1 : 0;
  const auto wrong = [&] {
    return py::type_error("padding_mode must be a string or a tuple ('constant', value), got " + repr_text(value));
  };
  if (!PyUnicode_Check(name.ptr())) throw wrong();
  Border border{named(name, "padding_mode", BorderMode::zeros, BorderMode::constant)};
  if (parameters > (border.mode == BorderMode::constant))
    throw py::value_error("padding_mode '" + std::string(to_string(border.mode)) + "' takes " +
                          (border.mode == BorderMode::constant ? "one parameter" : "no parameters"));
  if (parameters == 0) return border;
  border.value = PyFloat_AsDouble(PyTuple_GET_ITEM(value.ptr(), 1));
  if (!PyErr_Occurred()) return border;
  clear_wrong_kind();
  throw wrong();
}

void parse_activation(py::handle value, Epilogue& epilogue) {
  if (value.is_none()) return;
  const auto items = sequence_of(value);
  const bool has_name = items && length_of(*items) > 0 && PyUnicode_Check(item_of(*items, 0).ptr());
  if (!has_name && !PyUnicode_Check(value.ptr()))
    wrong_type("activation", "a string, a tuple (name, parameters...) or None", value);
  epilogue.activation =
      named(has_name ? item_of(*items, 0) : value, "activation", Activation::identity, Activation::clip, "None or ");
  const Py_ssize_t parameters = has_name ? length_of(*items) - 1 : 0;
  const auto parameter = [&](int i) { return parse_number(item_of(*items, i), "activation parameter"); };
  switch (epilogue.activation) {
    case Activation::leaky_relu:
      if (parameters > 1) throw py::value_error("activation 'leaky_relu' takes one parameter, its slope");
      epilogue.alpha = parameters == 1 ? parameter(1) : 0.01;
      return;
    case Activation::clip:
      if (parameters != 2) throw py::value_error("activation 'clip' takes two parameters: ('clip', lo, hi)");
      epilogue.alpha = parameter(1);
      epilogue.beta = parameter(2);
      if (epilogue.alpha > epilogue.beta) throw py::value_error("activation 'clip' has a lower bound above the upper");
      return;
    default:
      if (parameters != 0)
        throw py::value_error("activation '" + std::string(to_string(epilogue.activation)) + "' takes no parameters");
  }
}

Precision parse_precision(py::handle value) {
  if (value.is_none()) return default_precision();
  if (!PyUnicode_Check(value.ptr())) wrong_type("precision", "'highest', 'high', 'fast' or None", value);
  return named_precision(value, "precision");
}

Precision default_precision() { return process_precision(); }
void set_default_precision(Precision precision) { process_precision() = precision; }

}  // namespace vkconv::bindings
