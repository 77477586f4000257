// implicit_gemm_parts against the reference: fp32 and fp16 as parts in bf16.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "cpu_test.h"

namespace vkconv {
namespace {

using tools::Arrays;
using tools::CpuPlanner;
using tools::Data;

constexpr const char* kParts = "implicit_gemm_parts";

class DenseParts : public testing::Test {
 protected:
  void SetUp() override {
    if (!tools::tiles_can_run()) GTEST_SKIP() << "this CPU has no vdpbf16ps";
  }
  std::vector<double> run(const ConvProblem& p, const Arrays& a, const char* algorithm = kParts,
                          bool prepared = false) {
    return tools::run_cpu(p, a, planner, algorithm, kDefaultWorkspaceLimitBytes, prepared);
  }
  // Within the bound of direct sums.
  void expect_close(const ConvProblem& p, const Arrays& a) {
    const auto got = run(p, a);
    tools::expect_within_bound(p, a, got, planner);
    EXPECT_EQ(got, run(p, a, kParts, true)) << "prepared";
  }

  CpuPlanner planner = tools::make_tile_planner();
};

// Both sides of the tiles' rows, panels and terms; rows of taps as channels; padding, strides, dilation; one row of all
// pixels; rank 3 and 1.
const char* const kProblems[] = {
    "fwd_f32_n1c64o64_i2x30_k1x1",
    "fwd_f32_n2c32o100_i5x47_k3x3_p1x1_bias_relu",
    "fwd_f32_n1c3o40_i9x31_k5x5_p2x2_s2x2",
    "fwd_f32_n1c24o70_i6x9_k3x3_p1x1_add",
    "fwd_f32_n1c5o33_i4x4x9_k2x3x3_p1x1x1_bias_add_gelu",
    "fwd_f32_n1c700o40_i3x40_k3x3_d2x2_p2x2",
    "fwd_f32_n2c3o33_i20x9_k4x7_p3x3_d1x2_relu",
    "fwd_f32_n1c1o16_i300_k90_p45_s4",
    "fwd_f32_n1c1200o20_i2x9_k3x3_p1x1_bias",
    "fwd_f16_n1c64o64_i2x30_k1x1",
    "fwd_f16_n2c32o100_i5x47_k3x3_p1x1_bias_relu",
    "fwd_f16_n1c3o40_i9x31_k5x5_p2x2_s2x2",
    "fwd_f16>f32_n1c24o70_i6x9_k3x3_p1x1_add",
    "fwd_f16_n1c1300o17_i40_k1",
};

TEST_F(DenseParts, MatchReference) {
  for (const char* text : kProblems) {
    SCOPED_TRACE(text);
    const ConvProblem p = parse_problem(text);
    if (p.epilogue.activation != Activation::gelu) {
      const Arrays integers = tools::make_arrays(p, Data::small_integers);
      EXPECT_EQ(run(p, integers), run(p, integers, "reference"));
    }
    const Arrays random = tools::make_arrays(p, Data::random);
    expect_close(p, random);
    if (p.epilogue.activation != Activation::gelu) expect_close(p, tools::magnitudes(random));
  }
}

// All 24 bits of a float count, and all 11 of a half.
TEST_F(DenseParts, IntegersOfAllBits) {
  for (const auto& [text, most] : {std::pair("fwd_f32_n1c40o33_i3x9_k1x1", (1 << 24) - 1),
                                   std::pair("fwd_f16>f32_n1c40o33_i3x9_k1x1", (1 << 11) - 1)}) {
    const ConvProblem p = parse_problem(text);
    Arrays a = tools::make_arrays(p, Data::small_integers);
    for (std::size_t i = 0; i < a.input.size(); ++i) a.input[i] = i % 2 ? most : -most + static_cast<int>(i % 5);
    for (double& w : a.weight) w = 0;
    for (std::size_t o = 0; o < 33; ++o) a.weight[o * 40 + o] = o % 2 ? 1 : -0.5;  // picks channel o
    EXPECT_EQ(run(p, a), run(p, a, "reference")) << text;
  }
}

// Values without parts, among others that have them: their sums are those of implicit_gemm.
TEST_F(DenseParts, ValuesWithoutParts) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const char* text : {"fwd_f32_n2c40o70_i6x47_k3x3_p1x1_bias", "fwd_f32_n1c3o40_i9x31_k5x5_p2x2_s2x2",
                           "fwd_f16_n2c40o70_i6x47_k3x3_p1x1_bias"}) {
    const bool half = parse_problem(text).dtype == DType::f16;
    tools::expect_special_values_in_their_sums(
        text, kParts, planner, {kInfinity, -kInfinity, std::nan(""), half ? 65504.0 : 3.4e38, half ? -65504.0 : 1e-40});
  }
}

// Numbers whose parts, or products of parts, a matrix register takes for zero.
TEST_F(DenseParts, SmallNumbers) {
  const ConvProblem p = parse_problem("fwd_f32_n1c64o64_i4x30_k3x3_p1x1");
  for (const auto& [x, w] : {std::pair(1e-30, 1.0), {1.0, 1e-30}, {1e-15, 1e-15}, {1e-14, 1e-14}, {1e-18, 1e-18}}) {
    Arrays a = tools::make_arrays(p, Data::random);
    for (double& v : a.input) v *= x;
    for (double& v : a.weight) v *= w;
    SCOPED_TRACE(std::to_string(std::log10(x)) + " " + std::to_string(std::log10(w)));
    expect_close(p, a);
  }
}

