#include "core/problem.h"

#include <algorithm>
#include <cmath>

#include "core/checked.h"

namespace vkconv {
namespace {

constexpr const char* kAxisNames[3] = {"depth", "height", "width"};

std::int64_t checked_product(std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  for (std::int64_t f : factors) product = checked_mul(product, f);
  return product;
}

[[noreturn]] void refuse(const std::string& message) { throw ProblemError(message); }

// No array that exists reaches further; and every position that an index map computes fits in 64 bits together with the
// bytes of a pixel or of a kernel that it is multiplied by.
constexpr std::int64_t kMostStep = (std::int64_t{1} << 31) - 1, kMostPadding = std::int64_t{1} << 40;

void validate_step(const char* name, int a, std::int64_t step, std::int64_t used) {
  if (step >= 1 && used <= kMostStep) return;
  refuse(std::string(name) + " along " + kAxisNames[a] + " is " + std::to_string(step) + ", wanted 1 to " +
         std::to_string(kMostStep));
}

// `used` is canonical(p): a step that nothing takes may be of any length.
void validate_axis(const ConvProblem& p, const ConvProblem& used, int a) {
  validate_step("stride", a, p.stride[a], used.stride[a]);
  validate_step("dilation (kernel_dilation)", a, p.dilation[a], used.dilation[a]);
  validate_step("input_dilation (the stride of a transposed convolution)", a, p.input_dilation[a],
                used.input_dilation[a]);
  if (p.input[a] < 0 || p.kernel[a] < 0 || p.output[a] < 0)
    refuse(std::string("negative extent along ") + kAxisNames[a]);
  checked_add(checked_mul(p.output[a], used.stride[a]), checked_mul(p.kernel[a], used.dilation[a]));
  checked_mul(p.input[a], used.input_dilation[a]);
  if (p.pad_lo[a] < -kMostPadding || p.pad_lo[a] > kMostPadding || pad_hi(used, a) > kMostPadding)
    refuse(std::string("padding along ") + kAxisNames[a] + " is beyond " + std::to_string(kMostPadding));
}

void validate_channels(std::int64_t channels, std::int64_t groups, const char* name) {
  if (channels % groups != 0)
    refuse("groups " + std::to_string(groups) + " does not divide the " + std::to_string(channels) + " " + name +
           " channels");
}

}  // namespace

std::int64_t ConvProblem::written_elements() const {
  if (pass == Pass::forward) return output_elements();
  return pass == Pass::input_grad ? input_elements() : weight_elements();
}

double ConvProblem::flops() const {
  return 2.0 * static_cast<double>(output_elements()) * static_cast<double>(taps()) *
         static_cast<double>(in_channels_per_group());
}

double ConvProblem::bytes_moved() const {
  const double in = static_cast<double>(size_bytes(dtype)), out = static_cast<double>(size_bytes(output_dtype));
  const double x = static_cast<double>(input_elements()), w = static_cast<double>(weight_elements()),
               y = static_cast<double>(output_elements());
  if (pass == Pass::input_grad) return (y + w) * in + x * out;
  double met = x;  // by taps
  for (int a = 0; a < 3; ++a)
    met *= std::min(1.0, static_cast<double>(kernel[a] * input_dilation[a]) / static_cast<double>(stride[a]));
  return pass == Pass::forward ? (met + w) * in + y * out : (met + y) * in + w * out;
}

std::int64_t output_extent(std::int64_t input, std::int64_t kernel, std::int64_t stride, std::int64_t dilation,
                           std::int64_t input_dilation, std::int64_t pad_lo, std::int64_t pad_hi) {
  const std::int64_t signal = input > 0 ? checked_add(checked_mul(input - 1, input_dilation), 1) : 0;
  const std::int64_t reach = checked_mul(kernel - 1, dilation);
  const std::int64_t last = checked_add(checked_add(signal, checked_add(pad_lo, pad_hi)), -checked_add(reach, 1));
  return floor_div(last, stride) + 1;
}

std::int64_t pad_hi(const ConvProblem& p, int a) {
  const std::int64_t needed = (p.output[a] - 1) * p.stride[a] + (p.kernel[a] - 1) * p.dilation[a] + 1;
  return needed - dilated(p.input[a], p.input_dilation[a]) - p.pad_lo[a];
}

ConvProblem canonical(ConvProblem p) {
  for (int a = 0; a < 3; ++a) {
    if (p.kernel[a] <= 1) p.dilation[a] = 1;
    if (p.output[a] <= 1) p.stride[a] = 1;
    if (p.input[a] <= 1) p.input_dilation[a] = 1;
  }
  return p;
}

void validate(const ConvProblem& p) {
  if (p.groups < 1) refuse("groups is " + std::to_string(p.groups) + ", wanted >= 1");
  if (p.output_dtype != p.dtype && p.output_dtype != accumulator(p.dtype))
    refuse("the output is neither of the operands' type nor of the one that sums have");
  if (p.batch < 0 || p.in_channels < 0 || p.out_channels < 0) refuse("negative batch or channel count");
  validate_channels(p.in_channels, p.groups, "input");
  validate_channels(p.out_channels, p.groups, "output");
  // Caches of plans compare problems, and NaN would equal any number there.
  if (std::isnan(p.epilogue.alpha) || std::isnan(p.epilogue.beta)) refuse("a parameter of the activation is NaN");
  const ConvProblem used = canonical(p);
  for (int a = 0; a < 3; ++a) validate_axis(p, used, a);
  constexpr std::int64_t kBytes = 8;
  checked_product({p.batch, p.input[0], p.input[1], p.input[2], p.in_channels, kBytes});
  checked_product({p.batch, p.output[0], p.output[1], p.output[2], p.out_channels, kBytes});
  checked_product({p.out_channels, p.kernel[0], p.kernel[1], p.kernel[2], p.in_channels_per_group(), kBytes});
}

ConvProblem input_grad_as_forward(const ConvProblem& p) {
  ConvProblem f = p;
  f.pass = Pass::forward;
  f.flip = !p.flip;
  f.in_channels = p.out_channels;
  f.out_channels = p.in_channels;
  f.input = p.output;
  f.output = p.input;
  f.stride = p.input_dilation;
  f.input_dilation = p.stride;
  for (int a = 0; a < 3; ++a) f.pad_lo[a] = (p.kernel[a] - 1) * p.dilation[a] - p.pad_lo[a];
  return f;
}

// In the order of the enumerations.
std::string_view to_string(Pass pass) {
  constexpr std::string_view names[] = {"fwd", "igrad", "wgrad"};
  return names[static_cast<std::size_t>(pass)];
}

std::string_view to_string(Precision precision) {
  constexpr std::string_view names[] = {"highest", "high", "fast"};
  return names[static_cast<std::size_t>(precision)];
}

std::string_view to_string(Activation activation) {
  constexpr std::string_view names[] = {"identity", "relu",    "relu6", "leaky_relu", "silu",
                                        "gelu",     "sigmoid", "tanh",  "hardswish",  "clip"};
  return names[static_cast<std::size_t>(activation)];
}

}  // namespace vkconv
