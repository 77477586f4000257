// vkconv_bench: times and checks algorithms on problem strings, in the manner of oneDNN's benchdnn.
//   vkconv_bench [--algorithm=NAME|all] [--check] [--prepared] [--seconds=0.3] [--threads=N] PROBLEM...
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "cpu/thread_pool.h"
#include "harness.h"

namespace {
using namespace vkconv;
using CpuPlanner = vkconv::Planner<cpu::Device>;

struct Options {
  std::string algorithm;
  bool check = false, prepared = false;
  double seconds = 0.3;
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median_seconds(const Plan<cpu::Device>& plan, const Operands<cpu::Device>& operands, std::byte* workspace,
                      double budget) {
  cpu::Device::Stream stream;
  plan.execute(stream, operands, workspace);
  std::vector<double> times;
  const double start = now();
  while (times.size() < 5 || (now() - start < budget && times.size() < 5000)) {
    const double begin = now();
    plan.execute(stream, operands, workspace);
    times.push_back(now() - begin);
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

bool bench(const ConvProblem& p, const std::string& algorithm, const Options& options, CpuPlanner& planner) {
  const auto plan = planner.plan({tools::without_flip(p), algorithm, kDefaultWorkspaceLimitBytes});
  const tools::Arrays arrays = tools::make_arrays(p, tools::Data::random);
  tools::HostOperands host(p, arrays);
  cpu::Buffer workspace(plan->workspace_bytes());
  cpu::Device::Stream stream;
  PreparedWeights<cpu::Device> prepared;
  if (options.prepared) {
    prepared = plan->prepare(stream, host.operands.weight);
    host.operands.prepared = &prepared;
  }
  const double seconds = median_seconds(*plan, host.operands, workspace.pointer(), options.seconds);
  std::printf("%-52s %-24s %9.4f ms %8.1f GF/s %7.1f GB/s", to_string(p).c_str(), plan->describe().c_str(),
              seconds * 1e3, p.flops() / seconds * 1e-9, p.bytes_moved() / seconds * 1e-9);
  bool ok = true;
  if (options.check) {
    const auto a = tools::accuracy(p, tools::decode(host.written, tools::written_elements(p), p.output_dtype),
                                   tools::run_exact(p, arrays, planner), tools::run_magnitudes(p, arrays, planner));
    ok = a.finite && (size_bytes(p.output_dtype) == 2 ? a.rounded >= 0.995 : a.c <= 64);
    std::printf("  c %.2f  rounded %.4f%s", a.c, a.rounded, ok ? "" : "  WRONG");
  }
  std::printf("\n");
  std::fflush(stdout);
  return ok;
}

bool bench_all(const ConvProblem& p, const Options& options, CpuPlanner& planner) {
  if (options.algorithm != "all") return bench(p, options.algorithm, options, planner);
  bool ok = true;
  for (const Candidate& c : planner.explain(tools::without_flip(p), kDefaultWorkspaceLimitBytes))
    if (c.reason.empty() && c.name != "reference") ok = bench(p, c.name, options, planner) && ok;
  return ok;
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CpuPlanner* planner = nullptr;
  bool ok = true;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&] { return arg.substr(arg.find('=') + 1); };
    if (arg.starts_with("--algorithm=")) options.algorithm = value();
    else if (arg == "--check") options.check = true;
    else if (arg == "--prepared") options.prepared = true;
    else if (arg.starts_with("--seconds=")) options.seconds = std::atof(value().c_str());
    else if (arg.starts_with("--threads=")) cpu::set_num_threads(std::atoi(value().c_str()));
    else {
      if (!planner) planner = new CpuPlanner(registry<cpu::Device>(), cpu::host_traits());
      ok = bench_all(parse_problem(arg), options, *planner) && ok;
    }
  }
  return ok ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "vkconv_bench: %s\n", e.what());
  return 2;
}
