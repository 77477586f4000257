// A convolution in canonical form. Every public operation builds one ConvProblem, and everything below the
// Python layer (planner, algorithms, logs, bench, bug reports) speaks only of it.
//
// Geometry is always that of the forward convolution with three spatial axes D, H, W (missing ones are 1):
//   input  x (N, D, H, W, C)    weight w (O, KD, KH, KW, C/groups)    output y (N, OD, OH, OW, O)
//   y[n, p, o] = sum over k, c of x~[n, p * stride + k * dilation - pad_lo, c] * w[o, k, c]
// where x~ is x with (input_dilation - 1) zeros between its elements and zeros outside. `pass` says which of the
// three arrays is computed from the other two. The high padding is not a field: it is implied by `output`.
#pragma once
#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/dtype.h"

namespace vkconv {

enum class Pass : std::uint8_t { forward, input_grad, weight_grad };

// What may be traded for speed. highest: direct sums only. high: also algorithms whose error stays within the bound
// that python/vkconv/_ops.py documents. fast: also those beyond it.
enum class Precision : std::uint8_t { highest, high, fast };

enum class Activation : std::uint8_t { identity, relu, relu6, leaky_relu, silu, gelu, sigmoid, tanh, hardswish, clip };

using Extent3 = std::array<std::int64_t, 3>;  // D, H, W

// y = activation(sum + addend + bias), one rounding. `addend` holds accumulator-type partial sums with the shape
// of the output; a decomposition chains its children through it.
struct Epilogue {
  bool bias = false;
  bool addend = false;
  Activation activation = Activation::identity;
  double alpha = 0;  // leaky_relu: slope; clip: lower bound
  double beta = 0;   // clip: upper bound
  auto operator<=>(const Epilogue&) const = default;
  bool operator==(const Epilogue&) const = default;
};

struct ConvProblem {
  Pass pass = Pass::forward;
  DType dtype = DType::f32;         // of the operands read
  DType output_dtype = DType::f32;  // of the array written: dtype, or accumulator(dtype) for partial sums
  Precision precision = Precision::high;
  bool flip = false;  // true: the kernel is mirrored along every axis (convolution, not correlation)
  std::int64_t batch = 1, in_channels = 1, out_channels = 1, groups = 1;
  Extent3 input{1, 1, 1}, kernel{1, 1, 1}, output{1, 1, 1};
  Extent3 stride{1, 1, 1}, dilation{1, 1, 1}, input_dilation{1, 1, 1}, pad_lo{0, 0, 0};
  Epilogue epilogue;

  auto operator<=>(const ConvProblem&) const = default;
  bool operator==(const ConvProblem&) const = default;

  std::int64_t in_channels_per_group() const { return in_channels / groups; }
  std::int64_t out_channels_per_group() const { return out_channels / groups; }
  std::int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  std::int64_t input_pixels() const { return input[0] * input[1] * input[2]; }
  std::int64_t output_pixels() const { return output[0] * output[1] * output[2]; }
  std::int64_t input_elements() const { return batch * input_pixels() * in_channels; }
  std::int64_t weight_elements() const { return out_channels * taps() * in_channels_per_group(); }
  std::int64_t output_elements() const { return batch * output_pixels() * out_channels; }
  std::int64_t written_elements() const;  // of the array that the pass computes
  // Of the input, the weight or the output, which are named by the pass that computes them.
  DType dtype_of(Pass array) const { return array == pass ? output_dtype : dtype; }
  bool empty_sum() const { return taps() == 0 || in_channels == 0; }
  bool input_dilated() const { return input_dilation != Extent3{1, 1, 1}; }
  bool depthwise() const { return groups == in_channels && groups > 0; }

  // Multiply-adds counted as two, zeros of the padding and of input_dilation included.
  double flops() const;
  double bytes_moved() const;  // each element that is read or written, once
};

constexpr std::int64_t dilated(std::int64_t extent, std::int64_t dilation) {
  return extent > 0 ? (extent - 1) * dilation + 1 : 0;
}

// Extent of the output along one axis; negative or zero when the kernel does not fit. Overflow throws ProblemError.
std::int64_t output_extent(std::int64_t input, std::int64_t kernel, std::int64_t stride, std::int64_t dilation,
                           std::int64_t input_dilation, std::int64_t pad_lo, std::int64_t pad_hi);

// The smallest high padding that gives `output` along the axis.
std::int64_t pad_hi(const ConvProblem& p, int axis);

// The same problem with every field that cannot matter at its default (the stride of a single output, the dilation of
// a single tap), so that equal work shares a plan. `flip` is left to canonicalize() in backend.h.
ConvProblem canonical(ConvProblem p);

// Throws ProblemError when the fields contradict each other or a size overflows.
void validate(const ConvProblem& p);

// The forward problem whose output is the input gradient of `p`: its weight is p's with in and out swapped in each
// group and the kernel mirrored, its input is the output gradient dilated by the stride.
ConvProblem input_grad_as_forward(const ConvProblem& p);

// fwd_f32_n1c64o64_i56x56_k3x3_p1x1 and back: see problem_text.cpp for the grammar.
std::string to_string(const ConvProblem& p);
ConvProblem parse_problem(std::string_view text);

std::string_view to_string(Pass pass);
std::string_view to_string(Precision precision);
std::string_view to_string(Activation activation);

}  // namespace vkconv
