#if VKCONV_VULKAN
#include "matrix_kernel_test.h"

namespace vkconv {
namespace {

// Long sums of direct_matrix: shared by workgroups, and in blocks.
class DirectMatrixSums : public vulkan::MatrixKernelTest {
 protected:
  DirectMatrixSums() : MatrixKernelTest("direct_matrix") {}
};

// Few tiles and long sums: workgroups share a sum.
TEST_F(DirectMatrixSums, Shared) {
  for (const char* text : {"fwd_f16_n1c80o16_i5x5_k3x3_p1x1_bias_relu", "fwd_bf16_n2c70o9_i3x4_k3x3_p1x1_add",
                           "fwd_f32_n1c100o12_i4x5_k1x1", "fwd_f16>f32_n1c36o20_i3x4x5_k3x2x3_p1x0x1",
                           "fwd_f32_n1c40o24g2_i4x4_k3x3_p1x1_bias"})
    for (const bool prepare : {false, true}) expect_exact(text, prepare);
  expect_accurate("fwd_f32_n1c200o16_i5x5_k3x3_p1x1", true, 16);
}

// Sums that leave their accumulators after blocks of runs: of stages, and of parts of one. An infinity stays one.
TEST_F(DirectMatrixSums, InBlocks) {
  for (const char* text : {"fwd_f16_n1c64o20_i5x40_k3x3_p1x1_bias_relu", "fwd_f16_n1c20o20_i150_k30_p14_add",
                           "fwd_f16>f32_n1c64o20_i5x40_k3x3_p1x1", "fwd_bf16_n1c48o9_i3x3x70_k3x3x3_p0x1x0"}) {
    expect_exact(text);
    for (const bool positive : {false, true}) expect_accurate(text, positive, 8);
    const ConvProblem p = parse_problem(text);
    if (!has_matrices(p.dtype)) continue;
    tools::Arrays arrays = tools::make_arrays(p, tools::Data::small_integers);
    for (double& w : arrays.weight) w = std::abs(w) + 1;
    for (const double value : {HUGE_VAL, -HUGE_VAL, double(NAN)}) {
      arrays.input[7] = value;
      const auto got = run(p, arrays, "direct_matrix"), exact = reference(p, arrays);
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_TRUE(std::isnan(exact[i]) ? std::isnan(got[i]) : got[i] == exact[i])
            << text << " " << value << " " << i << ": " << got[i] << ", not " << exact[i];
    }
  }
}

TEST_F(DirectMatrixSums, Accuracy) {
  for (const bool positive : {false, true}) {
    expect_accurate("fwd_f16_n1c128o16_i9x9_k3x3_p1x1_bias_gelu", positive, 8);
    expect_accurate("fwd_bf16_n1c96o16_i9x9_k3x3_p1x1_silu", positive, 8);
    expect_accurate("fwd_f16>f32_n1c160o16_i9x9_k3x3_p1x1", positive, 8);
  }
}

}  // namespace
}  // namespace vkconv
#endif
