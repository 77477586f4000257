// winograd on Vulkan: both tiles, every way of laying a problem out, and what is not finite.
#if VKCONV_VULKAN
#include "vulkan/matrix_unit.h"
#include "vulkan_kernel_test.h"

namespace vkconv {
namespace {

class VulkanWinograd : public vulkan::VulkanKernelTest {
 protected:
  std::string plan(const std::string& text, std::size_t limit = kDefaultWorkspaceLimitBytes) {
    Planner<vulkan::Device> planner(registry<vulkan::Device>(), traits_);
    return planner.plan({parse_problem(text), "winograd", limit})->describe();
  }
  // c of 16-bit points, a few units of which a result's own rounding is one, is below that of F2 with either tile.
  void expect_accurate(const std::string& text, bool positive = false) {
    const bool halves = vulkan::matrix_unit(traits_, parse_problem(text).dtype).has_value();
    const bool small_tile = plan(text).starts_with("winograd_f2");
    VulkanKernelTest::expect_accurate("winograd", text, positive,
                                      {small_tile || halves ? 16.0 : 64.0, halves ? 0.05 : 0.98});
  }
};

constexpr const char* kSmallTileProblems[] = {
    "fwd_f32_n3c37o41_i4x4_k3x3",           "fwd_f32_n1c18o10_i4x8_k3x3_bias_add",
    "fwd_f32_n2c16o8_i5x2x2_k3x3x3_p1x1x1",  // depth taps summed at the points
    "fwd_f16_n3c37o41_i4x4_k3x3",           "fwd_f16_n2c16o8_i5x6x2_k3x3x3_p1x1x1_bias_add",
};

TEST_F(VulkanWinograd, SmallTilesAreExactOnSmallIntegers) {
  for (const char* text : kSmallTileProblems) {
    EXPECT_TRUE(plan(text).starts_with("winograd_f2")) << plan(text);
    expect_exact("winograd", text);
    expect_exact("winograd", text, true);
  }
}

TEST_F(VulkanWinograd, IsAccurate) {
  for (const char* text : kSmallTileProblems) expect_accurate(text);
  for (const char* text : {
           "fwd_f32_n2c19o37_i13x9_k3x3_p1x1_bias",
           "fwd_f32_n1c33o5_i3x3_k3x3_p2x2",
           "fwd_f32_n1c64o6_i7x9_k3x3_p5x0",                // outputs that read padding only
           "fwd_f32_n2c48o40g2_i13x9_k3x3_p2:0x-1:1_relu",  // a padding that crops
           "fwd_f32_n1c30o10_i9x7x6_k3x3x3_s2x1x1_d2x1x1_p3x-1x1",
           "fwd_f32_n1c26o10_i7x8x6_k3x3x3_s1x1x2_p1x1x1_gelu",  // the axis summed at the points is W
           "fwd_f16_n2c33o40_i13x9_k3x3_p1x1_bias",
           "fwd_bf16_n1c20o36_i4x13x9_k2x3x3_p1x1x1_add_relu",
           "fwd_bf16>f32_n1c20o37_i13x9_k3x3_p1x1_add",
       })
    expect_accurate(text);
  for (const char* text : {
           "fwd_f16_n2c48o40g2_i13x9_k3x3_p2:0x-1:1_relu_fast",
           "fwd_f16_n1c30o10_i9x7x6_k3x3x3_s2x1x1_d2x1x1_p3x-1x1",
           "fwd_bf16_n1c26o11_i7x8x6_k3x3x3_s1x1x2_p1x1x1_gelu_fast",
       }) {
    EXPECT_EQ(plan(text).starts_with("winograd_f4"), std::string(text).ends_with("fast")) << plan(text);
    expect_accurate(text);
  }
  for (const char* text : {"fwd_f32_n1c300o12_i9x9_k3x3_p1x1", "fwd_f32_n1c60o12_i6x9x9_k5x3x3_p1x1x1",
                           "fwd_f16_n1c300o12_i9x9_k3x3_p1x1", "fwd_bf16_n1c60o12_i6x9x9_k5x3x3_p1x1x1_fast"})
    expect_accurate(text, true);
}

TEST_F(VulkanWinograd, PreparedWeightsGiveTheSameBits) {
  for (const char* text : {"fwd_f32_n2c20o24_i5x9x11_k3x3x3_p1x1x1_flip", "fwd_f16_n2c20o24_i5x9x11_k3x3x3_p1x1x1"}) {
    const ConvProblem p = parse_problem(text);
    const tools::Arrays arrays = tools::make_arrays(p, tools::Data::random);
    EXPECT_EQ(run(p, arrays, "winograd", kDefaultWorkspaceLimitBytes, true), run(p, arrays, "winograd")) << text;
  }
}

// More rows of tiles than a call takes, and a last call with fewer.
TEST_F(VulkanWinograd, RowsOfTilesInSeveralCalls) {
  const ConvProblem p = parse_problem("fwd_f32_n3c48o64_i75x130_k3x3_p1x1");
  const tools::Arrays arrays = tools::make_arrays(p, tools::Data::small_integers);
  const auto got = run(p, arrays, "winograd"), want = reference(p, arrays);
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 0.02) << i;
  EXPECT_EQ(run(p, arrays, "winograd", kDefaultWorkspaceLimitBytes, true), got);
}

// The transforms of GPUs, which take one channel at a time.
TEST_F(VulkanWinograd, OnGpus) {
  traits_.type = vulkan::DeviceType::discrete;
  expect_exact("winograd", "fwd_f32_n3c37o41_i4x4_k3x3_bias_add");
  expect_accurate("fwd_f32_n2c19o37_i13x9_k3x3_p1x1_bias");
  expect_accurate("fwd_f16_n1c24o32_i5x13x9_k3x3x3_p1x1x1_relu");
}

TEST_F(VulkanWinograd, SaysWhatItCannotDo) {
  for (const char* text :
       {"fwd_f32_n1c16o16_i9x9_k3x3_p1x1_highest", "fwd_f64_n1c16o16_i9x9_k3x3_p1x1",
        "fwd_f32_n1c16o16_i9x9_k3x3_s2x2_p1x1", "fwd_f32_n1c16o16_i9x9_k5x5_p2x2", "fwd_f32_n1c2o16_i9x9_k3x3_p1x1"})
    EXPECT_THROW(plan(text), ProblemError) << text;
  EXPECT_THROW(plan("fwd_f32_n1c64o64_i56x56_k3x3_p1x1", 1 << 16), ProblemError);
}

// fp16 inputs as large as they can be: points overflow, outputs that fit do not.
TEST_F(VulkanWinograd, PointsThatOverflowAreNotSeen) {
  for (const char* text : {"fwd_f16_n1c19o37_i13x9_k3x3_p1x1", "fwd_f16_n1c20o8_i5x9x8_k2x3x3_p1x1x1_fast"}) {
    const ConvProblem p = parse_problem(text);
    tools::Arrays arrays = tools::make_arrays(p, tools::Data::random);
    for (double& x : arrays.input) x = std::copysign(65504.0, x);
    for (double& w : arrays.weight) w = std::copysign(0x1p-10, w);
    const auto got = run(p, arrays, "winograd"), want = reference(p, arrays);
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 16) << text << " " << i;
  }
}

