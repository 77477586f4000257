#if VKCONV_VULKAN
#include "algorithms/weight_grad_matrix/weight_grad_matrix_tile.h"
#include "matrix_kernel_test.h"
#include "vulkan/description.h"

namespace vkconv {
namespace {

constexpr const char* kName = "weight_grad_matrix";

class WeightGradMatrix : public vulkan::MatrixKernelTest {
 protected:
  WeightGradMatrix() : MatrixKernelTest(kName) {}
};

TEST_F(WeightGradMatrix, Geometry) {
  for (const char* text : {
           "wgrad_f16_n1c16o16_i8x8_k3x3_p1x1",
           "wgrad_f16_n3c40o70_i7x7_k3x3_p1x1",   // images side by side
           "wgrad_f16_n3c17o20_i6x16_k3x3_p1x1",  // each in tiles of its own
           "wgrad_bf16_n1c16o24_i5x32_k3x3_p1x1",
           "wgrad_f16_n2c8o12_i9x31_k3x5_s2x2_p0x1",
           "wgrad_f16_n3c12o8_i32_k3_p1",
           "wgrad_f16_n2c9o5_i21x19_k3x3_p1x1",         // no octets
           "wgrad_f16_n1c21o35_i16x17_k3x2_s2x3_p1x0",  // phases of strided columns
           "wgrad_f16_n1c8o16_i18x18_k3x3_d3x2_p3x2",
           "wgrad_f16_n1c8o16_i20x18_k3x3_s2x2_d2x3_p2x3",
           "wgrad_f16_n1c16o16_i12x9_k3x3_p0:2x1:0",
           "wgrad_f16_n1c16o16_i12x9_k3x3_p-1:2x-2:0",  // cropped
           "wgrad_f16_n2c16o16_i5x4_k3x3_p6x5",         // more padding than image
           "wgrad_f16_n3c33o29_i5x7_k1x1",              // pixels become one row
           "wgrad_f16_n3c24o16_i5x14_k1x1_s1x2",        // rows become slices
           "wgrad_f16_n2c16o24_i9x20_k1x5_s2x1_p0x2",
           "wgrad_f16_n2c16o24_i9x20_k3x3_d6x6_p6x6",  // and those that are far apart
           "wgrad_f16_n1c20o16_i17x13_k3x2_s2x1_d7x2_p7:9x1",
           "wgrad_f16_n2c24o40_i33_k5_d3_p6",
           "wgrad_f16_n2c33o29_i8x16_k1x1",  // of whole pixel tiles
           "wgrad_f16_n1c8o12_i330_k11_p5",
           "wgrad_f16_n1c12o8_i301_k4_s3_p2",
           "wgrad_bf16_n1c9o16_i90_k3_p-2:3",
           "wgrad_f16_n1c16o16_i1x90_k3x3_s1x2_p1x1",
           "wgrad_f16_n1c8o12_i5x6x7_k3x2x3_s2x1x1_p1x0x1",
           "wgrad_f16_n2c16o8_i6x5x6_k3x3x3_d2x1x1_p2x1x1",
           "wgrad_f16_n1c36o12g2_i9x9_k3x3_s2x1_p1x1_flip",
           "wgrad_f16_n1c3o20_i17x19_k7x7_s2x2_p3x3",
           "wgrad_f16_n2c8o12_i9x6x7_k3x1x1_p1x0x0",
           "wgrad_f16_n1c9o16_i12x5x6_k3x1x2_s2x1x1_d2x1x1_p2x0x1_flip",
           "wgrad_f16_n1c32o32g8_i9x11_k3x3_p1x1",  // several groups fill a matrix
           "wgrad_f16_n2c24o4g4_i7x9_k3x3_s2x1",
           "wgrad_bf16_n1c12o20g4_i9x8_k2x3_d1x2_flip",
           "wgrad_f16_n2c16o32g16_i20_k3_p1",
           "wgrad_f16_n1c60o12g12_i6x5x7_k1x3x2",
       })
    expect_exact(text);
}

TEST_F(WeightGradMatrix, Types) {
  for (const char* text : {"wgrad_bf16_n1c16o24_i9x11_k3x3_p1x1", "wgrad_f16>f32_n2c20o24_i9x11_k3x3_p1x1",
                           "wgrad_bf16>f32_n1c20o9_i9x11_k3x3_s2x2_p1x1", "wgrad_f32_n2c21o35_i9x10_k3x3_s2x1_p1x1",
                           "wgrad_f32_n3c33o29_i5x7_k1x1", "wgrad_f32_n1c36o12g2_i9x9_k3x3_p1x1",
                           "wgrad_f32_n1c8o12_i5x6x7_k3x2x3_s2x1x1_p1x0x1", "wgrad_f32_n1c8o12_i300_k5_d2_p3_flip",
                           "wgrad_f32_n2c8o12_i9x6x7_k3x1x1_p1x0x0",  // depths become rows
                           "wgrad_f32_n1c9o16_i12x5x6_k3x1x2_s2x1x1_d2x1x1_p2x0x1_flip"})
    expect_exact(text);
}

TEST_F(WeightGradMatrix, Accuracy) {
  for (const bool positive : {false, true}) {
    expect_accurate("wgrad_f16_n2c16o16_i29x31_k3x3_p1x1", positive, 8);
    expect_accurate("wgrad_bf16_n2c16o16_i29x31_k3x3_p1x1", positive, 8);
    expect_accurate("wgrad_f16>f32_n2c16o16_i29x31_k3x3_p1x1", positive, 8);
    expect_accurate("wgrad_f32_n2c16o16_i29x31_k3x3_p1x1", positive, 16);
  }
}

// The chunks' sums are added in one order, however few tiles the workspace holds.
TEST_F(WeightGradMatrix, WorkspaceLimit) {
  const ConvProblem p = parse_problem("wgrad_f32_n2c40o70_i19x17_k3x3_p1x1");
  if (!has_matrices(p.dtype)) GTEST_SKIP() << "no matrices of halves";
  const tools::Arrays arrays = tools::make_arrays(p, tools::Data::random);
  Planner<vulkan::Device> planner(registry<vulkan::Device>(), traits_);
  const auto whole = run(p, arrays, kName);
  const std::size_t bytes = planner.plan({p, kName})->workspace_bytes();
  EXPECT_LE(planner.plan({p, kName, bytes / 2})->workspace_bytes(), bytes / 2);
  EXPECT_EQ(run(p, arrays, kName, bytes / 2), whole);
  EXPECT_THROW(planner.plan({p, kName, 64}), ProblemError);
}

// Infinities and NaN in either operand, beside padding and in the middle: exactly the sums they are part of.
TEST_F(WeightGradMatrix, InfinitiesStayInTheirSums) {
  for (const char* text : {"wgrad_f16_n1c9o5_i5x6_k3x3_p1x1", "wgrad_bf16_n2c16o16_i5_k3_p1",
                           "wgrad_f32_n2c9o20_i5x6_k3x3_p1x1", "wgrad_f32_n1c16o16_i7x9_k1x1"}) {
    const ConvProblem p = parse_problem(text);
    if (!has_matrices(p.dtype)) continue;
    for (const double value : {double(INFINITY), double(NAN)})
      for (const bool in_input : {false, true})
        for (const double place : {0.0, 0.45, 1.0}) {
          tools::Arrays arrays = tools::make_arrays(p, tools::Data::small_integers);
          auto& values = in_input ? arrays.input : arrays.output;
          values[static_cast<std::size_t>(place * double(values.size() - 1))] = value;
          const auto got = run(p, arrays, kName), expected = reference(p, arrays);
          for (std::size_t i = 0; i < got.size(); ++i)
            EXPECT_TRUE(got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i])))
                << text << " " << value << (in_input ? " input " : " grad ") << place << " at " << i << ": " << got[i]
                << " for " << expected[i];
        }
  }
}

