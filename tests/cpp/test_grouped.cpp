// The grouped kernel of implicit_gemm, whether or not the planner would take it: vectors of whole groups, and vectors
// that begin and end within groups.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "algorithms/implicit_gemm/grouped.h"
#include "cpu/gemm_kernels.h"
#include "cpu_test.h"
#include "targets.h"

namespace vkconv {
namespace {

using cpu::outputs_in_vector;

std::vector<double> run(const ConvProblem& p, const tools::Arrays& arrays, tools::CpuPlanner& planner) {
  const Context<cpu::Device> context{planner.traits(), kDefaultWorkspaceLimitBytes, planner};
  const auto layout = cpu::grouped_layout(p, context, cpu::register_tile(accumulator(p.dtype)).lanes);
  const tools::HostOperands host(p, arrays);
  const cpu::Buffer workspace(layout.workspace_bytes());
  cpu::run_grouped(layout, layout.orientation.apply(host.operands), workspace.pointer());
  return host.result(p);
}

void expect_matches(const ConvProblem& p, tools::CpuPlanner& planner) {
  const tools::Arrays integers = tools::make_arrays(p, tools::Data::small_integers);
  EXPECT_EQ(run(p, integers, planner), tools::run_exact(p, integers, planner));
  const tools::Arrays random = tools::make_arrays(p, tools::Data::random);
  tools::expect_within_bound(p, random, run(p, random, planner), planner);
}

TEST(Grouped, OutputsOfAVector) {
  const auto outputs = [](const char* text) { return outputs_in_vector(parse_problem(text), 16); };
  EXPECT_EQ(outputs("fwd_f32_n1c32o32g8_i9_k3"), 16);  // four groups
  EXPECT_EQ(outputs("fwd_f32_n1c24o24g8_i9_k3"), 15);  // five, since six could meet
  EXPECT_EQ(outputs("fwd_f32_n1c12o60g4_i9_k3"), 16);  // parts of two
  EXPECT_EQ(outputs("fwd_f32_n1c10o35g5_i9_k3"), 16);  // parts of four
  EXPECT_EQ(outputs("fwd_f32_n1c24o30g3_i9_k3"), 10);  // one, whose neighbour's inputs are too many
  EXPECT_EQ(outputs("fwd_f32_n1c64o64g2_i9_k3"), 0);
}

TEST(Grouped, VectorsOfPartsOfGroupsMatchReference) {
  tools::for_each_target([] {
    tools::CpuPlanner planner = tools::make_planner();
    int within_groups = 0;
    for (const char* text : {
             "fwd_f32_n1c12o60g4_i9x41_k3x3_p1x1_bias_relu",
             "fwd_f32_n2c20o50g10_i7x19_k3x3_s2x2_p1x1_add",
             "fwd_f32_n1c20o28g4_i5x23_k1x1_bias",
             "fwd_f32_n1c80o120g40_i4x9x7_k2x3x1_p1x1x0_bias_add_relu6",
             "fwd_f32_n1c6o42g2_i60_k5_p2_d2_clip-1:1",
             "fwd_f32_n1c5o35g5_i11x14_k4x2_p2x1",
             "fwd_f16_n1c12o60g4_i9x21_k3x3_p1x1_bias",
             "fwd_bf16>f32_n1c8o28g4_i8x21_k3x5_p1x2_add",
             "fwd_f64_n1c8o20g4_i9x21_k3x3_p1x1_bias_relu",
             "fwd_f64_n1c10o15g5_i7x13_k3x2_s1x2",
         }) {
      SCOPED_TRACE(text);
      const ConvProblem p = parse_problem(text);
      const std::int64_t lanes = cpu::register_tile(accumulator(p.dtype)).lanes, outputs = outputs_in_vector(p, lanes);
      if (outputs == 0) continue;
      within_groups += outputs == lanes && lanes % p.out_channels_per_group() != 0;
      expect_matches(p, planner);
    }
    EXPECT_GT(within_groups, 0);
  });
}

TEST(Grouped, FoldedGroupsMatchReference) {
  tools::for_each_target([] {
    tools::CpuPlanner planner = tools::make_planner();
    for (const char* text : {
             "fwd_f32_n1c64o16g16_i9x21_k3x3_p1x1_bias_relu",
             "fwd_f32_n2c30o10g10_i7x19_k3x3_s2x2_p1x1_add",
             "fwd_f32_n1c8o4g4_i11x14_k5x5_p2x2_bias_add_relu6",
             "fwd_f32_n1c40o5g5_i20_k4_d2_p3",
             "fwd_f32_n1c78o26g26_i4x9x7_k2x3x2_p1x1x1",
             "fwd_f16_n1c60o15g15_i9x21_k3x3_p1x1_bias",
             "fwd_bf16>f32_n1c12o4g4_i8x21_k3x5_p1x2_add",
             "fwd_f64_n1c20o5g5_i9x21_k3x3_p1x1_bias_relu",
             "fwd_f64_n1c9o3g3_i7x13_k3x4_s1x2",
             "fwd_f32_n1c8o4g4_i140_k100_p30",  // sums of several chains
             "fwd_f32_n1c30o10g10_i7x19_k3x3_flip",
         }) {
      SCOPED_TRACE(text);
      const ConvProblem p = parse_problem(text);
      const std::int64_t lanes = cpu::register_tile(accumulator(p.dtype)).lanes;
      if (outputs_in_vector(p, lanes) == 0) continue;
      const Context<cpu::Device> context{planner.traits(), kDefaultWorkspaceLimitBytes, planner};
      EXPECT_TRUE(cpu::grouped_layout(p, context, lanes).folds());
      expect_matches(p, planner);
    }
  });
}

// Lanes of other groups stay out of a sum: where a pixel ends a vector begins before its first group, and of few
// channels some lanes have no weights.
TEST(Grouped, FoldedGroupsKeepInfinitiesToThemselves) {
  tools::for_each_target([] {
    tools::CpuPlanner planner = tools::make_planner();
    for (const char* text : {"fwd_f32_n1c30o10g10_i9x21_k3x3_p1x1", "fwd_f32_n1c12o4g4_i9x21_k3x3_p1x1"}) {
      SCOPED_TRACE(text);
      const ConvProblem p = parse_problem(text);
      tools::Arrays a = tools::make_arrays(p, tools::Data::small_integers);
      a.input[static_cast<std::size_t>((4 * 21 + 10) * p.in_channels)] = std::numeric_limits<double>::infinity();
      const auto result = run(p, a, planner);
      const auto own = static_cast<std::size_t>((4 * 21 + 10) * p.out_channels);
      EXPECT_FALSE(std::isfinite(result[own]));
      for (std::size_t i = 0; i < result.size(); ++i)
        if (i % static_cast<std::size_t>(p.out_channels) != 0) EXPECT_TRUE(std::isfinite(result[i])) << i;
    }
  });
}

}  // namespace
}  // namespace vkconv
