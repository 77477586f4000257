// vkconv_bench: times and checks algorithms on problem strings, in the manner of oneDNN's benchdnn.
//   vkconv_bench [--algorithm=NAME|all] [--check] [--prepared] [--seconds=0.3] [--threads=N] [--vulkan[=INDEX]]
//   [--offset=BYTES] [--cold] [--device-time [--ratio=5]] PROBLEM...
// Times are the host's, of one call at a time; --device-time takes them between timestamps of a Vulkan device, on
// arrays made there, checks samples of the answer, and of --algorithm=all takes those estimated at most --ratio times
// the best; with --seconds=0 everything runs once. Messages of a validation layer are printed and make it fail.
//   vkconv_bench --calibrate [--isa=NAME] prints the rates of this machine, for bench/calibrate.py.
//   vkconv_bench --overhead PROBLEM prints what its call costs inside the library, for bench/overhead.py; with --vulkan
// what calls on device arrays cost the host, and what a chain of them adds to its kernels. --planning PROBLEM... prints
// what planning each costs the first time, for every described device.
// On the CPU the arrays lie as results of this library do, 64-byte aligned in huge pages; --offset=16 moves the input
// to where NumPy puts large arrays. --cold has other data in the caches when a call begins, but for its input and
// output: weights come out of memory, as in a network whose weights outgrow the caches.
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "calibrate.h"
#include "core/number_text.h"
#include "cpu/lines.h"
#include "cpu/thread_pool.h"
#include "harness.h"
#include "hwy/targets.h"
#include "overhead.h"
#if VKCONV_VULKAN
#include "device_bench.h"
#include "overhead_vulkan.h"
#include "vulkan_harness.h"
#endif

namespace {
using namespace vkconv;

struct Options {
  std::string algorithm;
  bool check = false, prepared = false, cold = false, device_time = false;
  bool calibrate = false, overhead = false, planning = false;
  double seconds = 0.3, ratio = 5;
  std::size_t offset_bytes = 0;
  int vulkan = -1;  // device index, or the CPU
  int threads = 0;  // 0: as many as the process may use
  std::vector<ConvProblem> problems;
};

template <class F, class Before>
double median_seconds(F&& run, double budget, Before&& before) {
  run();
  std::vector<double> times;
  const double start = tools::now();
  while (times.size() < 5 || (tools::now() - start < budget && times.size() < 5000)) {
    before();
    times.push_back(tools::seconds_of(run));
  }
  return tools::median(std::move(times));
}

// Reads the cache lines of an array, each thread of the pool its part.
void touch(const std::byte* data, std::size_t bytes) {
  const auto all = static_cast<std::int64_t>(bytes), parts = std::int64_t{cpu::num_threads()};
  cpu::thread_pool().run(parts, [&](std::int64_t part) {
    const volatile std::byte* const lines = data;
    for (std::int64_t i = all * part / parts; i < all * (part + 1) / parts; i += cpu::kLineBytes)
      static_cast<void>(lines[i]);
  });
}

// A device that can run a plan on the arrays of `host`, leave the result there and say how long it took.
struct CpuTarget {
  Planner<cpu::Device> planner{registry<cpu::Device>(), cpu::host_traits()};

  double time(const Plan<cpu::Device>& plan, tools::HostOperands& host, const Options& options) {
    cpu::Buffer workspace(plan.workspace_bytes());
    cpu::Device::Stream stream;
    Operands<cpu::Device> operands = host.operands;
    PreparedWeights<cpu::Device> prepared;
    if (options.prepared) {
      prepared = plan.prepare(stream, operands.weight);
      operands.prepared = &prepared;
    }
    const cpu::Buffer input(host.input.size() + options.offset_bytes), output(host.output.size());
    operands.input.data = input.pointer() + options.offset_bytes;
    operands.output.data = output.pointer();
    std::memcpy(operands.input.data, host.input.data(), host.input.size());
    std::memcpy(operands.output.data, host.output.data(), host.output.size());
    const std::size_t other_bytes = options.cold ? 2 * planner.traits().l3_bytes : 0;
    const cpu::Buffer other(other_bytes);
    if (options.cold) std::memset(other.pointer(), 0, other_bytes);
    const auto run = [&] { plan.execute(stream, operands, workspace.pointer()); };
    const auto cool = [&] {
      if (!options.cold) return;
      touch(other.pointer(), other_bytes);
      touch(operands.input.data, host.input.size());
      touch(operands.output.data, host.output.size());
    };
    const double seconds = median_seconds(run, options.seconds, cool);
    std::memcpy(host.input.data(), operands.input.data, host.input.size());
    std::memcpy(host.output.data(), operands.output.data, host.output.size());
    return seconds;
  }
};

#if VKCONV_VULKAN
struct VulkanTarget {
  explicit VulkanTarget(int index)
      : planner(registry<vulkan::Device>(), tools::usable_traits(index)), stream(vulkan::open_device(index)) {}