// Images and channels at scales of their own: halves hold none of them unscaled.
TEST_F(WeightGradMatrix, SplitSinglePrecisionRange) {
  const ConvProblem p = parse_problem("wgrad_f32_n1c16o24_i4x40_k3x3_p1x1");
  if (!has_matrices(p.dtype)) GTEST_SKIP() << "no matrices of halves";
  for (const double scale : {1e-20, 1e20}) {
    tools::Arrays arrays = tools::make_arrays(p, tools::Data::random);
    for (double& v : arrays.input) v = float(v * scale);
    for (double& v : arrays.output) v = float(v * 1e-10);
    const auto a = tools::accuracy(p, arrays, run(p, arrays, kName), cpu_);
    EXPECT_TRUE(a.finite) << scale;
    EXPECT_LE(a.c, 16) << scale;
  }
}

vulkan::Traits h200() {
  const auto known = vulkan::descriptions();
  return vulkan::traits_from_json(std::ranges::find(known, "h200", &vulkan::Description::name)->json);
}

std::optional<vulkan::GradientGrid> grid_of(const char* text, const vulkan::Traits& traits) {
  const ConvProblem p = parse_problem(text);
  return vulkan::choose_gradient_grid(p, *vulkan::matrix_unit(traits, vulkan::matrix_operand(p.dtype)), traits);
}

TEST(WeightGradMatrixTile, GroupsOfFewHalvesFillMatrices) {
  const vulkan::Traits traits = h200();
  EXPECT_GE(grid_of("wgrad_f16_n32c128o128g32_i56x56_k3x3_p1x1", traits)->together, 4);
  EXPECT_GE(grid_of("wgrad_bf16_n32c256o32g32_i28x28_k3x3_p1x1", traits)->together, 4);
  EXPECT_EQ(grid_of("wgrad_f16_n2c1024o1024g32_i14x14_k3x3_p1x1", traits)->together, 1);
  EXPECT_EQ(grid_of("wgrad_f32_n32c128o128g32_i56x56_k3x3_p1x1", traits)->together, 1);
}

// However few workgroups would fill the device: halves are as exact as sums of 8,192 pixels.
TEST(WeightGradMatrixTile, LongSumsOfHalvesAreCut) {
  const vulkan::Traits traits = h200();
  for (const char* text : {"wgrad_f16_n8c512o512_i17x64x64_k3x3x3_p1x1x1", "wgrad_bf16_n2c320o320g320_i1x12560_k1x1"}) {
    const ConvProblem p = parse_problem(text);
    const auto unit = *vulkan::matrix_unit(traits, p.dtype);
    const auto grid = vulkan::choose_gradient_grid(p, unit, traits);
    ASSERT_TRUE(grid) << text;
    EXPECT_LE(grid->chunk_tiles * grid->tile.pixel_rows() * grid->tile.pixel_columns(unit), 8192) << text;
    EXPECT_GE(grid->chunks * grid->chunk_tiles, grid->pixel_tiles) << text;
  }
}

}  // namespace
}  // namespace vkconv
#endif