// Infinities and NaN reach the outputs that read them and no others, and large sums that fit do not overflow.
TEST_F(VulkanWinograd, SpecialValuesStayWithTheOutputsThatReadThem) {
  const auto expect_same = [&](const ConvProblem& p, const tools::Arrays& arrays, double tolerance = 1e-2) {
    const auto got = run(p, arrays, "winograd"), want = reference(p, arrays);
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(std::isnan(got[i]), std::isnan(want[i])) << to_string(p) << " " << i;
      if (std::isfinite(want[i])) {
        ASSERT_NEAR(got[i], want[i], tolerance) << to_string(p) << " " << i;
      } else if (!std::isnan(want[i])) {
        ASSERT_EQ(got[i], want[i]) << to_string(p) << " " << i;
      }
    }
  };
  for (const char* text : {"fwd_f32_n1c19o37_i13x9_k3x3_p1x1_bias", "fwd_f32_n1c20o8_i5x9x8_k2x3x3_p1x1x1_relu6",
                           "fwd_f32_n3c37o41_i4x4_k3x3_p1x1"}) {
    const ConvProblem p = parse_problem(text);
    tools::Arrays arrays = tools::make_arrays(p, tools::Data::small_integers);
    for (const vulkan::DeviceType type : {traits_.type, vulkan::DeviceType::discrete})
      for (const double value : {double(NAN), double(INFINITY), -double(INFINITY)}) {
        traits_.type = type;  // which decides where outputs are computed again
        tools::Arrays special = arrays;
        special.input[special.input.size() / 2] = value;
        expect_same(p, special);
        special = arrays;
        special.weight[special.weight.size() / 2] = value;
        expect_same(p, special);
      }
    for (double& x : arrays.input) x = static_cast<float>(x * 1e38);
    for (double& w : arrays.weight) w = static_cast<float>(w * 1e-35);  // no part of them is subnormal
    expect_same(p, arrays, 10);
  }
}

}  // namespace
}  // namespace vkconv
#endif
