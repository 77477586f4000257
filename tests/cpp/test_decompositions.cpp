// The decompositions against the reference: exact for small integers whatever their children are.
#include <gtest/gtest.h>

#include "harness.h"

namespace vkconv {
namespace {

using CpuPlanner = Planner<cpu::Device>;

struct Case {
  const char* algorithm;
  const char* problem;
};

class Decomposition : public testing::TestWithParam<Case> {};

TEST_P(Decomposition, EqualsTheReference) {
  CpuPlanner planner(registry<cpu::Device>(), cpu::host_traits());
  const ConvProblem p = parse_problem(GetParam().problem);
  const auto arrays = tools::make_arrays(p, tools::Data::small_integers);
  const auto expected = tools::run_cpu(p, arrays, planner, "reference");
  EXPECT_EQ(tools::run_cpu(p, arrays, planner, GetParam().algorithm), expected);
  EXPECT_EQ(tools::run_cpu(p, arrays, planner, GetParam().algorithm, kDefaultWorkspaceLimitBytes, true), expected);
}

INSTANTIATE_TEST_SUITE_P(
    Problems, Decomposition,
    testing::Values(Case{"small_kernel_depth", "fwd_f32_n1c3o4_i5x6x7_k2x3x3_p0x1x1"},
                    Case{"small_kernel_depth", "fwd_f16_n2c3o4_i5x6x7_k3x1x1_p1x0x0_bias_relu"},
                    Case{"small_kernel_depth", "fwd_bf16_n2c4o4g2_i7x3x3_k3x2x2_s2x1x1_d2x1x1_p3:1x0x1_flip_bias"},
                    Case{"small_kernel_depth", "fwd_f64_n1c2o3_i9x3x3_k5x1x1_p-1x0x0_add_relu"},
                    Case{"small_kernel_depth", "fwd_f16>f32_n1c2o3_i9x3x3_k5x3x3_p2x1x1_add"},
                    Case{"transpose_phases", "fwd_f32_n2c3o4_i5_k3_t2_p2"},
                    Case{"transpose_phases", "fwd_f32_n1c2o3_i8_k3_t2_p-1"},
                    Case{"transpose_phases", "fwd_f32_n1c2o2_i4_k1_t3_p2:4_bias_relu"},
                    Case{"transpose_phases", "fwd_f32_n1c2o3_i5x6_k4x3_t2x3_p3x1_s3x2_flip"},
                    Case{"transpose_phases", "fwd_bf16_n1c4o2g2_i4x5x6_k3x2x4_t2x1x3_d2x3x6_p1x2x3_bias"},
                    Case{"transpose_phases", "fwd_f32_n1c1o1_i13_k16_t8_p15"},
                    Case{"phase_channels", "fwd_f32_n1c1o1_i13_k16_t8_p15"},
                    Case{"phase_channels", "fwd_f32_n2c3o1_i9_k8_t4_p3_bias_relu"},
                    Case{"phase_channels", "fwd_f16_n2c3o1_i9_k12_t4_p-2:9_flip_bias"},
                    Case{"phase_channels", "fwd_f32_n2c3o1_i5x9_k3x6_t1x3_p1x5_s2x1_d2x1_add"},
                    Case{"phase_channels", "fwd_f64_n1c2o1_i7_k2_t2_p0"},
                    Case{"phase_channels", "fwd_f32_n2c3o5_i4x7_k4x4_t2x2_p2x2_flip_bias_relu"},
                    Case{"phase_channels", "fwd_f32_n1c4o2_i3x4x5_k2x2x2_t2x2x2_p1x1x1_flip_bias_add"},
                    Case{"phase_channels", "fwd_f16_n2c3o4_i9x5_k3x9_t2x3_p1x4_s3x1_d2x1_add"},
                    Case{"phase_channels", "fwd_bf16>f32_n1c2o3_i9_k12_t4_p-2:9_flip_bias"},
                    Case{"phase_channels", "fwd_f64_n1c2o3_i7x3_k1x2_t1x2_p0x1"},
                    Case{"dilation_phases", "fwd_f32_n1c3o4_i19_k3_d5_p5"},
                    Case{"dilation_phases", "fwd_f32_n2c3o4_i9x10_k3x2_d2x4_s3x6_p2:3x-1_bias_relu6"},
                    Case{"dilation_phases", "fwd_f16_n1c2o2g2_i3x4x5_k2x2x2_d2x9x3_p0x9x3_add"},
                    Case{"dilation_phases", "fwd_f32_n1c3o4_i12x15_k3x3_d4x5_p4x5_add_bias_relu"},
                    Case{"dilation_phases", "fwd_f16_n2c3o4_i13x9_k3x2_d4x3_s3x2_p3x1_flip_add"},
                    Case{"dilation_phases", "fwd_bf16_n1c2o4g2_i8x6x10_k3x2x3_d2x3x5_p2x0x4:6_bias"},
                    Case{"trimmed_kernel", "fwd_f32_n2c3o4_i9x7_k3x3_d12x4_p12x4_bias_relu"},
                    Case{"trimmed_kernel", "fwd_f16_n1c4o2g2_i4x3x5_k3x5x2_d1x2x7_s1x3x2_p1x3x-1:9_flip_add"},
                    Case{"trimmed_kernel", "fwd_f32_n1c2o3_i5_k2_d20_p10_bias"},
                    Case{"input_grad", "igrad_f32_n2c3o4_i9_k3_s2_p1"},
                    Case{"input_grad", "igrad_f16_n2c6o4g2_i9x8_k3x2_s3x2_d2x1_p1x2_flip"},
                    Case{"input_grad", "igrad_f32_n1c2o3_i8_k3_t2_s3_p-1"},
                    Case{"input_grad", "igrad_f64_n1c2o3_i4x5x6_k2x3x1_s2x1x4_p1x1x0"}));

TEST(DilationPhases, AlikeOnesAreOneProblem) {
  CpuPlanner planner(registry<cpu::Device>(), cpu::host_traits());
  const auto plan = [&](const char* text) {
    return planner.plan({parse_problem(text), "dilation_phases"})->describe();
  };
  EXPECT_EQ(plan("fwd_f32_n1c1o1g1_i40_k3_d5_p5_gelu").find("dilation_phases(1x "), 0u);
  EXPECT_EQ(plan("fwd_f32_n1c64o64_i56x56_k3x3_d4x4_p4x4").find("dilation_phases(1x "), 0u);
  EXPECT_EQ(plan("fwd_f32_n2c64o64_i56x56_k3x3_d4x4_p4x4").find("dilation_phases(4x "), 0u);
  EXPECT_EQ(plan("fwd_f32_n1c64o64_i56x57_k3x3_d4x4_p4x4").find("dilation_phases(2x "), 0u);
}

// Nine phases, of two sizes along each axis, and one set of weights.
TEST(DilationPhases, SharePreparedWeights) {
  CpuPlanner planner(registry<cpu::Device>(), cpu::host_traits());
  const ConvProblem p = parse_problem("fwd_f64_n2c32o32_i31x31_k3x3_d3x3_p3x3");
  const auto plan = planner.plan({p, "dilation_phases"});
  const auto arrays = tools::make_arrays(p, tools::Data::small_integers);
  tools::HostOperands host(p, arrays);
  cpu::Device::Stream stream;
  const auto prepared = plan->prepare(stream, host.operands.weight);
  EXPECT_EQ(prepared.children.size(), 1u) << plan->weight_layout();
}

// A device that addresses few elements makes `split` run.
TEST(Split, EqualsTheWhole) {
  cpu::Traits tiny = cpu::host_traits();
  tiny.max_operand_elements = 100;
  CpuPlanner limited(registry<cpu::Device>(), tiny), planner(registry<cpu::Device>(), cpu::host_traits());
  for (const char* text : {"fwd_f32_n7c3o4_i9_k3_p1", "fwd_f32_n1c2o3_i30x8_k3x3_s2x1_p4x1_bias",
                           "fwd_f32_n1c2o3_i40_k3_t3_p-2_flip", "fwd_f32_n1c1o2_i8_k3_p200"}) {
    const ConvProblem p = parse_problem(text);
    const auto arrays = tools::make_arrays(p, tools::Data::small_integers);
    EXPECT_EQ(tools::run_cpu(p, arrays, limited, "split"), tools::run_cpu(p, arrays, planner, "reference")) << text;
  }
}

}  // namespace
}  // namespace vkconv
