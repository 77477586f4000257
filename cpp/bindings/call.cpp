#include "bindings/call.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>

#include "bindings/description.h"
#include "bindings/without_gil.h"
#include "core/bordered_execution.h"
#include "core/checked.h"
#include "core/error.h"
#include "core/fork_mutex.h"
#include "core/number_text.h"

namespace vkconv::bindings {
namespace {

thread_local Captured* capture = nullptr;

std::atomic<bool> noting = false;
ForkMutex noted_mutex;
std::set<Noted> noted;

bool logging() {
  static const bool enabled = [] {
    const char* text = std::getenv("VKCONV_LOG");
    return text && *text && std::strcmp(text, "0") != 0;
  }();
  return enabled;
}

// VKCONV_WORKSPACE_LIMIT in bytes, or the default.
std::size_t default_workspace_limit() {
  static const std::size_t limit = [] {
    const char* given = std::getenv("VKCONV_WORKSPACE_LIMIT");
    if (!given || !*given) return kDefaultWorkspaceLimitBytes;
    if (const auto bytes = number_of<std::size_t>(given)) return *bytes;
    throw ProblemError("VKCONV_WORKSPACE_LIMIT is '" + std::string(given) + "', wanted a number of bytes");
  }();
  return limit;
}

struct Sides {
  std::int64_t lo, hi;
};

// `signal` is the extent of the dilated input, `reach` that of the dilated kernel.
Sides same_padding(std::int64_t signal, std::int64_t reach, std::int64_t stride, bool lower) {
  const std::int64_t outputs = ceil_div(signal, stride);
  const std::int64_t total = std::max<std::int64_t>(checked_add(checked_mul(outputs - 1, stride), reach) - signal, 0);
  const std::int64_t less = total / 2;
  return lower ? Sides{total - less, less} : Sides{less, total - less};
}

Sides axis_padding(const Padding& padding, const ConvProblem& p, int a, int first_axis) {
  const std::int64_t signal = p.input[a] > 0 ? checked_add(checked_mul(p.input[a] - 1, p.input_dilation[a]), 1) : 0;
  const std::int64_t reach = checked_add(checked_mul(p.kernel[a] - 1, p.dilation[a]), 1);
  switch (padding.mode) {
    case PaddingMode::numbers:
      return {padding.lo[a], padding.hi[a]};
    case PaddingMode::valid:
      return {0, 0};
    case PaddingMode::full:
      return {reach - 1, reach - 1};
    case PaddingMode::same:
      return same_padding(signal, reach, p.stride[a], false);
    case PaddingMode::same_lower:
      return same_padding(signal, reach, p.stride[a], true);
    case PaddingMode::causal:
      return a == first_axis ? Sides{reach - 1, 0} : same_padding(signal, reach, p.stride[a], false);
  }
  return {0, 0};
}

void log_line(const Options& options, const PlanRequest& request, double seconds, double device_seconds) {
  const std::string tree = options.device.backend->summary(request).tree;
  std::fprintf(stderr, "vkconv %s %s %s %.3f ms", options.device.name.c_str(), to_string(request.problem).c_str(),
               tree.c_str(), seconds * 1e3);
  if (device_seconds > 0) std::fprintf(stderr, " (%.3f ms on the device)", device_seconds * 1e3);
  std::fputc('\n', stderr);
}

// Needs no lock of the interpreter. The caller's choice of algorithm is for the main part of a call.
void run(const Options& options, const ConvProblem& problem, bool main, Execution execution) {
  const PlanRequest request{problem, main ? options.algorithm : "", options.workspace_limit_bytes};
  const bool partial = !main || problem.output_dtype != problem.dtype;
  if (!partial && noting.load(std::memory_order_relaxed) && options.algorithm.empty()) {
    std::lock_guard lock(noted_mutex);
    noted.emplace(options.device.name, to_string(problem), execution.prepared != nullptr);
  }
  if (!logging()) return options.device.backend->execute(request, execution);
  const auto begin = std::chrono::steady_clock::now();
  double device_seconds = 0;
  execution.device_seconds = &device_seconds;
  options.device.backend->execute(request, execution);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  log_line(options, request, took.count(), device_seconds);
}

// An empty output reads no border, and may have no element to repeat.
bool has_border(const ConvProblem& problem, const Border& border) {
  return !border.zeros() && problem.output_elements() > 0 && reads_border(problem);
}

Options parse_all_but_device(const OptionArguments& arguments) {
  Options options;
  options.precision = parse_precision(arguments.precision);
  options.algorithm = parse_word(arguments.algorithm, "algorithm");
  options.workspace_limit_bytes =
      arguments.workspace_limit.is_none()
          ? default_workspace_limit()
          : static_cast<std::size_t>(parse_int(arguments.workspace_limit, "workspace_limit", 0));
  return options;
}

// Also of a call that has nothing to compute.
void check_algorithm(const Options& options) {
  if (options.algorithm.empty()) return;
  const std::vector<std::string> names = options.device.backend->algorithms();
  std::string listed;
  for (const std::string& name : names) {
    if (name == options.algorithm) return;
    listed += (listed.empty() ? "'" : ", '") + name + "'";
  }
  throw py::value_error("algorithm is '" + options.algorithm + "', wanted None or one of " + listed);
}

}  // namespace

Options parse_options(const OptionArguments& arguments) {
  Options options = parse_all_but_device(arguments);
  options.device = open_device(arguments.device);
  check_algorithm(options);
  return options;
}

Options parse_options(const OptionArguments& arguments, const Array& leading, const char* leading_name) {
  if (!leading.on_device()) return parse_options(arguments);
  Options options = parse_all_but_device(arguments);
  options.device = leading.home;
  check_algorithm(options);
  if (arguments.device.is_none()) return options;
  const OpenDevice wanted = open_device(arguments.device);
  if (is_description(arguments.device)) options.device = wanted;
  if (wanted.name != options.device.name)
    throw py::value_error("device is '" + wanted.name + "', " + leading_name + " is on " + leading.home.name);
  return options;
}

void Geometry::apply(ConvProblem& p) const {
  p.stride = stride;
  p.dilation = dilation;
  p.input_dilation = input_dilation;
  p.groups = groups;
  p.flip = flip;
  for (int a = 3 - rank; a < 3; ++a) {
    const Sides sides = axis_padding(padding, p, a, 3 - rank);
    p.pad_lo[a] = sides.lo;
    p.output[a] =
        output_extent(p.input[a], p.kernel[a], p.stride[a], p.dilation[a], p.input_dilation[a], sides.lo, sides.hi);
    const bool empty =
        p.input[a] == 0 && (padding.mode == PaddingMode::same || padding.mode == PaddingMode::same_lower ||
                            padding.mode == PaddingMode::causal);
    if (p.output[a] < (empty ? 0 : 1)) no_output(p, a, sides.lo, sides.hi);
    if (border.repeats() && p.input[a] == 0 && p.output[a] > 0)
      throw ProblemError("input has no elements along axis " + std::to_string(a - 2 + rank) +
                         ", of which padding_mode '" + std::string(to_string(border.mode)) + "' could repeat one");
  }
  validate(p);
}

void Geometry::no_output(const ConvProblem& p, int a, std::int64_t lo, std::int64_t hi) const {
  const std::string axis = " along spatial axis " + std::to_string(a - 3 + rank);
  const auto sides = [](std::int64_t low, std::int64_t high) {
    return std::to_string(low) + (low == high ? "" : " and " + std::to_string(high));
  };
  const std::int64_t signal = dilated(p.input[a], p.input_dilation[a]), reach = dilated(p.kernel[a], p.dilation[a]);
  if (crop)
    throw ProblemError("padding " + sides(crop->lo[a], crop->hi[a]) + " leaves no output" + axis +
                       ": it is taken from " + std::to_string(p.output[a] + crop->lo[a] + crop->hi[a]) +
                       " elements, extent " + std::to_string(p.input[a]) + " with stride " +
                       std::to_string(p.input_dilation[a]) + " and kernel reach " + std::to_string(reach));
  throw ProblemError("input is smaller than the kernel" + axis + ": extent " + std::to_string(signal) +
                     " with padding " + std::to_string(lo) + " and " + std::to_string(hi) + ", kernel reach " +
                     std::to_string(reach));
}

void Geometry::transpose(const Extent3& kernel, const Extent3& output_padding) {
  crop = padding;
  for (int a = 0; a < 3; ++a) {
    const std::int64_t reach = checked_mul(kernel[a] - 1, dilation[a]);
    padding.lo[a] = checked_add(reach, -padding.lo[a]);
    padding.hi[a] = checked_add(checked_add(reach, -padding.hi[a]), output_padding[a]);
  }
  input_dilation = stride;
  stride = {1, 1, 1};
  flip = true;
}

CaptureScope::CaptureScope(Captured& target) : outer_(capture) { capture = &target; }
CaptureScope::~CaptureScope() { capture = outer_; }
bool capturing() { return capture != nullptr; }

std::vector<Noted> noted_problems(bool go_on) {
  std::lock_guard lock(noted_mutex);
  noting = go_on;
  std::vector<Noted> told(noted.begin(), noted.end());
  noted.clear();
  return told;
}

void execute(const Options& options, ConvProblem problem, Execution execution, const Border& border) {
  if (capture) {  // no memory stands behind the operands
    problem.precision = options.precision;
    const bool flip = problem.flip, bordered = has_border(problem, border);
    problem = planned_form(problem);
    if (bordered) problem = main_problem(problem);
    const PlanRequest request{problem, options.algorithm, options.workspace_limit_bytes};
    *capture = {true, request, options.device, flip};
    return;
  }
  const WithoutGilForLong release;
  execute_without_interpreter(options, problem, execution, border);
}

void execute_without_interpreter(const Options& options, ConvProblem problem, Execution execution,
                                 const Border& border) {
  problem.precision = options.precision;
  const bool bordered = has_border(problem, border);
  canonicalize(problem, execution.operands);
  if (!bordered) return run(options, problem, true, execution);
  execute_bordered(*options.device.backend, problem, border, execution,
                   [&](const ConvProblem& part, bool main, const Execution& e) { run(options, part, main, e); });
}

Options default_options(const OpenDevice& device) {
  return {default_precision(), device, "", default_workspace_limit()};
}

}  // namespace vkconv::bindings
