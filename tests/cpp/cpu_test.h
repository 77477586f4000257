// Checks of the CPU's algorithms by name, for the tests of several of them.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "cpu/bf16_dot.h"
#include "cpu/thread_pool.h"
#include "harness.h"

namespace vkconv::tools {

using CpuPlanner = Planner<cpu::Device>;

// Of this machine, or of one with other caches, to whose sizes tiles are fitted.
inline cpu::Traits traits_with(double caches) {
  cpu::Traits traits = cpu::host_traits();
  for (std::size_t* bytes : {&traits.l1_bytes, &traits.l2_bytes, &traits.l3_bytes})
    *bytes = static_cast<std::size_t>(caches * static_cast<double>(*bytes));
  return traits;
}
inline CpuPlanner make_planner(double caches = 1) { return CpuPlanner(registry<cpu::Device>(), traits_with(caches)); }

// The same with matrix tiles, which emulated ones stand in for where there are none.
inline CpuPlanner make_tile_planner(double caches = 1, int threads = cpu::host_traits().threads) {
  cpu::Traits traits = traits_with(caches);
  traits.threads = threads;
  traits.bf16_tiles = true;
  traits.bf16_tile_flops_per_second = 32 * traits.f32_flops_per_second;
  traits.f32_parts_flops_per_second = 2 * traits.f32_flops_per_second;
  return CpuPlanner(registry<cpu::Device>(), traits);
}
inline bool tiles_can_run() { return cpu::bf16_dot_available() && cpu::host_traits().vector_bytes >= 64; }

// Small integers give the reference's bits, random data the exact sums within the bound of direct ones; prepared
// weights give the same bits. The activations that are not exact on integers are compared on random data only.
inline void expect_matches(const std::string& text, const std::string& algorithm) {
  SCOPED_TRACE(text + " " + algorithm);
  const ConvProblem p = parse_problem(text);
  CpuPlanner planner = make_planner();
  const bool smooth = p.epilogue.activation == Activation::gelu || p.epilogue.activation == Activation::silu ||
                      p.epilogue.activation == Activation::tanh;
  const auto integers = make_arrays(p, Data::small_integers, 3);
  if (!smooth) {
    const auto exact = run_cpu(p, integers, planner, "reference");
    EXPECT_EQ(exact, run_cpu(p, integers, planner, algorithm));
    EXPECT_EQ(exact, run_cpu(p, integers, planner, algorithm, kDefaultWorkspaceLimitBytes, true)) << "prepared";
  }
  const auto random = make_arrays(p, Data::random);
  const auto got = run_cpu(p, random, planner, algorithm);
  const Accuracy a = accuracy(p, random, got, planner);
  EXPECT_TRUE(a.finite);
  EXPECT_LE(a.c, 8);
  EXPECT_EQ(got, run_cpu(p, random, planner, algorithm, kDefaultWorkspaceLimitBytes, true)) << "prepared";
}

// Results within the bound of direct sums.
inline void expect_within_bound(const ConvProblem& p, const Arrays& arrays, const std::vector<double>& got,
                                CpuPlanner& planner) {
  const Accuracy a = accuracy(p, arrays, got, planner);
  EXPECT_TRUE(a.finite);
  if (size_bytes(p.output_dtype) == 2)
    EXPECT_GE(a.rounded, 0.995);
  else
    EXPECT_LE(a.c, 8);
}

// The same on random data, and on their magnitudes.
inline void expect_accurate(const std::string& text, const std::string& algorithm) {
  SCOPED_TRACE(text + " " + algorithm);
  const ConvProblem p = parse_problem(text);
  CpuPlanner planner = make_planner();
  const Arrays random = make_arrays(p, Data::random);
  for (const Arrays& arrays : {random, magnitudes(random)})
    expect_within_bound(p, arrays, run_cpu(p, arrays, planner, algorithm), planner);
}

// Whatever the number of threads, the sizes of tiles, the workspace limit, and whether weights are prepared.
inline void expect_same_bits(const std::string& text, const std::string& algorithm,
                             const std::vector<std::size_t>& limits = {kDefaultWorkspaceLimitBytes}) {
  SCOPED_TRACE(text + " " + algorithm);
  const ConvProblem p = parse_problem(text);
  const Arrays arrays = make_arrays(p, Data::random);
  const int before = cpu::num_threads();
  std::vector<double> first;
  for (const auto& [threads, caches] : {std::pair(1, 1.0), {2, 1.0 / 64}, {3, 64.0}, {5, 0.125}, {16, 1.0}}) {
    cpu::set_num_threads(threads);
    CpuPlanner planner = make_planner(caches);
    for (const std::size_t limit : limits) {
      EXPECT_LE(planner.plan({p, algorithm, limit})->workspace_bytes(), limit);
      for (const bool prepared : {false, true}) {
        if (prepared && p.pass == Pass::weight_grad) continue;
        const auto got = run_cpu(p, arrays, planner, algorithm, limit, prepared);
        if (first.empty()) first = got;
        EXPECT_EQ(got, first) << threads << " threads, caches x " << caches << ", limit " << limit
                              << (prepared ? ", prepared" : "");
      }
    }
  }
  cpu::set_num_threads(before);
}

// Of sums of positive inputs with infinite weights: infinite where the expected one is, and never NaN.
inline void expect_same_infinities(const std::vector<double>& expected, const std::vector<double>& got) {
  ASSERT_EQ(expected.size(), got.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_FALSE(std::isnan(got[i])) << i;
    EXPECT_EQ(std::isinf(expected[i]), std::isinf(got[i])) << i;
  }
}

// One such value in either operand: exactly the sums that it is part of, of small integers.
inline void expect_special_values_in_their_sums(const std::string& text, const std::string& algorithm,
                                                CpuPlanner& planner, const std::vector<double>& values) {
  const ConvProblem p = parse_problem(text);
  for (const double value : values)
    for (const bool in_input : {true, false}) {
      Arrays a = make_arrays(p, Data::small_integers);
      const bool gradient = p.pass == Pass::weight_grad;
      (in_input ? a.input : gradient ? a.output : a.weight)[7] = value;
      const auto exact = run_cpu(p, a, planner, "reference");
      for (const bool prepared : {false, true}) {
        if (prepared && gradient) continue;
        const auto got = run_cpu(p, a, planner, algorithm, kDefaultWorkspaceLimitBytes, prepared);
        ASSERT_EQ(got.size(), exact.size());
        for (std::size_t i = 0; i < got.size(); ++i)
          ASSERT_TRUE(got[i] == exact[i] || (std::isnan(got[i]) && std::isnan(exact[i])))
              << text << ", " << value << (in_input ? " in the input" : " in the other operand") << ", " << i << ": "
              << got[i] << " for " << exact[i];
      }
    }
}

// Why the algorithm cannot run; empty where it can.
inline std::string reason_of(const std::string& algorithm, const char* text,
                             std::size_t limit = kDefaultWorkspaceLimitBytes) {
  CpuPlanner planner = make_planner();
  for (const Candidate& c : planner.explain(parse_problem(text), limit))
    if (c.name == algorithm) return c.reason;
  return "missing";
}

}  // namespace vkconv::tools
