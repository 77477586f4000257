#include <cmath>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "algorithms/depthwise/depthwise_blocking.h"
#include "cpu_test.h"
#include "targets.h"

namespace vkconv {
namespace {

using tools::CpuPlanner;
using tools::Data;

const char* const kProblems[] = {
    // ranks, kernels and strides
    "fwd_f32_n1c32o32g32_i17x19_k3x3_p1x1",
    "fwd_f32_n2c16o16g16_i13x9_k3x3_s2x2_p1x1",
    "fwd_f32_n1c48o48g48_i12x29_k5x5_p2x2",
    "fwd_f32_n1c33o33g33_i20x17_k7x7_p3x3",
    "fwd_f32_n1c17o17g17_i11x14_k5x5_s2x2_p2x2",
    "fwd_f32_n2c64o64g64_i40_k4_p3:0",
    "fwd_f32_n2c21o21g21_i50_k9_p4",
    "fwd_f32_n1c18o18g18_i5x6x7_k3x3x3_p1x1x1",
    "fwd_f32_n1c54o54g54_i4x9x8_k3x3x3_s1x2x2_p1x1x1",
    "fwd_f32_n1c20o20g20_i9x9_k4x4",
    "fwd_f32_n1c20o20g20_i9x9_k2x2_s2x2",
    "fwd_f32_n1c20o20g20_i9x9_k1x1_s3x2",
    "fwd_f32_n1c20o20g20_i19x18_k3x3_s3x4_p1x2",
    "fwd_f32_n1c24o24g24_i9x8_k6x1_p3x0",
    "fwd_f32_n1c24o24g24_i9x30_k1x11_p0x5",
    "fwd_f32_n1c70o70g70_i8x31_k3x3_p1x1",
    "fwd_f32_n1c20o20g20_i2x5_k3x3_p1x1",
    "fwd_f32_n1c20o20g20_i11x6_k3x3_p4:2x1",
    "fwd_f32_n1c20o20g20_i3x9x12_k8x3x3_p7x1x1",
    "fwd_f32_n1c20o20g20_i9x12_k2x5_p1:0x2",
    "fwd_f32_n1c20o20g20_i5x9x21_k2x4x7_p1x2x3",
    // two rows of outputs at a time at stride 2
    "fwd_f32_n1c33o33g33_i20x29_k7x7_s2x2_p3x3",
    "fwd_f32_n2c16o16g16_i9x47_k5x5_s2x2_p2x2_bias_add_relu",
    "fwd_f32_n1c20o20g20_i4x11x21_k2x5x5_s1x2x2_p1x2x2",
    "fwd_f32_n1c20o20g20_i2x40_k3x7_s2x2_p3x3",
    "fwd_f32_n1c16o16g16_i19x23_k5x5_s4x4_d2x2_p4x4",
    "fwd_f32_n1c20o20g20_i29x50_k5x7_s4x2_d6x3_p6x9",
    "fwd_f32_n1c20o40g20_i15x16_k5x5_s2x2_p2x2",
    "fwd_f16_n1c70o70g70_i12x25_k7x7_s2x2_p3x3_bias_silu",
    // depths in the place of rows
    "fwd_f32_n2c20o40g20_i5x9x12_k3x3x3_s1x2x2_p1x1x1_bias_add_relu",
    "fwd_f32_n1c33o33g33_i7x9x21_k3x5x5_s2x3x2_p1x2x2",
    "fwd_bf16_n1c33o33g33_i6x9x28_k3x3x3_s1x2x2_p2x1x0",
    // vectors that begin where the input is aligned, and pixels so far apart that they collide in the caches
    "fwd_f32_n1c144o144g144_i9x21_k3x3_s2x2_p1x1_bias_add_relu",
    "fwd_f32_n1c160o160g160_i9x21_k3x3_p1x1_add",
    "fwd_f16_n1c144o144g144_i5x21_k1x5_p0x2",
    "fwd_f32_n1c1024o1024g1024_i9x41_k7x7_s2x2",
    "fwd_f32_n2c1024o1024g1024_i41_k9_p4",
    "fwd_bf16_n1c2048o2048g2048_i7x7_k3x3_p1x1",
    // dilation, alone and with strides
    "fwd_f32_n1c33o33g33_i15x15_k5x5_d2x2_p4x4",
    "fwd_f32_n1c16o16g16_i21x22_k3x3_s2x2_d2x2_p2x2",
    "fwd_f32_n1c16o16g16_i21x22_k3x3_s2x2_d3x3_p3x3",
    "fwd_f32_n1c16o16g16_i21x22_k3x4_s4x6_d2x4_p3x3",
    "fwd_f32_n1c16o16g16_i7x300_k3x3_d1x70_p1x70",
    "fwd_f32_n1c16o16g16_i21x22_k3x3_s2x1_d4x2_p4x2",
    "fwd_f32_n1c16o16g16_i21x22_k3x3_s1x2_d3x2_p3x2",
    // transposed: phases that take turns, of one and of several taps, unlike in size, of every axis; one phase alone
    "fwd_f32_n2c33o33g33_i13x15_k3x3_t2x2_p1x1",
    "fwd_f32_n1c32o32g32_i9x11_k4x4_t2x2_p2x2_bias_add_relu",
    "fwd_f32_n1c20o20g20_i9x21_k5x7_t2x3_p2:3x-1:4",
    "fwd_f32_n1c70o70g70_i5x7_k2x2_t2x2_p1x1",
    "fwd_f32_n1c20o20g20_i4x5x6_k3x3x3_t2x2x2_p1x1x1_bias",
    "fwd_f32_n2c48o48g48_i40_k4_t2_p1:2",
    "fwd_f32_n1c16o16g16_i60x1_k5x1_t4x1_p2x0",
    "fwd_f32_n1c16o16g16_i9x11_k5x5_s3x2_t2x2_p2x2",
    "fwd_f32_n1c16o16g16_i9x11_k7x7_s2x1_t4x3_d3x2_p6x6",
    "fwd_f32_n1c16o16g16_i3x3_k16x16_t8x8_p12x12",
    "fwd_f16_n1c48o48g48_i9x11_k4x4_t2x2_p1x2_bias_silu",
    "fwd_bf16_n1c33o33g33_i9x11_k3x3_t2x2_p1x1_add",
    "fwd_f64_n1c20o20g20_i9x11_k3x3_t2x2_p1x1_relu",
    // padding: asymmetric, negative, wider than the kernel, wider than the input
    "fwd_f32_n1c19o19g19_i9x10_k3x3_p0:2x2:0",
    "fwd_f32_n1c19o19g19_i9x10_k3x3_p-1x-2:1",
    "fwd_f32_n1c19o19g19_i9x10_k3x3_p5x6",
    "fwd_f32_n1c19o19g19_i1x1_k7x7_p3x3",
    "fwd_f32_n1c19o19g19_i2x1_k3x3_p4:3x7",
    "fwd_f32_n1c3o3g3_i9x10_k3x3_p5x9:1",
    "fwd_f32_n1c3o3g3_i9x10_k3x3_p-1x-2:1",
    // few channels, and multipliers
    "fwd_f32_n2c1o1g1_i15x40_k5x5_p2x2",
    "fwd_f32_n1c2o2g2_i15x40_k3x3_s2x2_p1x1",
    "fwd_f32_n1c3o3g3_i15x71_k3x3_p1x1",
    "fwd_f32_n1c3o3g3_i16x30_k3x3_s2x3_d3x2_p1x1",
    "fwd_f32_n1c5o5g5_i100_k7_p3",
    "fwd_f32_n1c15o15g15_i12x13_k3x3_p1x1",
    "fwd_f32_n1c3o3g3_i15x71_k11x9_p5x4",
    "fwd_f32_n2c5o5g5_i9x90_k3x3_p1x1_bias_relu",
    "fwd_f32_n1c6o6g6_i17x90_k2x70_p1x35",
    "fwd_f32_n1c4o4g4_i5x9x61_k3x3x3_p1x1x1",
    "fwd_f16_n1c4o12g4_i11x65_k5x5_s1x2_p2x2_bias_add",
    "fwd_f32_n1c1o8g1_i12x13_k3x3_p1x1",
    "fwd_f32_n1c1o40g1_i12x13_k3x3_p1x1",
    "fwd_f32_n1c3o6g3_i12x13_k3x3_p1x1",
    "fwd_f32_n1c32o64g32_i12x13_k3x3_p1x1",
    "fwd_f32_n1c11o33g11_i12x13_k5x3_s2x1_p1x1",
    "fwd_f32_n1c7o35g7_i5x6x7_k2x3x2_p1x1x1_d1x1x2",
    "fwd_f32_n1c19o38g19_i12x13_k3x3_s2x1_p1x1_bias_relu",
    "fwd_f32_n1c70o210g70_i9x17_k3x3_d2x1_p1x1_add",
    "fwd_f32_n2c3o51g3_i12x13_k3x3_p1x1",
    "fwd_bf16_n1c40o80g40_i12x13_k3x3_p1x1",
    // other types
    "fwd_f64_n1c9o9g9_i12x13_k3x3_p1x1",
    "fwd_f64_n1c3o3g3_i12x13_k3x3_s2x2_p1x1",
    "fwd_f64_n1c10o20g10_i12x13_k5x5_p2x2",
    "fwd_f16_n1c40o40g40_i12x13_k3x3_p1x1",
    "fwd_f16_n1c5o5g5_i12x13_k3x3_p1x1",
    "fwd_f16>f32_n1c40o40g40_i12x13_k3x3_s2x2_p1x1",
    "fwd_bf16_n2c40o40g40_i50_k4_p3:0",
    "fwd_bf16_n1c3o9g3_i12x13_k3x3_p1x1",
    "fwd_bf16_n1c3o6g3_i12x13_k3x3_s2x2",
    "fwd_f16_n1c7o7g7_i12x13_k3x3_s2x2",
    "fwd_f64_n1c3o6g3_i12x13_k3x3_s1x2",
    "fwd_f16_n1c40o40g40_i12x19_k5x5_p2x2",
    "fwd_bf16_n1c40o40g40_i13x12_k7x7_p3x3",
    "fwd_f64_n1c20o20g20_i9x12_k5x5_p2x2",
    "fwd_bf16>f32_n1c37o37g37_i12x13_k3x3_p1x1",
    // epilogues
    "fwd_f32_n1c33o33g33_i12x13_k3x3_p1x1_bias_relu",
    "fwd_f32_n1c33o33g33_i12x13_k3x3_p1x1_add",
    "fwd_f32_n1c33o33g33_i12x13_k3x3_p1x1_bias_add_relu6",
    "fwd_f32_n1c3o3g3_i12x13_k3x3_p1x1_bias_add_clip-1:1.5",
    "fwd_f32_n1c3o6g3_i12x13_k3x3_p1x1_bias_leaky_relu0.5",
    "fwd_f16_n1c33o33g33_i12x13_k3x3_p1x1_bias_add_relu",
    "fwd_bf16_n1c3o3g3_i12x13_k3x3_p1x1_bias_relu",
    "fwd_f64_n1c3o3g3_i12x13_k3x3_p1x1_bias_add",
    // rows that are another axis: that of the taps, or a longer one
    "fwd_f32_n2c32o32g32_i9x6_k5x1_s1x2_d2x1_p4x0",
    "fwd_f16_n1c48o48g48_i12x4x5_k7x1x1_p3x0x0_bias_relu",
    "fwd_f32_n1c10o20g10_i12x9_k6x1_p2x0",
    "fwd_f32_n7c24o24g24_i2x3_k2x3_p1x1_add",
    "fwd_f64_n1c9o9g9_i40x3_k3x2_s2x1_p1x1",
    "fwd_bf16_n1c5o5g5_i21x2_k3x2_p1x0",
};

std::vector<double> reference(const ConvProblem& p, const tools::Arrays& a, CpuPlanner& planner) {
  return tools::run_cpu(p, a, planner, "reference");
}

void expect_exact(const std::string& text, bool prepare = false, std::size_t limit = kDefaultWorkspaceLimitBytes) {
  const ConvProblem p = parse_problem(text);
  CpuPlanner planner = tools::make_planner();
  const tools::Arrays a = tools::make_arrays(p, Data::small_integers);
  EXPECT_EQ(tools::run_cpu(p, a, planner, "depthwise", limit, prepare), reference(p, a, planner)) << text;
}

TEST(Depthwise, SmallIntegersAreExactOnEveryTarget) {
  tools::for_each_target([] {
    for (const char* text : kProblems) expect_exact(text);
  });
}

TEST(Depthwise, PreparedWeightsAndMirroredKernelsAreExact) {
  for (const char* text : kProblems) expect_exact(std::string(text) + "_flip", true);
}

// Of AVX-512; narrower vectors are filled.
TEST(Depthwise, PixelsThatFillHalfAVectorAreExact) {
  for (const char* text : {"fwd_f32_n2c8o8g8_i13x30_k3x3_p1x1", "fwd_f32_n1c9o9g9_i13x30_k3x3_s2x2_p1x1_bias_add_relu",
                           "fwd_f32_n1c15o15g15_i5x9x21_k3x5x5_p1x2x2", "fwd_f32_n2c12o12g12_i70_k4_p3:0",
                           "fwd_f16_n1c12o12g12_i9x40_k5x5_p2x2", "fwd_bf16_n1c8o8g8_i9x41_k3x3_s2x2_p1x1_bias_relu",
                           "fwd_bf16>f32_n1c13o13g13_i9x21_k3x3_d2x2_p2x2", "fwd_f64_n1c5o5g5_i9x41_k7x7_s2x2_p3x3",
                           "fwd_f64_n1c4o4g4_i21x9_k5x1_p2x0"}) {
    expect_exact(text);
    expect_exact(std::string(text) + "_flip", true);
  }
  if (cpu::host_traits().half_vector_share > 0) expect_exact("fwd_f32_n1c10o10g10_i9x11_k4x4_t2x2_p1x2_bias");
}

TEST(Depthwise, PixelsThatFillHalfAVectorTakeHalfVectors) {
  cpu::Traits traits;
  traits.vector_bytes = 64;
  const auto vector_bytes = [&](const char* text) {
    return cpu::depthwise::with_vectors_of(parse_problem(text), traits).vector_bytes;
  };
  EXPECT_EQ(vector_bytes("fwd_f32_n1c8o8g8_i9x9_k3x3"), 64);
  traits.half_vector_share = 0.5;
  for (const char* text :
       {"fwd_f32_n1c8o8g8_i9x9_k3x3", "fwd_bf16_n1c15o15g15_i9x9_k3x3", "fwd_f64_n1c4o4g4_i9x9_k3x3"})
    EXPECT_EQ(vector_bytes(text), 32) << text;
  for (const char* text : {"fwd_f32_n1c7o7g7_i9x9_k3x3", "fwd_f32_n1c16o16g16_i9x9_k3x3", "fwd_f32_n1c4o8g4_i9x9_k3x3",
                           "fwd_f64_n1c8o8g8_i9x9_k3x3"})
    EXPECT_EQ(vector_bytes(text), 64) << text;
  traits = cpu::host_traits();
  const ConvProblem p = parse_problem("fwd_f32_n1c8o8g8_i9x9_k3x3");
  const auto blocking =
      cpu::depthwise::choose_blocking(p, cpu::depthwise::with_vectors_of(p, traits), kDefaultWorkspaceLimitBytes);
  const bool fills = traits.vector_bytes <= 32 || traits.half_vector_share > 0;
  EXPECT_EQ(blocking.mode, fills ? cpu::depthwise::Mode::direct : cpu::depthwise::Mode::flat);
}

TEST(Depthwise, TightWorkspaceGivesTheSameAnswer) {
  for (const char* text : kProblems) {
    const ConvProblem p = parse_problem(text);
    CpuPlanner planner = tools::make_planner();
    const tools::Arrays a = tools::make_arrays(p, Data::random);
    std::size_t limit = kDefaultWorkspaceLimitBytes;
    const auto wide = tools::run_cpu(p, a, planner, "depthwise", limit);
    for (;;) {
      limit = planner.plan({p, "depthwise", limit})->workspace_bytes();
      if (limit == 0) break;
      try {
        ASSERT_LE(planner.plan({p, "depthwise", limit - 1})->workspace_bytes(), limit - 1) << text;
      } catch (const ProblemError&) {
        break;
      }
      EXPECT_EQ(tools::run_cpu(p, a, planner, "depthwise", --limit), wide) << text << " limit " << limit;
    }
  }
}

TEST(Depthwise, RandomDataStaysWithinTheErrorBound) {
  for (const char* text : {"fwd_f32_n1c64o64g64_i15x15_k3x3_p1x1", "fwd_f32_n1c20o20g20_i40x40_k31x31_p15x15",
                           "fwd_f32_n1c16o16g16_i600_k600_p599:0", "fwd_f32_n1c2o2g2_i600_k600_p599:0",
                           "fwd_f64_n1c20o20g20_i9x9_k5x5_p2x2", "fwd_f16_n1c48o48g48_i9x9_k3x3_p1x1_bias_silu",
                           "fwd_bf16_n1c48o48g48_i9x9_k7x7_p3x3", "fwd_f32_n1c48o48g48_i9x9_k3x3_p1x1_bias_gelu"})
    tools::expect_accurate(text, "depthwise");
}

TEST(Depthwise, SaysWhichDilatedInputsItLeaves) {
  const auto reason = [](const char* text) { return tools::reason_of("depthwise", text); };
  EXPECT_EQ(reason("fwd_f32_n1c3o3g3_i9x9_k3x3_t2x2"), "the input is dilated and its channels fill no vector");
  EXPECT_EQ(reason("fwd_f32_n1c64o128g64_i9x9_k3x3_t2x2"),
            "the input is dilated and its channels have several filters");
  EXPECT_EQ(reason("fwd_f32_n1c64o64g64_i9x9_k3x1_t2x2"), "the input is dilated and some outputs see no tap");
  EXPECT_EQ(reason("fwd_f32_n1c64o64g64_i9x9_k3x3_t2x2"), "");
}

cpu::Traits with_l3(bool fast) {
  cpu::Traits traits = cpu::host_traits();
  traits.threads = 2;
  traits.l2_bytes = 32 << 10;
  traits.shared_cache_bytes_per_second = traits.memory_bytes_per_second * (fast ? 4 : 1);
  return traits;
}

// Vectors begin where the input or where the output is aligned, and tiles are wide or narrow, as L3's rate has it; the
// bits are the same.
TEST(Depthwise, TheRateOfL3DoesNotChangeBits) {
  for (const char* text : {"fwd_f32_n1c144o144g144_i9x21_k3x3_s2x2_p1x1_bias_add_relu",
                           "fwd_f32_n1c160o160g160_i9x21_k3x3_p1x1_add", "fwd_f16_n1c144o144g144_i5x21_k1x5_p0x2"}) {
    const ConvProblem p = parse_problem(text);
    const tools::Arrays a = tools::make_arrays(p, Data::random);
    std::vector<double> results[2];
    for (const bool fast_l3 : {false, true}) {
      const cpu::Traits traits = with_l3(fast_l3);
      const auto blocking = cpu::depthwise::choose_blocking(p, traits, kDefaultWorkspaceLimitBytes);
      EXPECT_EQ(blocking.align_inputs, fast_l3 || p.stride[2] > 1);
      EXPECT_EQ(blocking.narrow, !fast_l3 && p.bytes_moved() > 64 << 10);
      CpuPlanner planner(registry<cpu::Device>(), traits);
      results[fast_l3] = tools::run_cpu(p, a, planner, "depthwise");
    }
    EXPECT_EQ(results[0], results[1]) << text;
  }
}

// Threads share rows of whole pixels, evenly or not, where there are rows; blocks that keep lines in L2 are nobody's
// own.
TEST(Depthwise, ThreadsShareRowsBeforeChannels) {
  const auto blocking = [](const char* text, int threads) {
    cpu::Traits traits = with_l3(true);
    traits.threads = threads;
    traits.l2_bytes = 1 << 20;
    return cpu::depthwise::choose_blocking(parse_problem(text), traits, kDefaultWorkspaceLimitBytes);
  };
  for (const char* text : {"fwd_f32_n1c768o768g768_i30x30_k3x3_p1x1", "fwd_f32_n1c960o960g960_i7x7_k5x5_p2x2"}) {
    EXPECT_EQ(blocking(text, 2).channel_shares, 1) << text;
    EXPECT_EQ(blocking(text, 2).tasks, 2) << text;
  }
  EXPECT_EQ(blocking("fwd_f32_n1c768o768g768_i30x30_k3x3_p1x1", 2).channel_blocks, 1);
  EXPECT_GT(blocking("fwd_f32_n1c960o960g960_i7x7_k5x5_p2x2", 2).channel_blocks, 1);
  EXPECT_EQ(blocking("fwd_f32_n1c960o960g960_i7x7_k3x3_p1x1", 16).channel_shares, 2);
  EXPECT_EQ(blocking("fwd_f32_n1c960o960g960_i31_k3_p1", 2).channel_shares, 2);
  EXPECT_EQ(blocking("fwd_f32_n1c960o960g960_i31_k3_p1", 1).channel_shares, 1);
}

// Outputs too large for the caches are written past them where they are aligned.
TEST(Depthwise, OutputsPastTheCachesAreExact) {
  cpu::Traits small_caches = cpu::host_traits();
  small_caches.l3_bytes = 1;
  CpuPlanner planner(registry<cpu::Device>(), small_caches);
  for (const char* text : {"fwd_f32_n1c64o64g64_i9x15_k3x3_p1x1", "fwd_f32_n2c48o48g48_i40_k4_p3:0",
                           "fwd_f32_n1c54o54g54_i6x7x9_k3x3x3_p1x1x1", "fwd_f64_n1c32o32g32_i9x9_k5x5_s2x2_p2x2",
                           "fwd_bf16_n1c32o32g32_i9x21_k3x3_p1x1", "fwd_f32_n1c32o64g32_i9x15_k3x3_p1x1_bias"}) {
    const ConvProblem p = parse_problem(text);
    const tools::Arrays a = tools::make_arrays(p, Data::small_integers);
    tools::HostOperands host(p, a);
    const cpu::Buffer output(host.output.size());
    host.operands.output.data = output.pointer();
    tools::run_cpu(p, host, planner, "depthwise");
    EXPECT_EQ(tools::decode(output.pointer(), p.written_elements(), p.output_dtype), reference(p, a, planner)) << text;
  }
}

TEST(Depthwise, ThreadsAndPreparationDoNotChangeBits) {
  for (const char* text : {"fwd_f32_n1c200o200g200_i15x15_k3x3_p1x1", "fwd_f32_n1c150o150g150_i301_k4_p3:0",
                           "fwd_f16_n1c130o130g130_i15x16_k5x5_p2x2", "fwd_f32_n2c3o3g3_i40x41_k3x3_s2x2_p1x1",
                           "fwd_f32_n1c40o80g40_i6x15x16_k3x3x3_p1x1x1", "fwd_f32_n1c20o20g20_i24x24_k31x31_p15x15",
                           "fwd_f32_n1c3o3g3_i23x61_k11x11_p5x5"})
    tools::expect_same_bits(text, "depthwise");
}

TEST(Depthwise, PaddingNeverMeetsInfiniteWeights) {
  CpuPlanner planner = tools::make_planner();
  for (const char* text : {"fwd_f32_n1c20o20g20_i6x7_k3x3_p1x1", "fwd_f32_n1c3o3g3_i6x7_k3x3_p1x1",
                           "fwd_bf16_n1c20o20g20_i6x7_k5x5_p2x2", "fwd_f32_n1c20o20g20_i9x9_k3x3_s2x2_p1x1"}) {
    const ConvProblem p = parse_problem(text);
    tools::Arrays a = tools::make_arrays(p, Data::small_integers);
    for (std::size_t i = 0; i < a.input.size(); ++i) a.input[i] = 1;
    for (std::size_t i = 0; i < a.weight.size(); i += 2) a.weight[i] = HUGE_VAL;
    const auto got = tools::run_cpu(p, a, planner, "depthwise"), expected = reference(p, a, planner);
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], expected[i]) << text << " at " << i;
  }
}

