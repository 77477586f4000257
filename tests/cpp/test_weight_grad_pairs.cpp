#include <gtest/gtest.h>

#include <cmath>

#include "cpu/bf16_dot.h"
#include "cpu_test.h"

namespace vkconv {
namespace {
using tools::CpuPlanner;
using tools::Data;

constexpr const char* kName = "weight_grad_pairs";

const char* const kProblems[] = {
    "wgrad_bf16_n2c32o48_i12x12_k3x3_p1x1",
    "wgrad_bf16_n3c19o37_i13x9_k3x3_p1x1",
    "wgrad_bf16>f32_n1c70o5_i6x7_k3x3",
    "wgrad_bf16_n1c3o40_i31x30_k7x7_s2x2_p3x3",  // taps side by side
    "wgrad_bf16_n1c3o40_i9x31_k2x3_d1x4_p0x4",   // and apart
    "wgrad_bf16_n2c20o33_i25x18_k5x5_s2x3_p2x1",
    "wgrad_bf16_n1c33o20_i15x16_k5x5_p2x2_d2x1",
    "wgrad_bf16_n1c24o40_i40x41_k3x3_d9x12_p9x12",  // taps further apart than outputs are many
    "wgrad_bf16_n1c40o17_i2500_k11_d3_p15",         // segments of a line, a run of many taps
    "wgrad_bf16_n1c16o16_i70x45_k3x3_p1x1",         // parts of a plane
    "wgrad_bf16_n2c20o33_i6x9x8_k3x3x3_p1x1x1",
    "wgrad_bf16_n1c20o9_i9x7x8_k2x3x3_s2x1x1_d3x1x1_p3x1x1",  // a depth tap that meets padding
    "wgrad_bf16_n5c40o33_i7x7_k1x1",
    "wgrad_bf16_n2c24o40g2_i13x9_k3x3_p2:0x-1:1",
    "wgrad_bf16_n2c30o60g5_i13x9_k1x3_p0x1",
    "wgrad_bf16_n1c20o37_i14x9_k3x3_p1x1_flip",
    "wgrad_bf16_n1c20o33_i9x20_k1x7_p0x3",
    "wgrad_bf16_n1c20o33_i20x9_k7x1_p3x0",
};

// A processor that multiplies pairs by its dot product, or by matrix tiles, which may be emulated.
cpu::Traits traits_of(bool tiles, int threads) {
  cpu::Traits t = cpu::host_traits();
  t.bf16_dot = true, t.bf16_tiles = tiles, t.threads = threads;
  t.bf16_flops_per_second = 2 * t.f32_flops_per_second;
  t.bf16_tile_flops_per_second = 8 * t.f32_flops_per_second;
  return t;
}

class WeightGradPairs : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!cpu::bf16_dot_available() || cpu::host_traits().vector_bytes < 64)
      GTEST_SKIP() << "this CPU has no vdpbf16ps, or its vectors are not used";
  }
  static CpuPlanner planner(int threads = 2) { return {registry<cpu::Device>(), traits_of(GetParam(), threads)}; }
};

INSTANTIATE_TEST_SUITE_P(Units, WeightGradPairs, testing::Bool(),
                         [](const auto& info) { return info.param ? "tiles" : "dot"; });

TEST_P(WeightGradPairs, IsExactOnSmallIntegersAndAccurate) {
  for (const int threads : {1, 2, 7})
    for (const char* text : kProblems) {
      SCOPED_TRACE(std::string(text) + " " + std::to_string(threads));
      const ConvProblem p = parse_problem(text);
      CpuPlanner local = planner(threads);
      const tools::Arrays whole = tools::make_arrays(p, Data::small_integers);
      EXPECT_EQ(tools::run_cpu(p, whole, local, kName), tools::run_cpu(p, whole, local, "reference"));
      const tools::Arrays a = tools::make_arrays(p, Data::random);
      const auto result = tools::accuracy(p, a, tools::run_cpu(p, a, local, kName), local);
      EXPECT_TRUE(result.finite);
      EXPECT_LE(result.c, p.output_dtype == DType::f32 ? 8 : 0.51);
    }
}

TEST_P(WeightGradPairs, ThreadsCachesAndLimitsDoNotChangeBits) {
  const ConvProblem p = parse_problem("wgrad_bf16>f32_n3c40o50_i5x45x41_k3x3x3_p1x1x1");
  const tools::Arrays a = tools::make_arrays(p, Data::random);
  std::vector<double> first;
  for (const int threads : {1, 3})
    for (const std::size_t l2 : {std::size_t{1} << 14, std::size_t{1} << 18, std::size_t{1} << 22})
      for (const std::size_t limit : {std::size_t{12} << 20, kDefaultWorkspaceLimitBytes}) {
        cpu::set_num_threads(threads);
        cpu::Traits t = traits_of(GetParam(), 2);
        t.l2_bytes = l2;
        CpuPlanner local(registry<cpu::Device>(), t);
        EXPECT_LE(local.plan({p, kName, limit})->workspace_bytes(), limit);
        const auto got = tools::run_cpu(p, a, local, kName, limit);
        if (first.empty()) first = got;
        EXPECT_EQ(got, first) << threads << " threads, L2 " << l2 << ", limit " << limit;
      }
  cpu::set_num_threads(cpu::default_num_threads());
}

TEST_P(WeightGradPairs, SpecialValuesGoWhereTheSumsTakeThem) {
  CpuPlanner local = planner();
  tools::expect_special_values_in_their_sums("wgrad_bf16_n1c20o33_i13x9_k3x3_p1x1", kName, local,
                                             {NAN, INFINITY, -3e38});
}

TEST_P(WeightGradPairs, RefusesWithAReason) {
  CpuPlanner local = planner();
  for (const char* text :
       {"wgrad_f32_n1c16o16_i9x9_k3x3", "wgrad_f16_n1c16o16_i9x9_k3x3", "wgrad_bf16_n1c16o16_i9x9_k3x1_t2x1",
        "wgrad_bf16_n1c16o16_i9x9_k3x3_highest", "wgrad_bf16_n1c16o16g16_i9x9_k3x3", "wgrad_bf16_n1c2o2_i9000_k2000",
        "fwd_bf16_n1c16o16_i9x9_k3x3"})
    EXPECT_THROW(local.plan({parse_problem(text), kName}), ProblemError) << text;
  EXPECT_THROW(local.plan({parse_problem(kProblems[0]), kName, 1000}), ProblemError);
}

// On described processors, whatever this one is.
TEST(WeightGradPairsPlan, IsChosenForManyChannelsWhereUnitsAreFast) {
  cpu::Traits t;
  t.threads = 2, t.vector_bytes = 64;
  t.f32_flops_per_second = 2e11, t.l2_bytes = 1 << 20;
  for (const bool tiles : {false, true}) {
    t.bf16_dot = true, t.bf16_tiles = tiles;
    t.bf16_flops_per_second = 4e11, t.bf16_tile_flops_per_second = 2e12;
    CpuPlanner fast(registry<cpu::Device>(), t);
    EXPECT_EQ(fast.plan({parse_problem("wgrad_bf16_n32c512o512_i14x14_k1x1"), ""})->describe(), kName);
  }
  t.bf16_tiles = false, t.bf16_flops_per_second = 1e11;
  CpuPlanner slow(registry<cpu::Device>(), t);
  EXPECT_THROW(slow.plan({parse_problem("wgrad_bf16_n8c128o128_i28x28_k3x3_p1x1"), kName}), ProblemError);
}

}  // namespace
}  // namespace vkconv
