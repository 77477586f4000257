#include <gtest/gtest.h>

#include <cmath>

#include "cpu_test.h"
#include "targets.h"

namespace vkconv {
namespace {
using tools::CpuPlanner;
using tools::Data;

constexpr const char* kName = "winograd_weight_grad";

const char* const kProblems[] = {
    "wgrad_f32_n1c16o32_i12x12_k3x3_p1x1",
    "wgrad_f32_n2c19o37_i13x9_k3x3_p1x1",
    "wgrad_f32_n1c70o5_i6x7_k3x3",
    "wgrad_f32_n3c1o1_i30x31_k3x3_p1x0",  // more tiles than a chain
    "wgrad_f32_n2c24o40g2_i13x9_k3x3_p2:0x-1:1",
    "wgrad_f32_n1c12o20_i93x90_k3x3_p1x1",  // three vectors in a block: two parts for two threads
    "wgrad_f32_n1c9o44_i93x90_k3x3_p1x1",
    "wgrad_f32_n1c20o33_i6x9x8_k3x3x3_p1x1x1",
    "wgrad_f32_n1c20o9_i9x7x8_k2x3x3_s2x1x1_d3x1x1_p3x1x1",   // a depth tap that meets padding
    "wgrad_f32_n2c9o20_i37x7x8_k3x3x3_p1x1x1",                // a depth of three blocks
    "wgrad_f32_n1c9o20_i20x7x8_k4x3x3_s3x1x1_d2x1x1_p4x1x1",  // slices at three remainders by the stride
    "wgrad_bf16_n1c9o20_i20x7x8_k3x3x3_d12x1x1_p14x1x1",      // two blocks, for each of which one tap is outside
    "wgrad_f32_n1c9o20_i37x9x10_k3x3x3_p1x1x1",               // positions that leave the last chain shorter
    "wgrad_f16_n2c33o40_i13x9_k3x3_p1x1",
    "wgrad_bf16_n1c20o37_i14x9_k3x3_p1x1",
    "wgrad_bf16>f32_n1c20o37_i14x9_k3x3_p1x1",
    "wgrad_f32_n1c20o37_i14x9_k3x3_p1x1_flip",
    "wgrad_f32_n2c20o37_i41_k3_p1",
    "wgrad_f32_n1c9o40_i70_k11_d5_p25",  // pieces, and phases of unequal length
    "wgrad_f16_n1c33o20_i15x16_k5x5_p2x2_d2x1",
    "wgrad_f32_n1c20o33_i17x14_k7x7_p3x3",
    "wgrad_f32_n2c18o9_i12x11_k2x2",
    "wgrad_f32_n1c20o33_i9x20_k1x7_p0x3",
    "wgrad_f32_n1c20o33_i20x9_k7x1_p3x0",
    "wgrad_bf16_n2c20o33_i12x5x6_k3x1x1_p1x0x0",
    "wgrad_f32_n1c20o33_i12x11x6_k4x4x1_p1x2x0",
    "wgrad_f32_n1c20o33_i6x9x8_k3x2x3_p1x1x1_d1x3x1",
};

CpuPlanner& planner() {
  static CpuPlanner p(registry<cpu::Device>(), cpu::host_traits());
  return p;
}

void expect_accurate(const ConvProblem& p, const tools::Arrays& a) {
  CpuPlanner local(registry<cpu::Device>(), cpu::host_traits());  // its plans are of the target in use
  const auto result = tools::accuracy(p, a, tools::run_cpu(p, a, local, kName), local);
  EXPECT_TRUE(result.finite) << to_string(p);
  EXPECT_LE(result.c, p.output_dtype == DType::f32 ? 64 : 0.51) << to_string(p);
}

TEST(WinogradWeightGrad, IsAccurateOnEveryTarget) {
  tools::for_each_target([] {
    for (const char* text : kProblems) {
      const ConvProblem p = parse_problem(text);
      expect_accurate(p, tools::make_arrays(p, Data::random));
    }
  });
}

// Of many sums the worst one counts.
TEST(WinogradWeightGrad, ShortSumsStayWithinTheBound) {
  for (const char* text : {"wgrad_f32_n1c200o160_i6x6_k3x3_p1x1", "wgrad_f32_n1c200o160_i7x7_k4x4",
                           "wgrad_f32_n1c200o160_i8x8_k5x5_p2x2", "wgrad_f32_n2c200o160_i7x7_k7x7_p3x3"}) {
    const ConvProblem p = parse_problem(text);
    expect_accurate(p, tools::make_arrays(p, Data::random));
  }
  for (const char* text : {"wgrad_f32_n1c200o160_i4x4_k3x3_p1x1", "wgrad_f32_n1c200o160g2_i7x3x5_k4x4x4_p0x1x0",
                           "wgrad_f32_n1c200o160_i6x6_k5x5_p2x2", "wgrad_f32_n1c200o160_i7x7_k7x7_p3x3"})
    EXPECT_THROW(planner().plan({parse_problem(text), kName}), ProblemError) << text;
}

TEST(WinogradWeightGrad, LongSumsOfPositiveValuesStayWithinTheBound) {
  const ConvProblem p = parse_problem("wgrad_f32_n1c5o3_i700x700_k3x3_p1x1");
  expect_accurate(p, tools::magnitudes(tools::make_arrays(p, Data::random)));
}

TEST(WinogradWeightGrad, ThreadsAndLimitsDoNotChangeBits) {
  tools::expect_same_bits("wgrad_f32_n3c40o50_i45x41_k3x3_p1x1", kName,
                          {std::size_t{3} << 20, std::size_t{5} << 20, kDefaultWorkspaceLimitBytes});
  // The tile too, in which two are about as fast.
  tools::expect_same_bits("wgrad_f32_n1c20o33_i16x9x9_k3x4x4_p1x2x2", kName,
                          {std::size_t{3} << 20, kDefaultWorkspaceLimitBytes});
  tools::expect_same_bits("wgrad_f32_n1c20o33_i68x68_k4x4_p2x2", kName, {kDefaultWorkspaceLimitBytes});
  // Of the depth one tap, two, and all three are summed at a time.
  tools::expect_same_bits("wgrad_f32_n1c40o50_i20x25x21_k3x3x3_p1x1x1", kName,
                          {std::size_t{3} << 20, std::size_t{4} << 20, kDefaultWorkspaceLimitBytes});
}

TEST(WinogradWeightGrad, SpecialValuesGoWhereTheSumsTakeThem) {
  tools::expect_special_values_in_their_sums("wgrad_f32_n1c20o33_i13x9_k3x3_p1x1", kName, planner(), {NAN, INFINITY});
}

// Under a limit that is too small for weight_grad the definition computes again what is not finite.
TEST(WinogradWeightGrad, HasAPlanUnderEveryLimitThatItClaims) {
  const ConvProblem p = parse_problem("wgrad_f32_n1c8o16_i162x162_k99x99");
  int claimed = 0;
  for (std::size_t limit = 200'000; limit < 10'000'000; limit += limit / 16) {
    if (!tools::reason_of(kName, to_string(p).c_str(), limit).empty()) continue;
    ++claimed;
    EXPECT_LE(planner().plan({p, kName, limit})->workspace_bytes(), limit);
  }
  EXPECT_GT(claimed, 0);
}

TEST(WinogradWeightGrad, RefusesWithAReason) {
  for (const char* text :
       {"wgrad_f32_n1c16o16_i9x9_k3x3_s2x2", "wgrad_f32_n1c16o16_i9x9_k3x1_t2x1", "wgrad_f32_n1c16o16_i9x9_k1x1",
        "wgrad_f64_n1c16o16_i9x9_k3x3", "wgrad_f32_n1c16o16_i9x9_k3x3_highest", "fwd_f32_n1c16o16_i9x9_k3x3",
        "wgrad_f32_n1c16o16_i1x1_k3x3_p1x1", "wgrad_f32_n1c48o48_i3x3_k3x3"})
    EXPECT_THROW(planner().plan({parse_problem(text), kName}), ProblemError) << text;
  EXPECT_THROW(planner().plan({parse_problem(kProblems[0]), kName, 1000}), ProblemError);
}

}  // namespace
}  // namespace vkconv
