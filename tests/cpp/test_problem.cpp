#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "core/error.h"
#include "core/problem.h"

namespace vkconv {
namespace {

TEST(ProblemText, RoundTrips) {
  for (const char* text : {
           "fwd_f32_n1c64o64_i56x56_k3x3_p1x1",
           "fwd_f32_n8c3o64_i224x224_k7x7_s2x2_p3x3",
           "fwd_bf16_n1c256o256_i43x62x106_k3x3x3",
           "igrad_f16_n2c32o64g32_i9_k5_s3_p2",
           "wgrad_f64_n1c4o8_i5x6x7_k1x2x3_d1x2x2",
           "fwd_f32_n1c1o1_i5158_k4096_t1024_p4095",
           "fwd_f32_n1c2o3_i8_k3_t2_p-1_flip",
           "fwd_f32_n1c2o3_i8_k3_p3:1_bias_leaky_relu0.01",
           "fwd_f16>f32_n1c2o3_i8x8_k3x3_p1x1_add_clip-1:1.5_highest",
       })
    EXPECT_EQ(to_string(parse_problem(text)), text);
}

TEST(ProblemText, RejectsNonsense) {
  for (const char* text : {"",
                           "fwd",
                           "forward_f32_n1c1o1_i8_k3",
                           "fwd_f8_n1c1o1_i8_k3",
                           "fwd_f16>f8_n1c1o1_i8_k3",
                           "fwd_f16>f32>f32_n1c1o1_i8_k3",
                           "fwd_f32>f16_n1c1o1_i8_k3",
                           "fwd_f16>bf16_n1c1o1_i8_k3",
                           "fwd_f32_n1c1_i8_k3",
                           "fwd_f32_c1n1o1_i8_k3",
                           "fwd_f32_n1c1o1q1_i8_k3",
                           "fwd_f32_ncc1o1_i8_k3",
                           "fwd_f32_n-1c1o1_i8_k3",
                           "fwd_f32_n1c1o1g0_i8_k3",
                           "fwd_f32_n1c4o3g4_i8_k3",
                           "fwd_f32_n1c3o4g2_i8_k3",
                           "fwd_f32_n1c1o1_i8",
                           "fwd_f32_n1c1o1_i8_k9",
                           "fwd_f32_n1c1o1_i8_k3x3",
                           "fwd_f32_n1c1o1_i8x8x8x8_k3x3x3x3",
                           "fwd_f32_n1c1o1_i8_kx",
                           "fwd_f32_n1c1o1_i8_k3_",
                           "fwd_f32_n1c1o1_i8_k3_s0",
                           "fwd_f32_n1c1o1_i8_k3_d0",
                           "fwd_f32_n1c1o1_i8_k3_t0",
                           "fwd_f32_n1c1o1_i-8_k3",
                           "fwd_f32_n1c1o1_i8_k-3",
                           "fwd_f32_n1c1o1_i8_k3_p1x1",
                           "fwd_f32_n1c1o1_i8_k3_p1:2:3",
                           "fwd_f32_n1c1o1_i8_k3_p4611686018427387904:-4611686018427387904",
                           "fwd_f32_n1c1o1_i8_k3_sideways",
                           "fwd_f32_n1c1o1_i8_k3_leaky",
                           "fwd_f32_n1c1o1_i8_k3_clip1",
                           "fwd_f32_n1c1o1_i8_k3_clip1:2:3",
                           "fwd_f32_n1c1o1_i8_k3_clip1:x",
                           "fwd_f32_n99999999999999999999c1o1_i8_k3",
                           "fwd_f32_n4294967296c4294967296o1_i8_k3",
                           "fwd_f32_n1c1o1_i9223372036854775807_k3_t9"})
    EXPECT_THROW(parse_problem(text), ProblemError) << text;
}

TEST(Problem, CountsItsWork) {
  const int x = 2 * 9 * 8 * 4, w = 6 * 9 * 2, y = 2 * 7 * 6 * 6;
  for (const std::string pass : {"fwd", "igrad", "wgrad"}) {
    const ConvProblem p = parse_problem(pass + "_f16_n2c4o6g2_i9x8_k3x3");
    EXPECT_EQ(p.flops(), 2.0 * y * 9 * 2);
    EXPECT_EQ(p.bytes_moved(), 2.0 * (x + w + y));
  }
}

TEST(Problem, FieldsThatContradictEachOtherAreRefused) {
  const ConvProblem right = parse_problem("fwd_f32_n1c4o4_i9x9_k3x3");
  EXPECT_NO_THROW(validate(right));
  const auto refused = [&](auto&& change) {
    ConvProblem p = right;
    change(p);
    EXPECT_THROW(validate(p), ProblemError);
  };
  refused([](ConvProblem& p) { p.stride[1] = 0; });
  refused([](ConvProblem& p) { p.dilation[2] = 0; });
  refused([](ConvProblem& p) { p.input_dilation[2] = -1; });
  refused([](ConvProblem& p) { p.output[1] = -1; });
  refused([](ConvProblem& p) { p.kernel[0] = -1; });
  refused([](ConvProblem& p) { p.pad_lo[2] = (std::int64_t{1} << 40) + 1; });
  refused([](ConvProblem& p) { p.pad_lo[2] = -(std::int64_t{1} << 40) - 1; });
  refused([](ConvProblem& p) { p.output[2] = std::int64_t{1} << 41; });
  for (const auto step : {&ConvProblem::stride, &ConvProblem::dilation, &ConvProblem::input_dilation})
    refused([&](ConvProblem& p) { (p.*step)[2] = std::int64_t{1} << 31; });
  refused([](ConvProblem& p) { p.in_channels = -4; });
  for (const auto parameter : {&Epilogue::alpha, &Epilogue::beta})
    refused([&](ConvProblem& p) { p.epilogue.*parameter = std::numeric_limits<double>::quiet_NaN(); });
  refused([](ConvProblem& p) { p.output[2] = p.out_channels = std::int64_t{1} << 40; });
}

// A field that a comparison left out would give a problem another one's cached plan.
TEST(Problem, EveryFieldCountsInComparisons) {
  const ConvProblem p = parse_problem("fwd_f32_n2c4o6_i8x9_k3x3_p1x1");
  std::vector<ConvProblem> others(18, p);
  auto next = others.begin();
  next++->pass = Pass::input_grad;
  next++->dtype = DType::f16;
  next++->output_dtype = DType::f64;
  next++->precision = Precision::highest;
  next++->flip = true;
  for (auto field : {&ConvProblem::batch, &ConvProblem::in_channels, &ConvProblem::out_channels, &ConvProblem::groups})
    *next++.*field += 1;
  for (auto field : {&ConvProblem::input, &ConvProblem::kernel, &ConvProblem::output, &ConvProblem::stride,
                     &ConvProblem::dilation, &ConvProblem::input_dilation, &ConvProblem::pad_lo})
    (*next++.*field)[2] += 1;
  next++->epilogue.addend = true;
  next++->epilogue.beta = 1;
  ASSERT_EQ(next, others.end());
  EXPECT_EQ(p, parse_problem(to_string(p)));
  EXPECT_FALSE(p < p);
  for (std::size_t i = 0; i < others.size(); ++i) {
    EXPECT_FALSE(p == others[i]) << i;
    EXPECT_NE(p < others[i], others[i] < p) << i;
  }
}

TEST(Problem, AStepThatNothingTakesIsOfAnyLength) {
  ConvProblem p = parse_problem("fwd_f32_n1c4o4_i9x3_k3x3");
  p.stride[2] = p.dilation[0] = p.input_dilation[0] = std::int64_t{1} << 60;
  EXPECT_NO_THROW(validate(p));
}

TEST(OutputExtent, MatchesTheFormula) {
  EXPECT_EQ(output_extent(56, 3, 1, 1, 1, 1, 1), 56);
  EXPECT_EQ(output_extent(224, 7, 2, 1, 1, 3, 3), 112);
  EXPECT_EQ(output_extent(8, 3, 1, 1, 2, -1, -1), 11);  // transposed, padding 3, stride 2, kernel 3
  EXPECT_EQ(output_extent(4, 2, 1, 1, 2, -1, 0), 5);    // cropped by a negative padding
}

}  // namespace
}  // namespace vkconv