// Reversed, cropped and broadcast input, a transposed output, and the addend in place of the output.
void expect_views_exact(const char* text) {
  const ConvProblem p = parse_problem(text);
  CpuPlanner planner = tools::make_planner();
  const tools::Arrays a = tools::make_arrays(p, Data::small_integers);
  const auto run = [&](const std::string& algorithm) {
    tools::HostOperands host(p, a);
    auto& x = host.operands.input;
    x = x.sliced(2, p.input[1] - 1, -1, p.dtype);
    x.stride[3] = 0;
    auto& y = host.operands.output;
    y.stride[2] = p.out_channels;
    y.stride[3] = p.out_channels * p.output[1];
    if (p.epilogue.addend) {
      std::memcpy(host.output.data(), host.addend.data(), host.output.size());
      host.operands.addend = y;
    }
    return tools::run_cpu(p, host, planner, algorithm);
  };
  EXPECT_EQ(run("depthwise"), run("reference")) << text;
}

TEST(Depthwise, ViewsAreExact) {
  for (const char* text :
       {"fwd_f32_n1c33o33g33_i12x13_k3x3_p1x1", "fwd_f32_n1c3o3g3_i12x13_k3x3_p1x1",
        "fwd_bf16_n1c33o33g33_i12x13_k3x3_p1x1_bias", "fwd_f32_n1c33o33g33_i12x13_k3x3_p1x1_bias_add_relu",
        "fwd_f32_n1c3o6g3_i12x13_k3x3_p1x1_add", "fwd_f64_n1c9o9g9_i12x13_k3x3_s1x2_p1x1_add"})
    expect_views_exact(text);
}

TEST(Depthwise, SaysWhyNot) {
  CpuPlanner planner = tools::make_planner();
  for (const auto& [text, reason] : {std::pair{"fwd_f32_n1c4o4_i9_k3", "groups"},
                                     {"igrad_f32_n1c4o4g4_i9_k3", "forward"},
                                     {"fwd_f32_n1c4o4g4_i9_k3_t2", "dilated"}})
    EXPECT_NE(tools::reason_of("depthwise", text).find(reason), std::string::npos) << text;
  EXPECT_THROW(planner.plan({parse_problem("fwd_f32_n1c64o64g64_i9_k3"), "depthwise", 16}), ProblemError);
}

}  // namespace
}  // namespace vkconv
