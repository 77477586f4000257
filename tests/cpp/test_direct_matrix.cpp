#if VKCONV_VULKAN
#include "algorithms/direct_matrix/direct_matrix_tile.h"
#include "matrix_kernel_test.h"
#include "vulkan/divisor.h"

namespace vkconv {
namespace {

class DirectMatrix : public vulkan::MatrixKernelTest {
 protected:
  DirectMatrix() : MatrixKernelTest("direct_matrix") {}
};

TEST_F(DirectMatrix, Geometry) {
  for (const char* text : {
           "fwd_f16_n1c16o16_i8x8_k3x3_p1x1",
           "fwd_f16_n3c40o70_i7x7_k3x3_p1x1",   // images side by side
           "fwd_f16_n3c17o20_i6x16_k3x3_p1x1",  // each in tiles of its own
           "fwd_bf16_n1c16o60_i5x32_k3x3_p1x1",
           "fwd_f16_n2c8o12_i9x31_k3x5_s2x2_p0x1",
           "fwd_f16_n3c12o8_i64_k3_p1",
           "fwd_f16_n2c9o5_i21x19_k3x3_p1x1",         // no octets
           "fwd_f16_n1c21o35_i16x17_k3x2_s2x3_p1x0",  // phases of strided columns
           "fwd_f16_n1c8o16_i18x18_k3x3_d3x2_p3x2",
           "fwd_f16_n1c8o16_i20x18_k3x3_s2x2_d2x3_p2x3",
           "fwd_f16_n1c16o16_i12x9_k3x3_p0:2x1:0",
           "fwd_f16_n1c16o16_i12x9_k3x3_p-1:2x-2:0",  // cropped
           "fwd_f16_n2c16o16_i5x4_k3x3_p6x5",         // more padding than image
           "fwd_f16_n3c33o29_i5x7_k1x1",              // pixels become a row
           "fwd_bf16_n2c16o24_i5x7_k1x1_add",
           "fwd_f16_n2c24o5_i3x5x9_k1x1x1_bias_add",
           "fwd_f32_n1c70o16_i2x3x4_k1x1x1",   // and their sums are shared
           "fwd_f16_n3c16o20_i5x9_k1x1_s1x2",  // rows become slices
           "fwd_f16_n2c16o24_i9x20_k1x5_s2x1_p0x2",
           "fwd_f16_n2c16o24_i9x20_k3x3_d6x6_p6x6",  // and those that are far apart
           "fwd_bf16_n1c20o16_i17x13_k3x2_s2x1_d7x2_p7:9x1_bias",
           "fwd_f32_n1c24o9_i15x40_k2x3_d14x6_p-1:8x6_add",
           "fwd_f16_n2c24o40_i33_k5_d3_p6",
           "fwd_f16_n1c8o12_i130_k11_p5",
           "fwd_f16_n1c8o12_i5x6x7_k3x2x3_s2x1x1_p1x0x1",
           "fwd_f16_n2c16o8_i6x5x6_k3x3x3_d2x1x1_p2x1x1",
           "fwd_f16_n2c24o16_i9x6x7_k3x1x1_p1x0x0_bias",  // depths become rows
           "fwd_bf16_n1c18o9_i12x5x6_k3x1x2_s2x1x1_d2x1x1_p2x0x1_add",
           "fwd_f32_n1c16o12_i7x5x20_k2x1x3_p1:0x0x1_relu",
           "fwd_f16_n1c36o12g2_i9x9_k3x3_s2x1_p1x1",
           "fwd_f16_n1c32o48g2_i9x9_k3x3_p1x1_bias_relu",
           "fwd_f16_n2c24o24g6_i9x7_k3x3_p1x1_bias",  // groups of four together
           "fwd_bf16_n1c18o36g9_i8x8_k3x2_s2x1",
           "fwd_f16_n1c3o20_i17x19_k7x7_s2x2_p3x3",
       })
    expect_exact(text);
}

// Pixels that are not evenly apart stay in their rows.
TEST_F(DirectMatrix, PixelsApart) {
  const ConvProblem p = parse_problem("fwd_f16_n2c16o20_i3x4x9_k1x1x1");
  ConvProblem whole = p;  // arrays twice as tall as the views
  whole.input[1] = whole.output[1] = 2 * p.input[1];
  tools::HostOperands host(whole, tools::make_arrays(whole, tools::Data::small_integers));
  host.operands.input = host.operands.input.sliced(2, 1, 2, p.dtype);
  host.operands.output = host.operands.output.sliced(2, 0, 2, p.dtype);
  expect_exact_views(p, host);
}

// The taps of a row of few channels are channels of the matrices.
TEST_F(DirectMatrix, FewChannels) {
  for (const char* text : {
           "fwd_f16_n3c3o20_i13x11_k7x7_s2x2_p3x3_bias", "fwd_bf16_n2c3o9_i28x29_k14x14_s14x14",
           "fwd_f32_n2c4o18_i9x12_k5x4_s1x3_p2x1:4_add", "fwd_f16_n2c1o5_i30_k17_d2_p20:9_flip",
           "fwd_f32_n1c2o16_i90_k40_s7_p-3:11", "fwd_f16_n1c5o7_i4x6x9_k3x2x3_s2x1x1_d1x2x2_p1x1x2",
           "fwd_f16_n1c1o1_i19x40_k15x15",
           "fwd_f16_n1c2o8_i5x6_k3x3_p4x9",  // windows outside the image
       })
    for (const bool prepare : {false, true}) expect_exact(text, prepare);
}

TEST_F(DirectMatrix, Epilogues) {
  for (const char* text :
       {"fwd_bf16_n1c16o24_i9x11_k3x3_p1x1_add_relu6", "fwd_f16>f32_n1c16o24_i9x11_k3x3_p1x1_bias_add",
        "fwd_bf16>f32_n1c20o9_i9x11_k3x3_p1x1", "fwd_f16_n1c16o24_i9x11_k3x3_p1x1_flip_leaky_relu0.5",
        // In registers: as many matrices as rows have, groups, and channels that end in the middle of a matrix.
        "fwd_f16_n2c16o80_i9x11_k3x3_p1x1_bias_relu", "fwd_bf16_n1c32o48g2_i9x11_k3x3_s2x2_p1x1_bias_clip-5:20",
        "fwd_f16_n3c40o8_i33_k1_bias_relu6", "fwd_bf16_n1c16o24_i5x6x7_k3x3x3_p1x1x1_bias_leaky_relu0.5"})
    expect_exact(text);
}

TEST_F(DirectMatrix, SplitSinglePrecision) {
  for (const char* text : {"fwd_f32_n1c16o16_i8x8_k3x3_p1x1", "fwd_f32_n2c21o35_i9x10_k3x3_s2x1_p1x1_bias_relu",
                           "fwd_f32_n3c33o29_i5x7_k1x1", "fwd_f32_n1c36o12g2_i9x9_k3x3_p1x1_add",
                           "fwd_f32_n1c8o12_i5x6x7_k3x2x3_s2x1x1_p1x0x1", "fwd_f32_n1c8o12_i70_k5_d2_p3",
                           "fwd_f32_n1c12o24g4_i9x10_k3x3_p1x1"})
    expect_exact(text);
  for (const bool positive : {false, true}) {
    expect_accurate("fwd_f32_n1c96o16_i9x9_k3x3_p1x1", positive, 16);
    expect_accurate("fwd_f32_n1c200o20_i50_k3_p1_bias_tanh", positive, 16);
  }
}

// Each region and each channel at its own scale, and numbers that no sum may hold.
TEST_F(DirectMatrix, SplitSinglePrecisionRange) {
  const ConvProblem p = parse_problem("fwd_f32_n1c16o24_i4x200_k3x3_p1x1");
  if (!has_matrices(p.dtype)) GTEST_SKIP() << "no matrices of halves";
  tools::Arrays arrays = tools::make_arrays(p, tools::Data::random);
  const std::size_t row = 200 * 16, channel = 9 * 16;
  for (std::size_t i = 0; i < arrays.input.size(); ++i)
    arrays.input[i] = float(arrays.input[i] * (i % row < row / 2 ? 1e28 : 1e-30));
  for (std::size_t i = 0; i < arrays.weight.size(); ++i)
    arrays.weight[i] = float(arrays.weight[i] * std::pow(10.0, double(i / channel) / 3));
  for (const auto value : {0.0, double(INFINITY), double(NAN)}) {
    arrays.input[row + 16 * 20] = value;  // reaches columns 19 to 21
    const auto got = run(p, arrays, "direct_matrix");
    const auto exact = tools::run_exact(p, arrays, cpu_), magnitude = tools::run_magnitudes(p, arrays, cpu_);
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const std::size_t column = i % (200 * 24) / 24;
      if (column >= 95 && column < 116) continue;  // tiles that hold both scales
      if (std::isfinite(exact[i]) && std::abs(exact[i]) < 3e38)
        worst = std::max(worst, std::abs(got[i] - exact[i]) / (magnitude[i] * 0x1p-24));
      else
        EXPECT_TRUE(std::isnan(exact[i]) ? std::isnan(got[i]) : got[i] == float(exact[i])) << value << " at " << i;
    }
    EXPECT_LE(worst, 16) << value;
  }
}

TEST_F(DirectMatrix, PreparedWeights) {
  for (const char* text : {"fwd_f32_n1c40o24_i9x11_k3x3_p1x1_flip", "fwd_f16_n1c40o24_i9x11_k3x3_p1x1_flip",
                           "fwd_bf16_n2c24o40_i33x5_k3x1_p1x0"})
    expect_exact(text, true);
}

// Infinite weights under padding: the taps that read padding do not count. Nor do the zeros beside the last channel.
TEST_F(DirectMatrix, PaddingTimesInfinityIsNothing) {
  for (const char* text : {"fwd_f16_n1c4o4_i5x6_k3x3_p1x1", "fwd_bf16_n2c5o5_i5_k3_p1",
                           "fwd_f16_n1c40o4_i5x6_k3x3_p1x1", "fwd_f16_n1c4o24_i5x6_k3x3_p1x1_bias_relu",
                           "fwd_bf16_n1c4o40_i5x6_k3x3_p1x1", "fwd_f16_n1c4o27_i5x6_k3x3_p1x1"}) {
    const ConvProblem p = parse_problem(text);
    if (!has_matrices(p.dtype)) continue;
    tools::Arrays arrays = tools::make_arrays(p, tools::Data::small_integers);
    for (double& x : arrays.input) x = std::abs(x) + 1;
    arrays.weight[0] = HUGE_VAL;
    EXPECT_EQ(run(p, arrays, "direct_matrix"), reference(p, arrays)) << text;
  }
}

// Decompositions add to what the output holds: an addend that lies there, also of sums that are repaired.
TEST_F(DirectMatrix, AddsToItsOutput) {
  for (const char* text : {"fwd_f16>f32_n1c4o24_i5x6_k3x3_p1x1_add", "fwd_bf16>f32_n1c4o27_i9x20_k3x3_p1x1_add",
                           "fwd_f32_n1c8o80_i5x6_k3x3_p1x1_add"}) {
    const ConvProblem p = parse_problem(text);
    if (!has_matrices(p.dtype)) continue;
    tools::Arrays arrays = tools::make_arrays(p, tools::Data::small_integers);
    for (double& x : arrays.input) x = std::abs(x) + 1;
    for (const double weight : {1.0, HUGE_VAL}) {
      arrays.weight[0] = weight;
      tools::HostOperands host(p, arrays);
      host.output = host.addend;
      host.operands.output.data = host.written = host.output.data();
      vulkan::Stream stream(device_);
      tools::DeviceOperands device(host, stream);
      device.operands.addend = device.operands.output;
      Planner<vulkan::Device> planner(registry<vulkan::Device>(), traits_);
      tools::execute(*planner.plan({p, "direct_matrix"}), stream, device.operands, false);
      device.download(host, stream);
      EXPECT_EQ(host.result(p), reference(p, arrays)) << text << " " << weight;
    }
  }
}

vulkan::Traits described_gpu(vulkan::CooperativeMatrix shape) {
  vulkan::Traits t;
  t.features.float16 = t.features.memory_model = true;
  t.type = vulkan::DeviceType::discrete;
  t.limits.shared_memory_bytes = 48 << 10;
  t.limits.workgroup_invocations = 1024;
  t.limits.subgroup_size = t.limits.min_subgroup_size = t.limits.max_subgroup_size = 32;
  t.rates = vulkan::estimated_rates(t.type);
  t.cooperative_matrices = {shape};
  return t;
}

TEST(DirectMatrixTile, UsesTheShapesADeviceHas) {
  using vulkan::CooperativeMatrix;
  vulkan::Traits t = described_gpu({16, 16, 16, DType::f16, DType::f32});
  t.cooperative_matrices.push_back({16, 8, 16, DType::f16, DType::f32});
  t.cooperative_matrices.push_back({16, 16, 16, DType::f16, DType::f16});  // halves as sums
  ASSERT_TRUE(vulkan::matrix_unit(t, DType::f16));
  EXPECT_EQ(vulkan::matrix_unit(t, DType::f16)->shape, (CooperativeMatrix{16, 16, 16, DType::f16, DType::f32}));
  EXPECT_FALSE(vulkan::matrix_unit(t, DType::bf16));
  t.type = vulkan::DeviceType::software;
  EXPECT_TRUE(vulkan::matrix_unit(t, DType::bf16)->emulated);
}

TEST(DirectMatrixTile, FewTilesShareTheirSums) {
  const vulkan::Traits traits = described_gpu({16, 16, 16, DType::f16, DType::f32});
  const auto unit = *vulkan::matrix_unit(traits, DType::f16);
  const auto few = vulkan::choose_matrix_grid({parse_problem("fwd_f16_n1c512o512_i7x7_k3x3_p1x1")}, unit, traits);
  EXPECT_GT(few->shares, 1);
  EXPECT_GE(few->shares * few->share_stages, few->stages);
  EXPECT_LT((few->shares - 1) * few->share_stages, few->stages);
  const auto many = vulkan::choose_matrix_grid({parse_problem("fwd_f16_n1c128o128_i512x512_k3x3_p1x1")}, unit, traits);
  EXPECT_EQ(many->shares, 1);
}

// Small tiles of halves are computed by twice the subgroups, each with its part of the channels. The packed weights are
// the same, but for what is read past their end.
TEST(DirectMatrixTile, SmallTilesAreSharedAlongTheSum) {
  const vulkan::Traits traits = described_gpu({16, 16, 16, DType::f16, DType::f32});
  const auto unit = *vulkan::matrix_unit(traits, DType::f16);
  const vulkan::MatrixProblem problem{parse_problem("fwd_f16_n8c256o256_i14x14_k3x3_p1x1")};
  const auto grid = vulkan::choose_matrix_grid(problem, unit, traits);
  EXPECT_EQ(grid->tile.subgroups_k, 2u);
  EXPECT_EQ(grid->body_steps, grid->stage_steps);
  vulkan::MatrixTile alone = grid->tile;
  alone.subgroups_k = 1;
  const auto other = vulkan::matrix_grid(problem, unit, alone, grid->shares, traits);
  EXPECT_EQ(other.tile.subgroups() * 2, grid->tile.subgroups());
  EXPECT_EQ(other.stage_steps, 2 * grid->stage_steps);
  EXPECT_EQ(other.packed_bytes, grid->packed_bytes);
  for (const char* text : {"fwd_f16_n32c256o256_i14x14_k3x3_p1x1", "fwd_f32_n8c256o256_i14x14_k3x3_p1x1"})
    EXPECT_EQ(vulkan::choose_matrix_grid({parse_problem(text)}, unit, traits)->tile.subgroups_k, 1u) << text;
}

// Shaders with cooperative matrices use more of a device than these.
TEST(DirectMatrixTile, WantsWhatItsShadersUse) {
  vulkan::Traits traits = described_gpu({16, 16, 16, DType::f16, DType::f32});
  const ConvProblem p = parse_problem("fwd_f16_n1c64o64_i14x14_k3x3_p1x1");
  EXPECT_TRUE(vulkan::matrix_support(p, traits));
  traits.features.memory_model = false;
  EXPECT_FALSE(vulkan::matrix_support(p, traits));
}

// An emulated stage goes in runs, which start with a tap where subgroups share its channels.
TEST(DirectMatrixTile, EmulatedRunsStartWithATap) {
  vulkan::Traits traits = described_gpu({8, 8, 8, DType::f16, DType::f32});
  traits.type = vulkan::DeviceType::software;
  traits.limits.shared_memory_bytes = 32768;
  const auto unit = *vulkan::matrix_unit(traits, DType::f16);
  for (const char* text : {"fwd_f32_n1c24o16_i9x10_k3x3_s2x1_p1x1", "fwd_f32_n1c32o1_i70_k7_p6:0"}) {
    const auto grid = vulkan::choose_matrix_grid({parse_problem(text)}, unit, traits);
    ASSERT_TRUE(grid) << text;
    EXPECT_EQ(grid->tile.subgroups_k == 1 ? 0 : grid->body_steps % grid->tile.tap_steps(unit), 0) << text;
  }
}

// The phases of a transposed convolution run at the same time, so none has a workspace: weights of a call are packed
// before, or phase by phase where the limit does not hold all of them.
TEST(DirectMatrixTile, SiblingsShareNoSums) {
  const vulkan::Traits traits = described_gpu({16, 16, 16, DType::f16, DType::f32});
  const auto unit = *vulkan::matrix_unit(traits, DType::f16);
  const ConvProblem phase = parse_problem("fwd_f16_n1c512o512_i7x7_k3x3_p1x1");
  EXPECT_EQ(vulkan::choose_matrix_grid({phase, false, 4}, unit, traits)->shares, 1);
  Planner<vulkan::Device> planner(registry<vulkan::Device>(), traits);
  const ConvProblem transposed = parse_problem("fwd_f16_n2c320o256_i8x8x8_k2x2x2_t2x2x2_p1x1x1");
  const auto plan = planner.plan({transposed, ""});
  EXPECT_EQ(plan->describe(), "transpose_phases(8x direct_matrix)");
  EXPECT_EQ(plan->workspace_bytes(), plan->prepared_bytes());
  EXPECT_EQ(plan->prepared_workspace_bytes(), 0u);
  const auto narrow = planner.plan({transposed, "", plan->prepared_bytes() - 1});
  EXPECT_EQ(narrow->describe(), "transpose_phases(8x direct_matrix)");
  EXPECT_EQ(narrow->workspace_bytes(), plan->prepared_bytes() / 8);
  EXPECT_EQ(narrow->prepared_workspace_bytes(), 0u);
}

TEST(DirectMatrixTile, FewChannelsFillMatrices) {
  const vulkan::Traits traits = described_gpu({16, 16, 16, DType::f16, DType::f32});
  Planner<vulkan::Device> planner(registry<vulkan::Device>(), traits);
  const auto layout = [&](const char* text) {
    return planner.plan({parse_problem(text), "direct_matrix"})->weight_layout();
  };
  EXPECT_TRUE(layout("fwd_f16_n32c3o64_i224x224_k7x7_s2x2_p3x3").ends_with(" taps"));
  EXPECT_FALSE(layout("fwd_f16_n32c16o64_i224x224_k7x7_s2x2_p3x3").ends_with(" taps"));
}

TEST(DirectMatrixTile, BodiesOfLoopsDivideAStage) {
  const vulkan::Traits traits = described_gpu({16, 16, 16, DType::f16, DType::f32});
  const auto unit = *vulkan::matrix_unit(traits, DType::f16);
  for (const char* text : {"fwd_f16_n8c64o64_i56x56_k7x7_p3x3", "fwd_f16_n1c768o768g16_i1500_k128_p64"}) {
    const auto grid = vulkan::matrix_grid({parse_problem(text)}, unit, {false, 1, 4, 7, 2, 2}, 1, traits);
    EXPECT_EQ(grid.stage_steps % grid.body_steps, 0) << text;
    EXPECT_LT(grid.body_steps, grid.stage_steps) << text;
  }
}

// Sums of fp32 leave their accumulators between the parts of a long sum; a short one has no other part.
TEST(DirectMatrixTile, ShortSumsStayInTheirAccumulators) {
  const vulkan::Traits traits = described_gpu({16, 16, 16, DType::f16, DType::f32});
  const auto unit = *vulkan::matrix_unit(traits, DType::f16);
  const auto block_steps = [&](const char* text, std::uint32_t chunk_octets) {
    return vulkan::matrix_grid({parse_problem(text)}, unit, {true, 1, 4, 3, 2, chunk_octets}, 1, traits).block_steps;
  };
  EXPECT_EQ(block_steps("fwd_f32_n8c64o256_i3136_k1", 8), 0);
  EXPECT_EQ(block_steps("fwd_f32_n8c64o256_i3136_k1", 4), 2);  // two stages have a scale each
  EXPECT_EQ(block_steps("fwd_f32_n8c16o256_i3136_k7_p3", 2), 4);
  EXPECT_EQ(block_steps("fwd_f16_n8c64o256_i3136_k1", 4), 0);
}

// Long sums of halves leave their accumulators in equal blocks of whole runs, those of bfloat16 later.
TEST(DirectMatrixTile, LongSumsAreCutIntoBlocks) {
  vulkan::Traits traits = described_gpu({16, 16, 16, DType::f16, DType::f32});
  traits.cooperative_matrices.push_back({16, 16, 16, DType::bf16, DType::f32});
  const auto grid = [&](const char* text) {
    const ConvProblem p = parse_problem(text);
    return *vulkan::choose_matrix_grid({p}, *vulkan::matrix_unit(traits, p.dtype), traits);
  };
  EXPECT_EQ(grid("fwd_f16_n32c256o256_i14x14_k3x3_p1x1").block_steps, 0);  // 2,304 terms
  EXPECT_EQ(grid("fwd_bf16_n1c768o768_i62x108_k3x3").block_steps, 0);
  for (const char* text : {"fwd_f16_n32c320o320_i14x14_k3x3_p1x1", "fwd_f16_n1c768o768_i9x62x108_k3x3x3",
                           "fwd_f16_n1c768o768g16_i1500_k128_p64", "fwd_bf16_n1c768o768_i9x62x108_k3x3x3"}) {
    const vulkan::MatrixGrid g = grid(text);
    const std::int64_t most = parse_problem(text).dtype == DType::f16 ? 1152 : 9216;
    EXPECT_GT(g.block_steps, 0) << text;
    EXPECT_EQ(g.block_steps % g.body_steps, 0) << text;
    EXPECT_LT(g.block_steps * 16, most + g.body_steps * 16) << text;  // the last run may begin before
  }
}

TEST(Divisor, DividesEveryNumberBelow2To31) {
  for (const std::uint32_t value : {1u, 2u, 3u, 7u, 57u, 64u, 641u, 65537u, (1u << 30) - 1, 1u << 30, (1u << 30) + 1}) {
    const vulkan::Divisor d = vulkan::divisor(value);
    for (const std::uint64_t multiple : {0u, 1u, 2u, 3u, 1000u, 33554431u, 1u << 30})
      for (const int beside : {-1, 0, 1}) {
        const std::uint64_t n = multiple * value + static_cast<std::uint64_t>(beside);
        if (n >= std::uint64_t{1} << 31) continue;
        EXPECT_EQ(vulkan::divide(static_cast<std::uint32_t>(n), d), n / value) << n << " / " << value;
      }
    EXPECT_EQ(vulkan::divide((1u << 31) - 1, d), ((1u << 31) - 1) / value) << value;
  }
}

TEST(DirectMatrixTile, FitsTheDevice) {
  for (const auto& shape : {vulkan::CooperativeMatrix{16, 16, 16, DType::f16, DType::f32},
                            vulkan::CooperativeMatrix{8, 16, 16, DType::f16, DType::f32}})
    for (const char* text : {"fwd_f16_n32c64o64_i56x56_k3x3_p1x1", "fwd_f16_n32c512o512_i7x7_k3x3_p1x1",
                             "fwd_f16_n8c256o256_i8192_k11_p5", "fwd_f16_n1c256o256_i43x62x106_k3x3x3",
                             "fwd_f16_n32c3o64_i224x224_k7x7_s2x2_p3x3", "fwd_f16_n1c16o16_i8x8_k3x3_d40x40_p40x40"}) {
      const ConvProblem p = parse_problem(text);
      const vulkan::Traits traits = described_gpu(shape);
      const auto unit = *vulkan::matrix_unit(traits, p.dtype);
      const auto grid = vulkan::choose_matrix_grid({p}, unit, traits);
      if (p.dilation[1] == 40) {
        EXPECT_FALSE(grid) << "a halo of 80 rows fits no shared memory";
        continue;
      }
      ASSERT_TRUE(grid) << text;
      EXPECT_LE(grid->shared_octets * 16, 48 << 10) << text;
      EXPECT_LE(grid->tile.subgroups() * unit.lanes, 1024u) << text;
      EXPECT_GE(grid->tiles_o * grid->tile.channels(unit), p.out_channels) << text;
      EXPECT_GE(grid->chunks * grid->tile.chunk_octets * 8, p.in_channels) << text;
    }
}

// The columns one slice's taps read must not be another slice's input.
TEST(DirectMatrixTile, SlicesSideBySideShareNothing) {
  for (const char* text : {"fwd_f16_n2c1o1_i7_k3_p1", "fwd_f16_n2c1o1_i9_k3_s2_p1:0", "fwd_f16_n2c1o1_i4_k3_s3_p7:5",
                           "fwd_f16_n2c1o1_i9_k3_p-3:4", "fwd_f16_n2c1o1_i9_k4_d3_p2:6", "fwd_f16_n2c1o1_i12_k1_s5"}) {
    const ConvProblem p = parse_problem(text);
    const vulkan::SideBySide layout = vulkan::side_by_side(p);
    EXPECT_EQ(layout.slices, 2) << text;
    const std::int64_t pitch = layout.pitch * p.stride[2];
    for (std::int64_t o = 0; o < p.output[2]; ++o)
      for (std::int64_t k = 0; k < p.kernel[2]; ++k) {
        const std::int64_t x = o * p.stride[2] + k * p.dilation[2] - p.pad_lo[2];
        if (x >= 0 && x < p.input[2]) continue;
        EXPECT_TRUE(x + pitch >= p.input[2] && x < pitch) << text << " reads column " << x;
      }
  }
}

// Slices of as many columns as tiles have need no gap: fewer tiles cover them.
TEST(DirectMatrixTile, SlicesOfWholeTilesLieApart) {
  for (const auto& [text, apart] :
       {std::pair{"fwd_f16_n2c1o1_i9x64_k3x3_p1x1", true}, std::pair{"fwd_f16_n1c1o1_i9x64_k3x3_p1x1", true},
        std::pair{"fwd_f16_n2c1o1_i9x64_k3x3_s1x2_p1x1", true}, std::pair{"fwd_f16_n32c1o1_i9x14_k3x3_p1x1", false},
        std::pair{"fwd_f16_n2c1o1_i9x64_k1x1", false}}) {
    const ConvProblem p = parse_problem(text);
    const vulkan::SideBySide one = vulkan::side_by_side(p), layout = vulkan::side_by_side(p, 16);
    EXPECT_EQ(layout.straddled, !apart) << text;
    EXPECT_GE(layout.pitch, p.output[2]) << text;
    EXPECT_LE(ceil_div(layout.columns(), 16), ceil_div(one.columns(), 16)) << text;
    EXPECT_TRUE(!apart || layout.pitch % 16 == 0) << text;
  }
}

}  // namespace
}  // namespace vkconv
#endif
