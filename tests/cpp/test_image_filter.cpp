// image_filter against the reference.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cpu/thread_pool.h"
#include "cpu_test.h"
#include "targets.h"

namespace vkconv {
namespace {

using tools::CpuPlanner;
using tools::Data;
using tools::make_planner;

// Rows eight, four and one at a time; tiles of every width; padding, strides and dilation; several chains.
const char* const kProblems[] = {
    "fwd_f32_n1c1o1_i1_k1",
    "fwd_f32_n1c1o1_i21x130_k15x15_p7x7",
    "fwd_f32_n1c1o1_i13x33_k5x4_p2x2",
    "fwd_f32_n2c1o1_i9x17_k3x3_p1x1_bias_relu",
    "fwd_f32_n1c1o1_i30x50_k8x3_p4x1_add",
    "fwd_f32_n1c1o1_i19x20_k11x1",
    "fwd_f32_n1c1o1_i300_k128_p60",
    "fwd_f32_n1c1o1_i5000_k9_d7_p3:0",
    "fwd_f32_n1c1o1_i20x35_k5x7_p-1x-2:1",
    "fwd_f32_n1c1o1_i3x4_k9x9_p8x8",
    "fwd_f32_n1c1o1_i24x20_k5x3_s2x1_p2x1",
    "fwd_f32_n1c1o1_i24x20_k5x3_d2x3_p2x1",
    "fwd_f32_n2c1o1_i7x18x21_k3x9x5_p1x4x2_s2x1x1_d2x1x1",
    "fwd_f32_n1c1o1_i150x40_k9x5_p4x2_bias_add_clip-1:1",
    "fwd_f16_n1c1o1_i20x41_k9x9_p4x4_bias",
    "fwd_bf16_n1c1o1_i20x41_k5x5_p2x2",
    "fwd_bf16>f32_n1c1o1_i12x41_k4x5_p2x2_add",
    "fwd_f64_n1c1o1_i21x50_k9x6_p4x3",
    "fwd_f32_n1c1o1_i12x45_k3x3_s1x2_p1x1",
    "fwd_f32_n2c3o1_i19x40_k9x9_p4x4_bias",
    "fwd_f32_n1c2o2_i11x130_k3x3_p1x1",
    "fwd_f32_n2c3o3_i9x70_k3x3_p1x1_bias_add_relu",
    "fwd_f32_n1c1o4_i9x39_k4x4_s2x2_p1x1",
    "fwd_f32_n2c3o5_i9x115_k3x5_s2x3_p1x2_d1x2",
    "fwd_f32_n3c1o6_i28x28_k5x5_p2x2_bias",
    "fwd_f32_n1c4o7_i8x50_k2x3_s1x4_p0x2",
    "fwd_f32_n1c3o8_i13x90_k3x3_s2x2_p1x1_silu",
    "fwd_f32_n1c2o9_i5x6x40_k3x3x3_p1x1x1",
    "fwd_f32_n1c4o24_i6x37_k3x1_p1x0_d2x1",
    "fwd_f32_n2c3o20_i300_k31_p9:30",
    "fwd_f32_n1c2o3_i4x30_k1x1_s1x3",
    "fwd_f16_n1c3o6_i9x41_k5x5_p2x2_add",
    "fwd_bf16_n1c4o10_i7x45_k3x3_p1x1_bias",
    "fwd_bf16>f32_n1c2o3_i7x45_k3x3_s1x2_p1x1",
    "fwd_f64_n1c3o5_i9x45_k3x3_p1x1_bias",
    "fwd_f64_n1c2o8_i9x31_k3x3_s2x2_p1x1",
};

TEST(ImageFilter, EveryInstructionSetMatchesReference) {
  tools::for_each_target([] {
    for (const char* text : kProblems) tools::expect_matches(text, "image_filter");
  });
}

// Threads and limits change the rectangles that tasks compute.
TEST(ImageFilter, SameBitsForAnyThreadCountAndLimit) {
  const int before = cpu::num_threads();
  const ConvProblem p = parse_problem("fwd_f32_n1c1o1_i203x301_k11x9_p5x4");
  const auto arrays = tools::make_arrays(p, Data::random);
  CpuPlanner planner = make_planner();
  const auto first = tools::run_cpu(p, arrays, planner, "image_filter");
  for (const int threads : {1, 5}) {
    cpu::set_num_threads(threads);
    EXPECT_EQ(first, tools::run_cpu(p, arrays, planner, "image_filter")) << threads;
  }
  cpu::set_num_threads(before);
  for (const std::size_t limit : {std::size_t{200} << 10, std::size_t{60} << 10, std::size_t{24} << 10}) {
    EXPECT_LE(planner.plan({p, "image_filter", limit})->workspace_bytes(), limit);
    EXPECT_EQ(first, tools::run_cpu(p, arrays, planner, "image_filter", limit)) << limit;
  }
}

TEST(ImageFilter, LongRowsAreAccurate) { tools::expect_accurate("fwd_f32_n1c1o1_i3000_k2000", "image_filter"); }

TEST(ImageFilter, StridedViews) {
  for (const char* text : {"fwd_f32_n1c1o1_i20x40_k9x5_p4x2_bias_add", "fwd_f16_n1c1o1_i9x40_k4x5",
                           "fwd_f32_n1c3o6_i9x40_k3x3_p1x1_bias_add", "fwd_f16_n1c2o3_i9x40_k3x3_s2x2"}) {
    const ConvProblem p = parse_problem(text);
    CpuPlanner planner = make_planner();
    const auto arrays = tools::make_arrays(p, Data::small_integers);
    const auto run = [&](const std::string& algorithm) {
      tools::HostOperands host(p, arrays);
      auto& x = host.operands.input;
      x = x.sliced(2, p.input[1] - 1, -1, p.dtype).sliced(3, p.input[2] - 1, -1, p.dtype);
      auto& y = host.operands.output;
      y = y.sliced(3, p.output[2] - 1, -1, p.output_dtype);
      host.operands.weight = host.operands.weight.mirrored(p.kernel, p.dtype);
      return tools::run_cpu(p, host, planner, algorithm);
    };
    EXPECT_EQ(run("reference"), run("image_filter")) << text;
  }
}

TEST(ImageFilter, PaddingNeverMultipliesInfiniteWeights) {
  for (const char* text : {"fwd_f32_n1c1o1_i19x40_k5x5_p2x2", "fwd_f32_n1c2o11_i9x40_k5x5_s1x2_p2x2"}) {
    const ConvProblem p = parse_problem(text);
    CpuPlanner planner = make_planner();
    auto arrays = tools::make_arrays(p, Data::random);
    for (double& x : arrays.input) x = std::abs(x) + 0.5;
    arrays.weight[0] = std::numeric_limits<double>::infinity();
    const auto expected = tools::run_cpu(p, arrays, planner, "reference");
    const auto got = tools::run_cpu(p, arrays, planner, "image_filter");
    tools::expect_same_infinities(expected, got);
  }
}

// The first output of each pixel has an infinite weight, or none has.
TEST(ImageFilter, BitsOfAnOutputDoNotDependOnOthers) {
  const ConvProblem p = parse_problem("fwd_f32_n1c2o3_i9x40_k5x5_p2x2");
  CpuPlanner planner = make_planner();
  auto arrays = tools::make_arrays(p, Data::random);
  const auto finite = tools::run_cpu(p, arrays, planner, "image_filter");
  arrays.weight[0] = std::numeric_limits<double>::infinity();
  const auto got = tools::run_cpu(p, arrays, planner, "image_filter");
  for (std::size_t i = 0; i < got.size(); ++i)
    if (i % 3 != 0) {
      EXPECT_EQ(finite[i], got[i]) << i;
    }
}

TEST(ImageFilter, SaysWhyNot) {
  const auto reason = [](const char* text, std::size_t limit = kDefaultWorkspaceLimitBytes) {
    return tools::reason_of("image_filter", text, limit);
  };
  EXPECT_EQ(reason("fwd_f32_n1c1o1_i12x11_k3x3"), "");
  EXPECT_EQ(reason("fwd_f32_n1c5o1_i12x11_k3x3"), "it is for 4 input channels and 24 outputs at most");
  EXPECT_EQ(reason("fwd_f32_n1c2o2g2_i12x11_k3x3"), "there is more than one group");
  EXPECT_NE(reason("fwd_f32_n1c1o1_i12x11_k3x3", 16).find("16"), std::string::npos);
}

// One channel is also a depthwise problem; the planner knows which is faster.
TEST(ImageFilter, IsChosenForImages) {
  CpuPlanner planner = make_planner();
  for (const char* text : {"fwd_f32_n1c1o1_i2048x2048_k15x15_p7x7", "fwd_f32_n1c1o1_i1024x1024_k3x3_p1x1"})
    EXPECT_EQ(planner.plan({parse_problem(text), ""})->describe(), "image_filter") << text;
}

}  // namespace
}  // namespace vkconv