  double time(const Plan<vulkan::Device>& plan, tools::HostOperands& host, const Options& options) {
    tools::DeviceOperands device(host, stream);
    const vulkan::Buffer workspace = stream.allocate(std::max<std::size_t>(plan.workspace_bytes(), 4));
    PreparedWeights<vulkan::Device> prepared;
    if (options.prepared) {
      prepared = plan.prepare(stream, device.operands.weight);
      device.operands.prepared = &prepared;
    }
    const auto run = [&] {
      plan.execute(stream, device.operands, workspace.pointer());
      stream.wait();
    };
    const double seconds = median_seconds(run, options.seconds, [] {});
    device.download(host, stream);
    return seconds;
  }

  Planner<vulkan::Device> planner;
  vulkan::Stream stream;
};
#endif

void print_time(const ConvProblem& p, const std::string& plan, double seconds) {
  std::printf("%-52s %-24s %9.4f ms %8.1f GF/s %7.1f GB/s", to_string(p).c_str(), plan.c_str(), seconds * 1e3,
              p.flops() / seconds * 1e-9, p.bytes_moved() / seconds * 1e-9);
}

// Matrix units cut off the bits that they shift out when they align products: sums of thousands of halves are then one
// unit of the last place off in some outputs, although c is small.
bool print_accuracy(const ConvProblem& p, const std::string& plan, const tools::Accuracy& a) {
  const bool winograd = plan.find("winograd") != std::string::npos;  // its 16-bit points are rounded
  const bool ok = a.finite && (size_bytes(p.output_dtype) == 2 ? winograd ? a.c <= 16 : a.rounded >= 0.97 : a.c <= 64);
  std::printf("  c %.2f  rounded %.4f%s", a.c, a.rounded, ok ? "" : "  WRONG");
  return ok;
}

template <class Target>
bool bench(const ConvProblem& p, const std::string& algorithm, const Options& options, Target& target,
           Planner<cpu::Device>& reference) {
  const auto plan = target.planner.plan({tools::without_flip(p), algorithm});
  const tools::Arrays arrays = tools::make_arrays(p, tools::Data::random);
  tools::HostOperands host(p, arrays);
  print_time(p, plan->describe(), target.time(*plan, host, options));
  bool ok = true;
  if (options.check) ok = print_accuracy(p, plan->describe(), tools::accuracy(p, arrays, host.result(p), reference));
  std::printf("\n");
  std::fflush(stdout);
  return ok;
}

template <class Target>
bool bench_all(const Options& options, Target&& target) {
  Planner<cpu::Device> reference(registry<cpu::Device>(), cpu::host_traits());
  bool ok = true;
  for (const ConvProblem& p : options.problems) {
    if (options.algorithm != "all") {
      ok = bench(p, options.algorithm, options, target, reference) && ok;
      continue;
    }
    for (const Candidate& c : target.planner.explain(tools::without_flip(p), kDefaultWorkspaceLimitBytes))
      if (c.reason.empty() && c.name != "reference") ok = bench(p, c.name, options, target, reference) && ok;
  }
  return ok;
}

#if VKCONV_VULKAN
// The algorithms asked for: "" is the planner's choice.
std::vector<std::string> algorithms_of(const ConvProblem& p, const Options& options, Planner<vulkan::Device>& planner) {
  if (options.algorithm != "all") return {options.algorithm};
  std::vector<std::string> names;
  const double best = planner.seconds(tools::without_flip(p), kDefaultWorkspaceLimitBytes);
  for (const Candidate& c : planner.explain(tools::without_flip(p), kDefaultWorkspaceLimitBytes))
    if (c.seconds <= options.ratio * best && c.name != "reference") names.push_back(c.name);
  return names;
}

bool bench_on_device(const Options& options) {
  tools::DeviceBench bench(options.vulkan);
  std::vector<std::pair<ConvProblem, std::string>> requests;
  for (const ConvProblem& p : options.problems) {
    if (p.epilogue.bias || p.epilogue.addend)
      throw std::invalid_argument(to_string(p) + ": --device-time has no bias and no addend");
    for (const std::string& algorithm : algorithms_of(p, options, bench.planner)) requests.emplace_back(p, algorithm);
  }
  bench.compile(requests, options.prepared);
  bool ok = true;
  for (const auto& [p, algorithm] : requests) try {
      const auto plan = bench.planner.plan({tools::without_flip(p), algorithm});
      const auto result = bench.run(p, *plan, options.prepared, options.check, options.seconds);
      print_time(p, plan->describe(), result.seconds);
      if (options.check) ok = print_accuracy(p, plan->describe(), result.accuracy) && ok;
      std::printf("\n");
      std::fflush(stdout);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s %s: %s\n", to_string(p).c_str(), algorithm.c_str(), e.what());
      ok = false;
    }
  for (const std::string& message : vulkan::take_validation_messages()) {
    std::fprintf(stderr, "validation layer: %s\n", message.c_str());
    ok = false;
  }
  return ok;
}
#endif

template <class T>
void set_number(T& field, const std::string& value) {
  const auto number = number_of<T>(value);
  if (!number) throw std::invalid_argument("wanted a number, got '" + value + "'");
  field = *number;
}

// Only the kernels of one of Highway's targets: AVX3, AVX2, SSE4, ...
void use_instruction_set(const std::string& name) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets())
    if (hwy::TargetName(target) == name) return hwy::SetSupportedTargetsForTest(target);
  throw std::invalid_argument("this processor or this build has no " + name);
}

