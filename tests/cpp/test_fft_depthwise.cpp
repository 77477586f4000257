#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu_test.h"
#include "targets.h"

namespace vkconv {
namespace {

using tools::CpuPlanner;
using tools::Data;

const char* const kProblems[] = {
    // one block, several, the last one short; kernels of one tap to longer than the line
    "fwd_f32_n1c32o32g32_i64_k64_p63:0",
    "fwd_f32_n2c16o16g16_i300_k9_p4",
    "fwd_f32_n1c40o40g40_i1000_k33_p32:0",
    "fwd_f32_n1c16o16g16_i20_k1",
    "fwd_f32_n1c16o16g16_i2_k2",
    "fwd_f32_n1c16o16g16_i5_k40_p39",
    "fwd_f32_n1c16o16g16_i500_k500_p499:0",
    // channels that fill no vector
    "fwd_f32_n3c1o1g1_i50_k17_p8",
    "fwd_f32_n1c5o5g5_i50_k17_p8",
    "fwd_f32_n1c23o23g23_i50_k17_p8",
    // padding, dilation, lines of two and three dimensions with rows of padding
    "fwd_f32_n1c17o17g17_i60_k9_p-3:11",
    "fwd_f32_n1c17o17g17_i60_k9_p70",
    "fwd_f32_n1c17o17g17_i60_k9_d5_p20",
    "fwd_f32_n2c17o17g17_i5x60_k1x9_p2x4",
    "fwd_f32_n1c9o9g9_i4x5x30_k1x1x9_s2x2x1_p1x1x4",
    // types and epilogues
    "fwd_f16_n1c40o40g40_i100_k20_p10",
    "fwd_f16>f32_n1c40o40g40_i100_k20_p10",
    "fwd_bf16_n1c20o20g20_i100_k20_p10_bias",
    "fwd_f32_n1c20o20g20_i100_k20_p10_bias_add_relu6",
};

tools::Accuracy error_of(const ConvProblem& p, Data data) {
  CpuPlanner planner = tools::make_planner();
  const tools::Arrays a = tools::make_arrays(p, data);
  return tools::accuracy(p, a, tools::run_cpu(p, a, planner, "fft_depthwise"), planner);
}

TEST(FftDepthwise, SmallIntegersAreExactOnEveryTarget) {
  tools::for_each_target([] {
    for (const char* text : kProblems)
      EXPECT_EQ(error_of(parse_problem(text), Data::small_integers).rounded, 1) << text;
  });
}

TEST(FftDepthwise, RandomDataIsRoundedOnce) {
  for (const char* text : kProblems) {
    const ConvProblem p = parse_problem(text);
    const tools::Accuracy error = error_of(p, Data::random);
    EXPECT_TRUE(error.finite) << text;
    if (size_bytes(p.output_dtype) == 4) {
      EXPECT_LE(error.c, 2) << text;
    }
    // Sums of halves' products lie on ties of float; an epilogue rounds once more.
    EXPECT_GE(error.rounded, p.epilogue != Epilogue{} ? 0.7 : p.output_dtype != p.dtype ? 0.9 : 0.999) << text;
  }
}

TEST(FftDepthwise, LoudChannelsLeaveQuietOnesAlone) {
  const ConvProblem p = parse_problem("fwd_f32_n1c20o20g20_i300_k33_p32:0");
  CpuPlanner planner = tools::make_planner();
  tools::Arrays a = tools::make_arrays(p, Data::random);
  for (std::size_t i = 3; i < a.input.size(); i += 20) a.input[i] *= 0x1p60;
  for (std::size_t k = 0; k < 33; ++k) a.weight[5 * 33 + k] *= 0x1p40;
  const auto error = tools::accuracy(p, a, tools::run_cpu(p, a, planner, "fft_depthwise"), planner);
  EXPECT_LE(error.c, 2);
}

TEST(FftDepthwise, AnInfinityReachesOnlyItsOutputs) {
  const ConvProblem p = parse_problem("fwd_f32_n1c20o20g20_i300_k33_p32:0");
  CpuPlanner planner = tools::make_planner();
  tools::Arrays a = tools::make_arrays(p, Data::small_integers);
  for (double& w : a.weight) w += w == 0;  // 0 * infinity is for another test
  a.input[100 * 20 + 3] = std::numeric_limits<double>::infinity();
  const auto got = tools::run_cpu(p, a, planner, "fft_depthwise");
  const auto want = tools::run_cpu(p, a, planner, "reference");
  EXPECT_EQ(got, want);
  EXPECT_EQ(std::count_if(got.begin(), got.end(), [](double y) { return !std::isfinite(y); }), 33);
  a.input[100 * 20 + 3] = 1;
  a.weight[7 * 33] = std::numeric_limits<double>::quiet_NaN();
  const auto spoiled = tools::run_cpu(p, a, planner, "fft_depthwise");
  for (std::size_t i = 0; i < spoiled.size(); ++i) {
    const bool reads_it = i % 20 == 7 && i / 20 >= 32;
    EXPECT_EQ(std::isnan(spoiled[i]), reads_it) << i;
  }
}

TEST(FftDepthwise, ThreadsAndWorkspaceDoNotChangeTheBits) {
  const char* text = "fwd_f32_n3c70o70g70_i700_k65_p64:0";
  const std::size_t whole = tools::make_planner().plan({parse_problem(text), "fft_depthwise"})->workspace_bytes();
  tools::expect_same_bits(text, "fft_depthwise", {whole, whole / static_cast<std::size_t>(cpu::host_traits().threads)});
}

TEST(FftDepthwise, IsChosenForLongKernelsOnly) {
  CpuPlanner planner = tools::make_planner();
  const auto chosen = [&](const char* text) { return planner.plan({parse_problem(text), ""})->describe(); };
  EXPECT_EQ(chosen("fwd_f32_n1c768o768g768_i8192_k8192_p8191:0"), "fft_depthwise");
  EXPECT_EQ(chosen("fwd_f32_n1c768o768g768_i8192_k16_p15:0"), "depthwise");
  EXPECT_EQ(chosen("fwd_f32_n1c768o768g768_i8192_k8192_p8191:0_highest"), "depthwise");
}

}  // namespace
}  // namespace vkconv
