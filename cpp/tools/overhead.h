// What a call costs beside its arithmetic: `vkconv_bench --overhead PROBLEM`.
#pragma once
#include <cstdio>

#include "harness.h"
#include "timing.h"

namespace vkconv::tools {

inline void print_overhead(const ConvProblem& p) {
  constexpr int kCalls = 1000;
  Planner<cpu::Device> planner(registry<cpu::Device>(), cpu::host_traits());
  const PlanRequest request{without_flip(p), ""};
  const auto plan = planner.plan(request);
  HostOperands host(p, make_arrays(p, Data::random));
  cpu::Buffer workspace(plan->workspace_bytes());
  cpu::Device::Stream stream;
  const auto print = [](const char* name, auto&& call) {
    const double seconds = shortest_seconds([&] {
      for (int i = 0; i < kCalls; ++i) call();
    });
    std::printf("%-32s%8.2f us\n", name, seconds / kCalls * 1e6);
  };
  print("plan cache hit", [&] { planner.plan(request); });
  print("plan execution", [&] { plan->execute(stream, host.operands, workspace.pointer()); });
}

}  // namespace vkconv::tools