constexpr std::pair<std::string_view, bool Options::*> kFlags[] = {
    {"--check", &Options::check},         {"--prepared", &Options::prepared},
    {"--cold", &Options::cold},           {"--device-time", &Options::device_time},
    {"--calibrate", &Options::calibrate}, {"--overhead", &Options::overhead},
    {"--planning", &Options::planning}};

void parse_argument(Options& options, const std::string& argument) {
  for (const auto& [name, flag] : kFlags)
    if (argument == name) {
      options.*flag = true;
      return;
    }
  const std::size_t begin = argument.find('=') + 1;  // of the value; 0 without one
  const std::string name = argument.substr(0, begin), value = argument.substr(begin);
  if (argument == "--vulkan")
    options.vulkan = 0;
  else if (name == "--vulkan=")
    set_number(options.vulkan, value);
  else if (name == "--algorithm=")
    options.algorithm = value;
  else if (name == "--isa=")
    use_instruction_set(value);
  else if (name == "--seconds=")
    set_number(options.seconds, value);
  else if (name == "--ratio=")
    set_number(options.ratio, value);
  else if (name == "--offset=")
    set_number(options.offset_bytes, value);
  else if (name == "--threads=")
    set_number(options.threads, value);
  else
    options.problems.push_back(parse_problem(argument));
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  for (int i = 1; i < argc; ++i) parse_argument(options, argv[i]);
  if (options.threads > 0) cpu::set_num_threads(options.threads);
  if (options.calibrate) return tools::print_rates(), 0;
#if VKCONV_VULKAN
  if (options.planning || (options.overhead && options.vulkan >= 0)) {
    for (const ConvProblem& p : options.problems)
      options.planning ? tools::print_planning(p) : tools::print_device_overhead(p, options.vulkan);
    return 0;
  }
#endif
  if (options.overhead) {
    for (const ConvProblem& p : options.problems) tools::print_overhead(p);
    return 0;
  }
#if VKCONV_VULKAN
  if (options.vulkan >= 0 && options.device_time) return bench_on_device(options) ? 0 : 1;
  if (options.vulkan >= 0) return bench_all(options, VulkanTarget(options.vulkan)) ? 0 : 1;
#endif
  return bench_all(options, CpuTarget()) ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "vkconv_bench: %s\n", e.what());
  return 2;
}
