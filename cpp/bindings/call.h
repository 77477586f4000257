// One operation on its way from arguments to a result: the geometry a caller describes, the request the planner sees,
// and the execution with the interpreter's lock released.
#pragma once
#include <pybind11/pybind11.h>

#include <cstddef>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/arguments.h"
#include "bindings/arrays.h"
#include "bindings/devices.h"
#include "core/backend.h"

namespace vkconv::bindings {

// The arguments every operation shares.
struct Options {
  Precision precision = Precision::high;
  OpenDevice device;
  std::string algorithm;
  std::size_t workspace_limit_bytes = 0;
};
struct OptionArguments {
  py::handle precision, device, algorithm, workspace_limit;
};
Options parse_options(const OptionArguments& arguments);
// The same beside an operand that lives on a device: the operation runs there.
Options parse_options(const OptionArguments& arguments, const Array& leading, const char* leading_name);

// The index map a caller describes; numbers that depend on the input's size are filled in by apply().
struct Geometry {
  int rank = 0;
  Extent3 stride{1, 1, 1}, dilation{1, 1, 1}, input_dilation{1, 1, 1};
  Padding padding;
  std::int64_t groups = 1;
  bool flip = false;
  Border border;
  std::optional<Padding> crop;  // of a transposed convolution: the padding its caller gave

  // Completes `p`, whose batch, channels, input and kernel are set: strides, pad_lo, groups, output. Throws
  // ProblemError when the kernel does not fit into the padded input. Padding for as many outputs as inputs (over the
  // stride) makes an empty axis of an empty one.
  void apply(ConvProblem& p) const;
  // A transposed convolution is a convolution of the dilated signal with the mirrored kernel.
  void transpose(const Extent3& kernel, const Extent3& output_padding);

 private:
  [[noreturn]] void no_output(const ConvProblem& p, int axis, std::int64_t lo, std::int64_t hi) const;
};

// What `explain` asks of an operation: its request, instead of the execution.
struct Captured {
  bool filled = false;
  PlanRequest request;
  OpenDevice device;
  bool flip = false;  // what the request's problem has not: there it is in the weight's strides
};

// Makes execute() of this thread record its request and compute nothing, during its life.
class CaptureScope {
 public:
  explicit CaptureScope(Captured& target);
  ~CaptureScope();
  CaptureScope(const CaptureScope&) = delete;

 private:
  Captured* outer_;
};
bool capturing();

// A problem that execute() was asked to compute: device, problem, and whether its weights were prepared.
using Noted = std::tuple<std::string, std::string, bool>;
// Those since the last call, without forced algorithms; and whether to go on noting them.
std::vector<Noted> noted_problems(bool go_on);

// Runs the problem, or records its request when this thread captures: that of the largest part where the border is not
// zeros. With VKCONV_LOG set, writes a line to stderr for every request; work on arrays of a device is then waited for.
void execute(const Options& options, ConvProblem problem, Execution execution, const Border& border = {});

// The same on host arrays by a thread that has no lock of the interpreter.
void execute_without_interpreter(const Options& options, ConvProblem problem, Execution execution,
                                 const Border& border = {});
// Those of a call that gives none.
Options default_options(const OpenDevice& device);

}  // namespace vkconv::bindings
