// The text form of a problem, in the manner of oneDNN's benchdnn:
//
//   fwd_f32_n1c64o64_i56x56_k3x3_p1x1
//
// PASS_DTYPE_nNcCoO[gG]_iEXTENTS_kEXTENTS then, in any order, _sSTRIDE _dDILATION _tINPUT_DILATION _pPADDING _flip
// _bias _add _PRECISION _ACTIVATION. PASS is fwd, igrad or wgrad; DTYPE is f32, f16, bf16 or f64, with `>f32` behind
// it when the output has another type. Extents are DxHxW, or their trailing axes; padding is `lo` or `lo:hi` an axis.
// leaky_relu and clip carry their numbers: leaky_relu0.01, clip-1:1. Defaults are left out.
#include <algorithm>
#include <charconv>
#include <iterator>
#include <vector>

#include "core/error.h"
#include "core/number_text.h"
#include "core/problem.h"

namespace vkconv {
namespace {

constexpr DType kDTypes[] = {DType::f32, DType::f16, DType::bf16, DType::f64};
constexpr Pass kPasses[] = {Pass::forward, Pass::input_grad, Pass::weight_grad};
constexpr Precision kPrecisions[] = {Precision::highest, Precision::high, Precision::fast};
constexpr Activation kActivations[] = {
    Activation::identity, Activation::relu,    Activation::relu6, Activation::leaky_relu, Activation::silu,
    Activation::gelu,     Activation::sigmoid, Activation::tanh,  Activation::hardswish,  Activation::clip};

// The first axis worth printing: axes before it are all defaults.
int first_axis(const ConvProblem& p) {
  for (int a = 0; a < 2; ++a) {
    const bool trivial = p.input[a] == 1 && p.kernel[a] == 1 && p.output[a] == 1 && p.stride[a] == 1 &&
                         p.dilation[a] == 1 && p.input_dilation[a] == 1 && p.pad_lo[a] == 0;
    if (!trivial) return a;
  }
  return 2;
}

std::string join(const Extent3& e, int first) {
  std::string s;
  for (int a = first; a < 3; ++a) s += (a > first ? "x" : "") + std::to_string(e[a]);
  return s;
}

bool all_equal(const Extent3& e, std::int64_t value) {
  return std::all_of(e.begin(), e.end(), [=](std::int64_t v) { return v == value; });
}

std::string padding_text(const ConvProblem& p, int first) {
  std::string s;
  bool any = false;
  for (int a = first; a < 3; ++a) {
    const std::int64_t lo = p.pad_lo[a];
    const bool symmetric =
        output_extent(p.input[a], p.kernel[a], p.stride[a], p.dilation[a], p.input_dilation[a], lo, lo) == p.output[a];
    any = any || lo != 0 || !symmetric;
    s += (a > first ? "x" : "") + std::to_string(lo);
    if (!symmetric) s += ":" + std::to_string(pad_hi(p, a));
  }
  return any ? "_p" + s : "";
}

std::string number_text(double v) {
  char buffer[32];
  return {buffer, std::to_chars(buffer, std::end(buffer), v).ptr};
}

std::string epilogue_text(const Epilogue& e) {
  std::string s;
  if (e.bias) s += "_bias";
  if (e.addend) s += "_add";
  if (e.activation == Activation::identity) return s;
  s += "_" + std::string(to_string(e.activation));
  if (e.activation == Activation::leaky_relu) s += number_text(e.alpha);
  if (e.activation == Activation::clip) s += number_text(e.alpha) + ":" + number_text(e.beta);
  return s;
}

[[noreturn]] void fail(std::string_view token, const char* wanted) {
  throw ProblemError("problem string: '" + std::string(token) + "' is not " + wanted);
}

template <class T>
T parse_number(std::string_view text, std::string_view token) {
  if (const auto value = number_of<T>(text)) return *value;
  fail(token, "a number");
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == text.npos) return parts;
    text.remove_prefix(at + 1);
  }
}

template <class T, std::size_t N>
bool match(std::string_view token, const T (&values)[N], T& out) {
  for (T v : values)
    if (to_string(v) == token) {
      out = v;
      return true;
    }
  return false;
}

class Parser {
 public:
  ConvProblem parse(std::string_view text) {
    const auto tokens = split(text, '_');
    if (tokens.size() < 5) fail(text, "of the form fwd_f32_n1c1o1_i8_k3");
    if (!match(tokens[0], kPasses, p_.pass)) fail(tokens[0], "fwd, igrad or wgrad");
    parse_dtype(tokens[1]);
    parse_counts(tokens[2]);
    for (std::size_t i = 3; i < tokens.size(); ++i) {
      // leaky_relu holds the separator itself.
      std::string_view token = tokens[i];
      if (token == "leaky" && i + 1 < tokens.size()) token = {token.data(), token.size() + 1 + tokens[++i].size()};
      parse_option(token);
    }
    finish();
    return p_;
  }

 private:
  void parse_dtype(std::string_view token) {
    const auto parts = split(token, '>');
    if (!match(parts[0], kDTypes, p_.dtype)) fail(token, "a dtype (f32, f16, bf16, f64)");
    p_.output_dtype = p_.dtype;
    if (parts.size() > 2 || (parts.size() == 2 && !match(parts[1], kDTypes, p_.output_dtype)))
      fail(token, "a dtype pair such as f16>f32");
  }

