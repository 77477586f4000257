#include <gtest/gtest.h>

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
  for (const char* text :
       {"", "fwd", "fwd_f32_n1c1o1_i8", "fwd_f32_n1c1o1_i8_k9", "fwd_f32_n1c1o1_i8_k3x3", "fwd_f8_n1c1o1_i8_k3",
        "fwd_f32_n1c3o4g2_i8_k3", "fwd_f32_n1c1o1_i8_k3_s0", "fwd_f32_n1c1o1_i8_k3_sideways",
        "fwd_f32_n99999999999999999999c1o1_i8_k3", "fwd_f32_n4294967296c4294967296o1_i8_k3"})
    EXPECT_THROW(parse_problem(text), ProblemError) << text;
}

TEST(OutputExtent, MatchesTheFormula) {
  EXPECT_EQ(output_extent(56, 3, 1, 1, 1, 1, 1), 56);
  EXPECT_EQ(output_extent(224, 7, 2, 1, 1, 3, 3), 112);
  EXPECT_EQ(output_extent(8, 3, 1, 1, 2, -1, -1), 11);  // transposed, padding 3, stride 2, kernel 3
  EXPECT_EQ(output_extent(4, 2, 1, 1, 2, -1, 0), 5);    // cropped by a negative padding
}

}  // namespace
}  // namespace vkconv
