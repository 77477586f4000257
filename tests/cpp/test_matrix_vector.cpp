#include <gtest/gtest.h>

#include "cpu_test.h"
#include "harness.h"
#include "targets.h"

namespace vkconv {
namespace {

using CpuPlanner = Planner<cpu::Device>;
using tools::Data;

const char* const kProblems[] = {
    "fwd_f32_n1c40o33_i1x1_k1x1",
    "fwd_f32_n8c17o50_i1x1_k1x1_bias_relu",
    "fwd_f32_n3c2100o5_i1x1_k1x1",
    "fwd_f32_n2c5o37_i7x6_k7x6_bias",
    "fwd_f32_n1c6o9g3_i4x5x6_k4x4x5",
    "fwd_f32_n1c6o8_i9x9_k3x3_s3x6_d2x3",
    "fwd_f32_n2c48o300g3_i2x1_k2x1_relu6",
    "fwd_f64_n3c19o21_i3x3_k3x3",
    "fwd_f16_n2c33o20_i2x2_k2x2_bias",
    "fwd_bf16_n1c70o40_i1x1_k1x1",
    "fwd_bf16>f32_n5c64o16_i1x1_k1x1",
    // an input of one pixel: every output meets one tap
    "fwd_f32_n3c20o33_i1x1_k4x4_p3x3",
    "fwd_f32_n1c12o20g2_i1x1x1_k2x3x4_p1x2x3_bias",
};

TEST(MatrixVector, SmallIntegersAreExactOnEveryTarget) {
  tools::for_each_target([] {
    for (const char* text : kProblems) {
      const ConvProblem p = parse_problem(text);
      CpuPlanner planner = tools::make_planner();
      const tools::Arrays a = tools::make_arrays(p, Data::small_integers);
      EXPECT_EQ(tools::run_cpu(p, a, planner, "matrix_vector"), tools::run_cpu(p, a, planner, "reference")) << text;
    }
  });
}

// The terms of an output side by side, or the outputs of a term, or neither: the same sums in the same order.
TEST(MatrixVector, TheLayoutOfTheWeightsDoesNotChangeBits) {
  tools::for_each_target([] {
    for (const char* text :
         {"fwd_f32_n2c2100o300_i1x1_k1x1", "fwd_f32_n3c21o70_i5x4_k5x4", "fwd_f64_n1c37o290_i2x3_k2x3",
          "fwd_f16_n2c40o33_i3x1_k3x1", "fwd_f32_n2c45o40_i1x1_k4x4_p3x3"}) {
      const ConvProblem p = parse_problem(text);
      CpuPlanner planner = tools::make_planner();
      const tools::Arrays a = tools::make_arrays(p, Data::random);
      // [tap][in][out], with a gap behind every `step` - 1 outputs.
      const auto run = [&](std::int64_t step) {
        tools::Arrays moved = a;
        const std::int64_t in = p.in_channels, out = p.out_channels, terms = p.taps() * in;
        ConvProblem wide = p;
        wide.out_channels = out * step;
        moved.weight.assign(static_cast<std::size_t>(wide.weight_elements()), 0);
        for (std::int64_t o = 0; o < out; ++o)
          for (std::int64_t k = 0; k < terms; ++k)
            moved.weight[static_cast<std::size_t>((k * out + o) * step)] =
                a.weight[static_cast<std::size_t>(o * terms + k)];
        tools::HostOperands host(p, a), weights(wide, moved);
        auto& o = host.operands;
        o.weight = weights.operands.weight;
        o.weight.out = step, o.weight.in = out * step;
        o.weight.tap = {p.kernel[1] * p.kernel[2] * in * out * step, p.kernel[2] * in * out * step, in * out * step};
        return tools::run_cpu(p, host, planner, "matrix_vector");
      };
      const auto wanted = tools::run_cpu(p, a, planner, "matrix_vector");
      EXPECT_EQ(run(1), wanted) << text;
      EXPECT_EQ(run(2), wanted) << text;
    }
  });
}

TEST(MatrixVector, ThreadsDoNotChangeBits) {
  for (const char* text : {"fwd_f32_n2c300o2000_i1x1_k1x1", "fwd_f32_n3c21o70_i5x4_k5x4"})
    tools::expect_same_bits(text, "matrix_vector");
}

TEST(MatrixVector, LongSumsStayWithinTheErrorBound) {
  tools::expect_accurate("fwd_f32_n2c60000o7_i1x1_k1x1", "matrix_vector");
}

TEST(MatrixVector, SaysWhyNot) {
  for (const char* text : {"fwd_f32_n9c4o4_i1x1_k1x1", "fwd_f32_n1c4o4_i2x2_k3x3_p1x1", "wgrad_f32_n1c4o4_i1x1_k1x1"})
    EXPECT_NE(tools::reason_of("matrix_vector", text), "") << text;
}

}  // namespace
}  // namespace vkconv