  void parse_counts(std::string_view token) {
    std::string_view rest = token;
    auto take = [&](char letter, bool optional, std::int64_t& value) {
      if (rest.empty() || rest[0] != letter) {
        if (!optional) fail(token, "of the form n1c1o1 or n1c1o1g1");
        return;
      }
      rest.remove_prefix(1);
      const std::size_t length = std::min(rest.find_first_not_of("-0123456789"), rest.size());
      value = parse_number<std::int64_t>(rest.substr(0, length), token);
      rest.remove_prefix(length);
    };
    take('n', false, p_.batch);
    take('c', false, p_.in_channels);
    take('o', false, p_.out_channels);
    take('g', true, p_.groups);
    if (!rest.empty()) fail(token, "of the form n1c1o1 or n1c1o1g1");
  }

  void parse_extents(std::string_view token, Extent3& out) {
    const auto parts = split(token.substr(1), 'x');
    const int rank = static_cast<int>(parts.size());
    if (rank > 3 || (rank_ && rank != rank_)) fail(token, "a list with one number an axis");
    rank_ = rank;
    for (int i = 0; i < rank; ++i) out[3 - rank + i] = parse_number<std::int64_t>(parts[i], token);
  }

  void parse_padding(std::string_view token) {
    const auto parts = split(token.substr(1), 'x');
    const int rank = static_cast<int>(parts.size());
    if (rank != rank_) fail(token, "a list with one padding an axis");
    for (int i = 0; i < rank; ++i) {
      const auto sides = split(parts[i], ':');
      if (sides.size() > 2) fail(token, "lo or lo:hi");
      const int a = 3 - rank + i;
      p_.pad_lo[a] = parse_number<std::int64_t>(sides[0], token);
      pad_hi_[a] = sides.size() == 2 ? parse_number<std::int64_t>(sides[1], token) : p_.pad_lo[a];
    }
  }

  void parse_option(std::string_view token) {
    if (parse_word(token)) return;
    if (token.empty()) fail(token, "an option");
    switch (token[0]) {
      case 'i':
        return parse_extents(token, p_.input);
      case 'k':
        return parse_extents(token, p_.kernel);
      case 's':
        return parse_extents(token, p_.stride);
      case 'd':
        return parse_extents(token, p_.dilation);
      case 't':
        return parse_extents(token, p_.input_dilation);
      case 'p':
        return parse_padding(token);
      default:
        fail(token, "an option (i, k, s, d, t, p, flip, bias, add, a precision or an activation)");
    }
  }

  bool parse_word(std::string_view token) {
    Epilogue& e = p_.epilogue;
    if (token == "flip") return p_.flip = true;
    if (token == "bias") return e.bias = true;
    if (token == "add") return e.addend = true;
    if (match(token, kPrecisions, p_.precision) || match(token, kActivations, e.activation)) return true;
    if (token.starts_with("leaky_relu")) {
      e.activation = Activation::leaky_relu;
      e.alpha = parse_number<double>(token.substr(10), token);
      return true;
    }
    if (token.starts_with("clip")) {
      const auto bounds = split(token.substr(4), ':');
      if (bounds.size() != 2) fail(token, "clip with two bounds, as in clip-1:1");
      e.activation = Activation::clip;
      e.alpha = parse_number<double>(bounds[0], token);
      e.beta = parse_number<double>(bounds[1], token);
      return true;
    }
    return false;
  }

  void finish() {
    for (int a = 0; a < 3; ++a) {
      if (p_.stride[a] < 1 || p_.dilation[a] < 1 || p_.input_dilation[a] < 1 || p_.input[a] < 0 || p_.kernel[a] < 0)
        throw ProblemError("problem string: strides and dilations are at least 1, extents at least 0");
      p_.output[a] = output_extent(p_.input[a], p_.kernel[a], p_.stride[a], p_.dilation[a], p_.input_dilation[a],
                                   p_.pad_lo[a], pad_hi_[a]);
      if (p_.output[a] < (p_.input[a] == 0 ? 0 : 1))
        throw ProblemError("problem string: the kernel is larger than the padded input");
    }
    validate(p_);
  }

  ConvProblem p_;
  Extent3 pad_hi_{0, 0, 0};
  int rank_ = 0;
};

}  // namespace

std::string to_string(const ConvProblem& p) {
  const int first = first_axis(p);
  std::string s = std::string(to_string(p.pass)) + "_" + std::string(to_string(p.dtype));
  if (p.output_dtype != p.dtype) s += ">" + std::string(to_string(p.output_dtype));
  s += "_n" + std::to_string(p.batch) + "c" + std::to_string(p.in_channels) + "o" + std::to_string(p.out_channels);
  if (p.groups != 1) s += "g" + std::to_string(p.groups);
  s += "_i" + join(p.input, first) + "_k" + join(p.kernel, first);
  if (!all_equal(p.stride, 1)) s += "_s" + join(p.stride, first);
  if (!all_equal(p.dilation, 1)) s += "_d" + join(p.dilation, first);
  if (!all_equal(p.input_dilation, 1)) s += "_t" + join(p.input_dilation, first);
  s += padding_text(p, first);
  if (p.flip) s += "_flip";
  s += epilogue_text(p.epilogue);
  if (p.precision != Precision::high) s += "_" + std::string(to_string(p.precision));
  return s;
}

ConvProblem parse_problem(std::string_view text) { return Parser().parse(text); }

}  // namespace vkconv
