#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "algorithms/weight_grad/weight_grad_walk.h"
#include "cpu_test.h"
#include "targets.h"

namespace vkconv {
namespace {

using tools::CpuPlanner;
using tools::Data;

const char* const kProblems[] = {
    // dense: ranks, tails, kernels, strides
    "wgrad_f32_n2c16o32_i9x11_k3x3_p1x1",
    "wgrad_f32_n1c33o17_i9x11_k3x3_p1x1",
    "wgrad_f32_n1c3o64_i23x25_k7x7_s2x2_p3x3",
    "wgrad_f32_n9c1o40_i9x14_k3x3_p1x1",
    "wgrad_f32_n2c3o20_i11x13_k5x7_s1x2_p2x3",
    "wgrad_f32_n2c3o20_i30_k9_p4",
    "wgrad_f32_n2c15o33_i6x4_k5x8_p2x5",
    "wgrad_f32_n2c16o40_i9x11_k3x3_p1x1",
    "wgrad_f32_n3c5o3_i9x10_k2x4",
    "wgrad_f32_n1c1o1_i30x31_k5x5_p2x2",
    "wgrad_f32_n1c64o3_i10x10_k3x3_p1x1",
    "wgrad_f32_n70c20o40_i1x1_k1x1",
    "wgrad_f32_n2c18o20_i300_k5_p4:0",
    "wgrad_f32_n1c2o4_i200_k70_p69:0",
    "wgrad_f32_n1c8o24_i5x6x7_k3x2x3_s2x1x2_p1x0x1",
    "wgrad_f32_n1c40o9_i7x130_k3x3_s1x3_p1x1",
    // one block of pixels: the sums are stored in the weight
    "wgrad_f32_n1c40o33_i4x4_k3x3_p1x1",
    "wgrad_f32_n2c37o20_i3x5_k1x1",
    "wgrad_f32_n1c50o40_i1x1_k3x3_p1x1",
    "wgrad_f32_n2c16o50g2_i2x7_k3x3_s1x2_p1x4",
    "wgrad_f64_n1c20o9_i5x5_k3x3_s2x2_p1x1",
    "wgrad_bf16>f32_n1c33o20_i5x5_k3x3_p1x1",
    // short rows: another axis takes their place
    "wgrad_f32_n1c20o18_i40x2_k3x1_p1x0",
    "wgrad_f32_n40c20o18_i2x2_k3x3_p1x1",
    "wgrad_f32_n1c18o20_i30x2x3_k3x2x3_s2x1x1_p1x0x2",
    "wgrad_f32_n2c32o32g32_i20x9_k5x1_d2x1_p4x0",
    "wgrad_f32_n1c24o24g24_i11x2_k3x1_p1x0",
    "wgrad_f32_n3c16o32g4_i9x8_k3x1_s2x1",
    "wgrad_f16_n2c6o6g3_i8x3_k1x1",
    // dilation of either kind, alone and together
    "wgrad_f32_n1c16o20_i15x16_k3x3_d2x3_p2x3",
    "wgrad_f32_n1c16o20_i9x8_k3x3_t2x2_p1x1",
    "wgrad_f32_n1c16o20_i9x8_k4x3_s3x2_d2x1_t2x4_p3x2",
    "wgrad_f32_n1c16o20_i9x8_k3x5_s4x6_d1x3_t6x4_p2x5",
    "wgrad_f32_n1c2o1_i50_k64_t16_p63",
    "wgrad_f32_n1c3o520_i9_k3_t2_p1",
    // padding
    "wgrad_f32_n1c17o18_i9x10_k3x3_p0:2x3:0",
    "wgrad_f32_n1c17o18_i9x10_k3x3_p-1x-2:1",
    "wgrad_f32_n1c17o18_i2x1_k3x3_p4:3x6",
    // groups
    "wgrad_f32_n1c32o64g2_i9x10_k3x3_p1x1",
    "wgrad_f32_n1c64o40g2_i9x10_k3x3_s2x2_p1x1",
    "wgrad_f32_n1c16o32g4_i9x10_k3x3_p1x1",
    "wgrad_f32_n1c12o8g4_i9x10_k3x3_s2x1_t1x2_p1x1",
    "wgrad_f32_n1c6o3g3_i9x10_k3x3_p1x1",
    "wgrad_f32_n1c64o64g16_i9x40_k3x3_p1x1",
    "wgrad_f32_n1c24o48g8_i9x20_k3x3_s2x2_p1x1",
    "wgrad_f32_n1c30o30g10_i5x9_k3x3_p1x1",
    "wgrad_f32_n1c48o16g4_i9x12_k3x3_p1x1",
    "wgrad_f32_n1c8o24g2_i9x12_k3x5_s1x2_p1x2",
    "wgrad_f32_n1c64o64g4_i9x10_k3x3_s2x2_p1x1",
    "wgrad_f32_n1c60o40g20_i9x30_k1x9_p0x4",
    "wgrad_f32_n1c32o32g8_i9x10_k3x3_d2x2_p2x2",
    "wgrad_f32_n1c32o32g8_i9x20_k3x3_t1x3_p1x1",
    // vectors of several pixels
    "wgrad_f32_n2c8o8g8_i20x34_k3x3_p1x1",
    "wgrad_f32_n1c1o8_i9x300_k5x5_p2x2",
    "wgrad_f32_n1c1o1_i5x1100_k3x11_p1x5",
    "wgrad_f32_n1c2o2_i7x40_k3x3_d1x2_p1x2",
    "wgrad_f32_n1c6o4g2_i5x6x7_k3x2x3_p1x0x1",
    "wgrad_f32_n1c1o1_i6x5_k3x7_p1x5",
    "wgrad_bf16_n1c3o4_i9x30_k3x3_p1x1",
    "wgrad_f64_n1c4o4g2_i9x30_k3x3_p1x1",
    // few input channels: patches, kernel row by kernel row or composed
    "wgrad_f32_n2c3o3_i9x80_k3x3_p1x1",
    "wgrad_f32_n1c7o9_i9x140_k2x7_s1x2_p1x3",
    "wgrad_f32_n1c4o20_i6x5_k3x9_p1x4",
    "wgrad_f32_n1c12o40g2_i5x70_k3x5_p1x2",
    "wgrad_bf16_n1c3o16_i9x90_k3x3_p1x1",
    "wgrad_f32_n3c1o6_i11x12_k5x5_p2x2",
    "wgrad_f32_n2c20o8_i9x10_k3x3_p1x1",
    "wgrad_f32_n2c12o12_i9x10_k3x3_p1x1",
    "wgrad_f32_n2c5o10_i9x10_k3x3_s2x1_p1x1",
    "wgrad_f32_n1c3o9_i5x6x7_k3x2x3_s1x2x1_p1x0x1",
    "wgrad_f32_n1c2o40_i9x20_k3x3_d2x3_p2x3",
    "wgrad_f32_n1c5o6_i9x20_k3x3_d1x2_p3:1x0:5",
    "wgrad_f32_n1c3o33_i9x90_k3x5",
    "wgrad_f32_n1c14o10g2_i9x10_k5x5_s2x2_p2x2",
    "wgrad_f32_n9c2o11_i2x3_k4x3_s1x2_p3x2",
    "wgrad_f16_n1c3o10_i9x10_k3x3_p1x1",
    "wgrad_f64_n2c3o7_i9x10_k3x3_s2x2_p1x1",
    "wgrad_f64_n2c2o20_i9x10_k3x3_p1x1",
    // depthwise
    "wgrad_f32_n2c40o40g40_i12x13_k3x3_p1x1",
    "wgrad_f32_n1c33o33g33_i12x13_k5x5_s2x2_p2x2",
    "wgrad_f32_n1c5o5g5_i12x70_k3x7_p1x3",
    "wgrad_f32_n1c20o40g20_i12x13_k3x3_d2x2_p2x2",
    "wgrad_f32_n1c64o64g64_i200_k4_p3:0",
    "wgrad_f32_n1c18o18g18_i5x6x7_k3x3x3_p1x1x1",
    "wgrad_f32_n1c18o18g18_i6x7_k3x3_t2x3_p1x1",
    // the same with blocks of several lines, ends of rows of any length, neighbours of a dilated kernel
    "wgrad_f32_n2c33o33g33_i7x7_k5x5_p2x2",
    "wgrad_f32_n1c80o80g80_i15x14_k7x7_s2x2_p3x3",
    "wgrad_f32_n3c20o20g20_i5x3_k3x9_p1x4",
    "wgrad_f32_n2c50o50g50_i9x8_k7x3_p3x1",  // kernel rows in groups of two and three
    "wgrad_bf16_n2c34o34g34_i4x9_k4x4_s1x2_p3x1",
    "wgrad_f32_n1c33o33g33_i2x6x150_k3x3x3_p1x1x1",
    "wgrad_f32_n1c70o70g70_i9x30_k3x3_s4x4_d2x2_p2x2",
    "wgrad_f32_n2c33o33g33_i9x40_k3x5_d2x3_p2x6",         // outputs of three phases
    "wgrad_bf16_n1c34o34g34_i9x120_k3x3_s1x4_d2x6_p1x6",  // of every other position
    "wgrad_f32_n1c20o20g20_i7x50_k2x4_s1x2_d1x4_p0x6",    // of two, whose positions are neighbours
    "wgrad_f32_n3c1024o1024g1024_i4x5_k3x3_p1x1",         // copied apart; lines of a block from several images
    "wgrad_f16_n1c2048o2048g2048_i4x70_k2x5_s2x1_p1x2",   // segments of lines
    "wgrad_f64_n1c512o512g512_i3x4x5_k2x3x3_p1x1x1_flip",
    "wgrad_f32_n1c1024o1024g1024_i9x10_k3x3_p-1x-2:1",
    "wgrad_f32_n2c1024o1024g1024_i2x2_k5x5_p4x4",
    "wgrad_f32_n1c20o20g20_i9x31_k3x3_s3x3_p1x1",
    "wgrad_f32_n2c18o18g18_i3x6x9_k2x3x4_s1x1x2_p1x1x2",
    "wgrad_f16_n1c40o40g40_i14x14_k5x5_p2x2",
    "wgrad_f64_n1c20o20g20_i9x11_k5x5_s2x2_p2x2",
    // other types
    "wgrad_f64_n1c9o12_i9x10_k3x3_p1x1",
    "wgrad_f64_n1c9o9g9_i9x10_k3x3_p1x1",
    "wgrad_f64_n1c3o2_i9x10_k3x3_s2x2_p1x1",
    "wgrad_f16_n1c20o12_i9x10_k3x3_p1x1",
    "wgrad_f16_n1c3o3g3_i9x10_k3x3_p1x1",
    "wgrad_bf16_n1c5o33_i9x10_k3x3_s2x1_t1x3_p1x1",
    "wgrad_bf16_n2c40o40g40_i9x10_k3x3_p1x1",
    "wgrad_bf16>f32_n1c20o33_i9x10_k3x3_p1x1",
    "wgrad_f16>f32_n1c8o16g8_i9x10_k3x3_p1x1",
};

void expect_exact(const std::string& text) {
  const ConvProblem p = parse_problem(text);
  CpuPlanner planner = tools::make_planner();
  const tools::Arrays a = tools::make_arrays(p, Data::small_integers);
  EXPECT_EQ(tools::run_cpu(p, a, planner, "weight_grad"), tools::run_cpu(p, a, planner, "reference")) << text;
}

TEST(WeightGrad, SmallIntegersAreExactOnEveryTarget) {
  tools::for_each_target([] {
    for (const char* text : kProblems) expect_exact(text);
  });
}

TEST(WeightGrad, MirroredKernelsAreExact) {
  for (const char* text : kProblems) expect_exact(std::string(text) + "_flip");
}

TEST(WeightGrad, WorkspaceLimitIsHonouredAndChangesNoBit) {
  for (const char* text : kProblems) {
    const ConvProblem p = parse_problem(text);
    CpuPlanner planner = tools::make_planner();
    const tools::Arrays a = tools::make_arrays(p, Data::random);
    const auto wide = tools::run_cpu(p, a, planner, "weight_grad");
    for (std::size_t limit = planner.plan({p, "weight_grad"})->workspace_bytes();; limit /= 2) {
      try {
        ASSERT_LE(planner.plan({p, "weight_grad", limit})->workspace_bytes(), limit) << text;
      } catch (const ProblemError&) {
        break;
      }
      ASSERT_EQ(tools::run_cpu(p, a, planner, "weight_grad", limit), wide) << text << " limit " << limit;
    }
  }
}

TEST(WeightGrad, ThreadsDoNotChangeBits) {
  for (const char* text : {"wgrad_f32_n3c33o40_i40x41_k3x3_p1x1", "wgrad_f32_n1c3o5_i60x61_k3x3_s2x2_p1x1",
                           "wgrad_f32_n2c48o48g48_i40x41_k3x3_p1x1", "wgrad_bf16_n1c20o20_i3000_k9_p4",
                           "wgrad_f64_n1c16o32g4_i33x40_k3x3_p1x1", "wgrad_f32_n2c24o24g8_i40x41_k5x5_p2x2",
                           "wgrad_f32_n1c2o3_i60x300_k3x5_p1x2", "wgrad_f32_n9c3o10_i33x34_k3x3_p1x1",
                           "wgrad_f32_n9c3o40_i33x34_k3x3_p1x1", "wgrad_f32_n2c1024o1024g1024_i9x10_k3x3_p1x1",
                           "wgrad_f32_n2c33o33g33_i9x40_k3x5_d2x3_p2x6"})
    tools::expect_same_bits(text, "weight_grad");
}

TEST(WeightGrad, LongSumsStayWithinTheErrorBound) {
  for (const char* text : {"wgrad_f32_n1c2o3_i300x300_k2x2", "wgrad_f32_n1c16o16g16_i120x120_k3x3_p1x1",
                           "wgrad_bf16_n1c17o4_i40x40_k3x3_p1x1", "wgrad_f16_n1c4o17_i20x20_k3x3_p1x1",
                           "wgrad_f32_n4c1o6_i200x200_k5x5_p2x2", "wgrad_f32_n4c1o40_i200x200_k3x3_p1x1"})
    tools::expect_accurate(text, "weight_grad");
}

TEST(WeightGrad, PaddingNeverMeetsInfiniteGradients) {
  CpuPlanner planner = tools::make_planner();
  for (const char* text :
       {"wgrad_f32_n1c20o20_i6x7_k3x3_p1x1", "wgrad_f32_n1c3o3g3_i6x7_k3x3_p1x1", "wgrad_f32_n1c1o1_i6x40_k3x5_p1x2",
        "wgrad_f32_n1c32o16g4_i6x7_k3x5_p1x2", "wgrad_bf16_n1c20o20g20_i6x7_k5x5_p2x2",
        "wgrad_f32_n1c1o6_i6x7_k5x5_p2x2", "wgrad_f32_n1c3o40_i6x7_k3x3_p1x1", "wgrad_bf16_n1c3o10_i6x7_k3x3_p1x1",
        "wgrad_f32_n1c1024o1024g1024_i6x7_k3x3_p1x1"}) {
    const ConvProblem p = parse_problem(text);
    tools::Arrays a = tools::make_arrays(p, Data::small_integers);
    std::fill(a.input.begin(), a.input.end(), 1);
    std::fill(a.output.begin(), a.output.end(), HUGE_VAL);
    EXPECT_EQ(tools::run_cpu(p, a, planner, "weight_grad"), tools::run_cpu(p, a, planner, "reference")) << text;
  }
}

// In patches padding is a number: what a gradient that is not finite does there must not be seen beside it.
TEST(WeightGrad, InfiniteGradientsStayInTheirSums) {
  tools::for_each_target([] {
    CpuPlanner planner = tools::make_planner();
    for (const char* text : {"wgrad_f32_n2c1o6_i6x7_k5x5_p2x2", "wgrad_f32_n2c1o40_i6x7_k3x3_p1x1",
                             "wgrad_f32_n2c3o40_i6x7_k3x3_s2x2_p1x1", "wgrad_f32_n2c20o8_i6x7_k3x3_p1x1",
                             "wgrad_f32_n1c12o12_i6x7_k3x3_p1x1", "wgrad_bf16_n2c3o10_i6x7_k3x3_p1x1",
                             "wgrad_f32_n1c10o66g2_i6x7_k3x3_p1x1", "wgrad_f64_n2c2o20_i5x6x7_k2x3x3_p1x1x1",
                             "wgrad_f32_n1c5o6_i9x20_k3x3_d1x2_p3:1x0:5"}) {
      const ConvProblem p = parse_problem(text);
      tools::Arrays a = tools::make_arrays(p, Data::small_integers);
      std::fill(a.input.begin(), a.input.end(), 2);  // 0 times infinity is no number
      a.output.front() = HUGE_VAL;
      a.output.back() = -HUGE_VAL;
      EXPECT_EQ(tools::run_cpu(p, a, planner, "weight_grad"), tools::run_cpu(p, a, planner, "reference")) << text;
    }
  });
}

// Reversed and broadcast operands, and the weight written through an in/out-swapped view.
TEST(WeightGrad, ViewsAreExact) {
  for (const char* text :
       {"wgrad_f32_n2c17o33_i9x10_k3x3_p1x1", "wgrad_f32_n2c33o33g33_i9x10_k3x3_p1x1",
        "wgrad_f16_n2c3o5_i9x10_k3x3_s2x1_p1x1", "wgrad_f64_n2c8o8g4_i9x10_k3x3_p1x1",
        "wgrad_f32_n2c3o2_i9x30_k3x3_p1x1", "wgrad_f32_n2c17o33_i3x4_k3x3_p1x1", "wgrad_f32_n2c33o17_i3x4_k3x3_p1x1",
        "wgrad_f32_n2c32o32g8_i9x10_k3x3_p1x1", "wgrad_f32_n2c3o40_i9x10_k3x3_p1x1",
        "wgrad_f32_n2c12o12_i9x10_k3x3_p1x1", "wgrad_f32_n2c20o8_i9x10_k3x3_p1x1",
        "wgrad_bf16_n2c3o10_i9x10_k3x3_s2x1_p1x1", "wgrad_f32_n2c1024o1024g1024_i9x10_k3x3_p1x1"}) {
    const ConvProblem p = parse_problem(text);
    CpuPlanner planner = tools::make_planner();
    const tools::Arrays a = tools::make_arrays(p, Data::small_integers);
    const auto run = [&](const std::string& algorithm) {
      tools::HostOperands host(p, a);
      auto& o = host.operands;
      o.input = o.input.sliced(3, p.input[2] - 1, -1, p.dtype);
      o.output = o.output.sliced(2, p.output[1] - 1, -1, p.dtype);
      o.output.stride[0] = 0;
      const std::int64_t in = p.in_channels_per_group(), out = p.out_channels_per_group();
      o.weight.in = out, o.weight.out = 1;
      o.weight.tap = {0, p.kernel[2] * in * out, in * out};
      o.weight.group = p.taps() * in * out;
      return tools::run_cpu(p, host, planner, algorithm);
    };
    EXPECT_EQ(run("weight_grad"), run("reference")) << text;
  }
}

TEST(Walk, VisitsExactlyThePixelsOfTheIndexMap) {
  for (const char* text :
       {"wgrad_f32_n1c1o1_i9_k4_s3_d2_t2_p3", "wgrad_f32_n1c1o1_i9_k5_s6_d3_t4_p5:9", "wgrad_f32_n1c1o1_i9_k5_s4_t6_p2",
        "wgrad_f32_n1c1o1_i9_k3_t5_p-1", "wgrad_f32_n1c1o1_i3_k3_p7"}) {
    const ConvProblem p = parse_problem(text);
    for (std::int64_t k = 0; k < p.kernel[2]; ++k)
      for (std::int64_t begin = 0; begin < p.output[2]; begin += 2) {
        const Range outputs{begin, std::min(p.output[2], begin + 5)};
        std::vector<std::pair<std::int64_t, std::int64_t>> expected, got;
        for (std::int64_t o = outputs.begin; o < outputs.end; ++o)
          if (const std::int64_t i = input_index(p, 2, o, k); i >= 0) expected.emplace_back(o, i);
        const auto w = cpu::weight_grad::walk(p, 2, k, outputs);
        for (std::int64_t i = 0; i < w.count; ++i) got.emplace_back(w.out + i * w.out_step, w.in + i * w.in_step);
        EXPECT_EQ(got, expected) << text << " tap " << k << " from " << begin;
      }
  }
}

TEST(WeightGrad, SaysWhyNot) {
  for (const char* text : {"fwd_f32_n1c4o4_i9_k3", "wgrad_f32_n0c4o4_i9_k3"})
    EXPECT_NE(tools::reason_of("weight_grad", text), "") << text;
}

}  // namespace
}  // namespace vkconv