TEST_F(DenseParts, LongReductions) {
  for (const char* text : {"fwd_f32_n1c1024o40_i5x5_k3x3_p1x1", "fwd_f32_n1c5000o9_i9_k1", "fwd_f32_n1c100000o9_i9_k1",
                           "fwd_f32_n1c250o40_i40_k1"}) {
    SCOPED_TRACE(text);
    const ConvProblem p = parse_problem(text);
    expect_close(p, tools::magnitudes(tools::make_arrays(p, Data::random)));
  }
}

// Where the product of the numbers is finite, though that of their first parts is not.
TEST_F(DenseParts, ProductsNearTheLargest) {
  const ConvProblem p = parse_problem("fwd_f32_n1c2o1_i1_k1");
  const double root = std::ldexp(1 - std::ldexp(1, -24), 64);
  EXPECT_EQ(run(p, {{root, 0}, {root, 0}, {}, {}, {}}), run(p, {{root, 0}, {root, 0}, {}, {}, {}}, "reference"));
  EXPECT_TRUE(std::isfinite(run(p, {{root, root}, {root, -root}, {}, {}, {}}).front()));
}

// Data some of whose values have no parts.
Arrays with_some_apart(const ConvProblem& p) {
  Arrays a = tools::make_arrays(p, Data::random);
  for (std::size_t i = 5; i < a.input.size(); i += 1777) a.input[i] = 1e-20;
  a.input[a.input.size() / 2] = std::numeric_limits<double>::infinity();
  a.weight[a.weight.size() / 2] = 1e-20;
  return a;
}

// With a number in place of every NaN, so that equal results are.
std::vector<double> comparable(std::vector<double> values) {
  for (double& v : values)
    if (std::isnan(v)) v = 12345;
  return values;
}

TEST_F(DenseParts, ThreadsTilesAndLimitsDoNotChangeBits) {
  for (const char* text : {"fwd_f32_n2c64o64_i31x30_k3x3_p1x1_bias_relu", "fwd_f32_n3c40o37_i5x47_k1x1",
                           "fwd_f32_n1c3o40_i19x61_k5x5_p2x2_s2x2", "fwd_f16_n2c40o70_i9x30_k3x3_p1x1"}) {
    const ConvProblem p = parse_problem(text);
    const Arrays a = with_some_apart(p);
    const auto expected = comparable(run(p, a));
    for (const auto& [threads, caches] : {std::pair(1, 1.0), {2, 1.0 / 64}, {3, 64.0}, {16, 0.125}}) {
      CpuPlanner other = tools::make_tile_planner(caches, threads);
      for (const std::size_t limit : {kDefaultWorkspaceLimitBytes, std::size_t{400000}})
        for (const bool prepared : {false, true})
          EXPECT_EQ(comparable(tools::run_cpu(p, a, other, kParts, limit, prepared)), expected)
              << text << ", " << threads << " threads, caches x " << caches << ", limit " << limit;
    }
  }
}

TEST_F(DenseParts, ImagesOfABatchDoNotChangeEachOther) {
  ConvProblem p = parse_problem("fwd_f32_n3c40o37_i9x30_k3x3_p1x1");
  Arrays a = with_some_apart(p);
  const auto together = run(p, a);
  const auto image = static_cast<std::ptrdiff_t>(a.input.size() / 3);
  a.input = {a.input.begin() + 2 * image, a.input.end()};
  p.batch = 1;
  const auto alone = run(p, a);
  EXPECT_EQ(comparable({together.end() - static_cast<std::ptrdiff_t>(alone.size()), together.end()}),
            comparable(alone));
}

TEST_F(DenseParts, ViewsDoNotChangeBits) {
  const ConvProblem p = parse_problem("fwd_f32_n2c40o37_i3x5x7_k1x1x1_bias_add_relu");
  const Arrays a = with_some_apart(p);
  const auto whole = comparable(run(p, a));
  tools::HostOperands host(p, a);
  host.operands.input = host.operands.input.sliced(2, p.input[1] - 1, -1, p.dtype);  // rows bottom up, in and out
  host.operands.output = host.operands.output.sliced(2, p.output[1] - 1, -1, p.output_dtype);
  host.operands.addend = host.operands.addend.sliced(2, p.output[1] - 1, -1, DType::f32);
  EXPECT_EQ(comparable(tools::run_cpu(p, host, planner, kParts)), whole);
}

TEST_F(DenseParts, SayWhyNot) {
  const auto reason = [&](const char* text) {
    for (const Candidate& c : planner.explain(parse_problem(text), kDefaultWorkspaceLimitBytes))
      if (c.name == kParts) return c.reason;
    return std::string("missing");
  };
  EXPECT_EQ(reason("fwd_f32_n1c4o5_i12x11_k3x3"), "");
  EXPECT_NE(reason("fwd_f32_n1c4o5_i12x11_k3x3_highest"), "");
  EXPECT_NE(reason("fwd_bf16_n1c4o5_i12x11_k3x3"), "");
  EXPECT_NE(reason("fwd_f64_n1c4o5_i12x11_k3x3"), "");
  EXPECT_NE(reason("fwd_f32_n1c4o6g2_i12x11_k3x3"), "");
  EXPECT_NE(reason("wgrad_f32_n1c4o5_i12x11_k3x3"), "");
  EXPECT_NE(tools::reason_of(kParts, "fwd_f64_n1c4o5_i12x11_k3x3"), "");
}

}  // namespace
}  // namespace vkconv
