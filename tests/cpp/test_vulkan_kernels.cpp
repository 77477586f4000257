// Every Vulkan kernel against the CPU's reference, on every device of this machine that is usable (lavapipe at least
// where Mesa is installed). Small integers have one right answer; random data stays within the error bound.
#if VKCONV_VULKAN
#include "core/checked.h"
#include "vulkan_kernel_test.h"

namespace vkconv {
namespace {

class VulkanKernels : public vulkan::VulkanKernelTest {};

TEST_F(VulkanKernels, DepthwiseGeometry) {
  for (const char* text : {
           "fwd_f32_n2c8o8g8_i9x11_k3x3_p1x1",
           "fwd_f32_n1c7o7g7_i15x13_k3x3_p1x1",  // channel tail
           "fwd_f32_n1c32o32g32_i30x17_k5x3_s2x1_p2x1",
           "fwd_f32_n1c5o15g5_i9x9_k3x3_s2x2_p1x1",   // multiplier 3
           "fwd_f32_n1c4o8g4_i8x8_k2x2_p0:1x1:0",     // asymmetric
           "fwd_f32_n1c4o4g4_i8x9_k3x3_p-1:-2x2:-1",  // cropping
           "fwd_f32_n1c12o12g12_i20x20_k3x3_d2x3_p2x3",
           "fwd_f32_n1c4o4g4_i40x40_k3x3_s7x5_d9x11_p9x11",  // columns share nothing
           "fwd_f32_n1c4o4g4_i6x7_k3x3_t2x3_p2x1",           // inserted zeros
           "fwd_f32_n2c16o16g16_i37_k4_p3:0",                // causal
           "fwd_f32_n1c3o3g3_i700_k300_p10",                 // more taps than a block
           "fwd_f32_n1c8o8g8_i4x5x6_k3x2x3_s1x2x1_p1x0x1",
           "fwd_f32_n1c4o4g4_i19x19_k17x17_p8x8",
           "fwd_f16_n1c8o8g8_i9x11_k3x3_p1x1_bias_relu",
           "fwd_f16>f32_n1c6o6g6_i9x11_k3x3_p1x1_bias_add",
           "fwd_bf16_n1c8o8g8_i9x11_k3x3_p1x1_add_relu6",
           "fwd_bf16>f32_n1c9o9g9_i9x11_k3x3_p1x1",
           "fwd_f64_n1c8o8g8_i9x11_k3x3_p1x1_bias_add_clip-1:1",
           "fwd_f32_n1c8o8g8_i9x11_k3x3_p1x1_flip_leaky_relu0.5",
       })
    expect_exact("depthwise", text);
}

// Views with any strides along N, D, H, W: every second row, rows bottom up, an input repeated along its columns.
TEST_F(VulkanKernels, StridedViews) {
  const ConvProblem p = parse_problem("fwd_f32_n1c4o4g4_i6x5_k3x2_p1x0");
  ConvProblem dense = p;
  dense.groups = 1;
  for (const ConvProblem& q : {p, dense})
    for (const char* algorithm : {"depthwise", "implicit_gemm", "unfold_gemm"}) {
      if (q.groups == 1 && std::string_view(algorithm) == "depthwise") continue;
      ConvProblem whole = q;  // arrays twice as tall as the views
      whole.input[1] *= 2;
      whole.output[1] = output_extent(whole.input[1], whole.kernel[1], 1, 1, 1, 1, 1);
      tools::HostOperands host(whole, tools::make_arrays(whole, tools::Data::small_integers));
      const std::int64_t row = host.operands.input.stride[2];
      host.operands.input = host.operands.input.sliced(2, 11, -2, q.dtype);
      host.operands.input.stride[3] = 0;
      ASSERT_EQ(host.operands.input.stride[2], -2 * row);
      host.operands.output = host.operands.output.sliced(2, 1, 2, q.dtype);
      expect_exact_views(algorithm, q, host);
    }
}

// Kernels, strides and alignments that the register kernel takes apart: see depthwise_rows.h.
// Kernels in registers, with weights as they come and prepared.
TEST_F(VulkanKernels, DepthwiseRows) {
  for (const char* text : {
           "fwd_f32_n1c6o6g6_i11x9_k3x3_p1x1",  // vectors of two channels
           "fwd_f16_n2c48o48g48_i7x13_k3x3_s2x1_p1x0:2",
           "fwd_bf16_n1c10o10g10_i9x9_k5x5_s1x3_p2x2_bias_add_relu6",
           "fwd_f32_n1c8o8g8_i70x3_k7x7_p3x3",
           "fwd_f32_n1c8o8g8_i3x9x8_k1x3x3_s2x1x1_p1x1x1",
           "fwd_f16_n2c6o6g6_i4x9x11_k3x3x3_p1x1x1",
           "fwd_f16_n1c3o3g3_i13x11_k5x5_p2x2_bias",
           "fwd_bf16_n2c7o7g7_i9x14_k3x3_s2x2_p1x1_add",           // lone halves
           "fwd_f32_n1c8o8g8_i9x7x6_k2x3x3_s2x1x1_d3x1x1_p2x1x1",  // depths apart
           "fwd_f64_n1c4o4g4_i12x9_k5x5_p2x2",
           "fwd_f32_n3c8o8g8_i4_k4",             // one output a channel
           "fwd_f32_n1c4o4g4_i200x5_k3x3_p1x1",  // a strip of rows follows another
           "fwd_f32_n2c4o4g4_i60x5_k1x1_p40x1",  // strips wholly in the padding
           // Several outputs a channel: vectors of one input, of pairs of them, and outputs that share no vector.
           "fwd_f32_n2c3o12g3_i9x7_k3x3_p1x1_bias_add",
           "fwd_f16_n1c4o8g4_i9x7_k5x5_p2x2_bias",
           "fwd_bf16_n1c3o24g3_i9x7_k3x3_s2x2_p1x1_flip",
           "fwd_f16_n2c4o24g4_i9x7_k3x3_p1x1_add",
           "fwd_f16_n1c5o15g5_i40_k4_p3:0",
           "fwd_f64_n1c4o8g4_i4x5x6_k3x3x3_p1x1x1",
           "fwd_f16>f32_n1c4o8g4_i9x7_k3x3_p1x1",
       })
    for (const bool prepare : {false, true}) expect_exact("depthwise", text, prepare);
}

// The strips of GPUs, which no software device has: several columns, rows ahead.
TEST_F(VulkanKernels, DepthwiseRowsOnGpus) {
  traits_.type = vulkan::DeviceType::discrete;
  expect_exact("depthwise", "fwd_f32_n2c8o8g8_i13x11_k3x3_p1x1_add");
  expect_exact("depthwise", "fwd_f16_n1c6o6g6_i9x14_k3x3_s2x2_p1x1_bias");
  expect_exact("depthwise", "fwd_f16_n2c3o3g3_i21x13_k3x3_p1x1_bias_relu", true);
  expect_exact("depthwise", "fwd_bf16_n1c1o1_i4x19x10_k2x3x3_s1x2x2_p1x1x1");
  expect_exact("depthwise", "fwd_f32_n1c2o2g2_i4x5x6_k3x3x3_p1x1x1", true);
  // Short strips, of which some lie wholly in the padding.
  expect_exact("depthwise", "fwd_f64_n2c3o3g3_i4x10_k1x1_p2:3x1:3");
  expect_exact("depthwise", "fwd_f32_n1c64o64g64_i6x6x4_k2x1x1_s2x1x2_p1:0x3x0:1");
  expect_exact("depthwise", "fwd_f32_n2c5o5g5_i6x9_k2x3_s3x2_p5x1");
  // Several outputs a channel.
  expect_exact("depthwise", "fwd_f32_n2c4o8g4_i13x11_k3x3_p1x1_bias_add");
  expect_exact("depthwise", "fwd_f16_n2c3o12g3_i13x11_k5x5_s2x2_p2x2_bias", true);
  expect_exact("depthwise", "fwd_bf16_n2c4o12g4_i13x11_k3x3_p1x1", true);
}

// Strips of GPUs, as wide as those that run few or many invocations at once have them.
TEST_F(VulkanKernels, DepthwiseStripsOnGpus) {
  traits_.type = vulkan::DeviceType::discrete;
  for (const char* text : {"fwd_f32_n1c8o8g8_i90_k33_s2_d3_p48", "fwd_f32_n1c6o6g6_i130_k55_d2_p54",
                           "fwd_f16_n2c4o8g4_i9x9_k9x9_p4x4_bias", "fwd_f32_n1c8o8g8_i3x24x24_k3x3x3_s1x8x8_p1x1x1",
                           "fwd_f32_n3c4o4g4_i60_k31_p15", "fwd_f32_n1c4o4g4_i2x260_k2x45_d1x5_p1x110"}) {
    const ConvProblem p = parse_problem(text);
    const tools::Arrays arrays = tools::make_arrays(p, tools::Data::random);
    std::vector<std::vector<double>> results;
    for (const double rate : {1e9, 1e15}) {
      traits_.rates.f32_flops_per_second = rate;
      for (const bool prepare : {false, true}) expect_exact("depthwise", text, prepare);
      results.push_back(run(p, arrays, "depthwise"));
    }
    EXPECT_EQ(results[0], results[1]) << text << ": other bits by another tile";
  }
}

TEST_F(VulkanKernels, DepthwisePreparedWeights) {
  for (const char* text : {"fwd_f32_n1c8o8g8_i9x11_k3x3_p1x1_flip", "fwd_f32_n1c5o15g5_i9x9_k3x3_s2x2_p1x1",
                           "fwd_f16_n1c8o8g8_i9x11_k3x3_p1x1_bias_relu"})
    expect_exact("depthwise", text, true);
}

TEST_F(VulkanKernels, DepthwiseAccuracy) {
  for (const char* text : {"fwd_f32_n1c8o8g8_i40x30_k3x3_p1x1_bias_gelu", "fwd_f16_n1c8o8g8_i40x30_k3x3_p1x1_silu",
                           "fwd_f32_n1c3o3g3_i1500_k1000_p10", "fwd_f64_n1c4o4g4_i9x9_k3x3_p1x1_bias_tanh"})
    expect_accurate("depthwise", text);
}

TEST_F(VulkanKernels, ImageFilter) {
  for (const char* text : {
           "fwd_f32_n2c1o1_i33x70_k5x3_p2x1_bias_add_relu",  // four columns are stored together
           "fwd_f16_n1c1o1_i9x40_k1x7_p0x3_add",
           "fwd_bf16>f32_n1c1o1_i40_k21_p10",
           "fwd_f32_n1c1o16_i13x17_k4x5_p1x2_bias_add_relu6",  // four channels an invocation
           "fwd_f16_n1c1o7_i13x17_k3x3_p1x1_bias",
           "fwd_f32_n1c4o28g4_i13_k5_p2:0",            // the fours of a group end amid its channels
           "fwd_f32_n1c3o6g3_i9x30_k17x19_p8x9_bias",  // blocks of the kernel, the last one cut short
           "fwd_bf16_n1c5o5g5_i4x9x10_k3x3x2_s2x1x1_d2x1x1_p2x1x0_add",
           "fwd_f32_n1c2o2g2_i30x40_k30x40_p3x2_flip",  // a total of several sums
           "fwd_f64_n1c1o4_i9x11_k3x3_p-1:2x1:-1_add_clip-1:1",
       })
    expect_exact("image_filter", text);
  for (const char* text : {"fwd_f32_n1c1o1_i60x50_k33x20_p8x8_gelu", "fwd_f16_n1c1o5_i40x30_k9x9_p4x4_silu"})
    expect_accurate("image_filter", text);
}

constexpr const char* kDenseProblems[] = {
    "fwd_f32_n1c16o32_i9x11_k3x3_p1x1",
    "fwd_f32_n2c64o96_i7x7_k1x1",
    "fwd_f32_n1c3o20_i17x19_k7x7_s2x2_p3x3",  // few input channels
    "fwd_f32_n1c12o3_i13x9_k3x3_p1x1",        // few output channels
    "fwd_f32_n1c8o6_i10x10_k2x3_s1x2_d2x1_p-1:1x2:-1",
    "fwd_f32_n1c8o8_i6x7_k3x3_t2x3_p2x1",      // inserted zeros
    "fwd_f32_n1c18o12g6_i9x9_k3x3_s2x1_p1x1",  // groups of 3 and 2
    "fwd_f32_n2c24o40_i33_k5_d3_p6",
    "fwd_f32_n1c8o12_i5x6x7_k3x2x3_s2x1x1_p1x0x1",
    "fwd_f32_n1c300o10_i5x5_k3x3_p1x1",  // many blocks
    "fwd_f16_n1c16o24_i9x11_k3x3_p1x1_bias_relu",
    "fwd_bf16_n1c16o16_i9x11_k3x3_p1x1_add_relu6",
    "fwd_bf16>f32_n1c9o9_i9x11_k3x3_p1x1_bias_add",
    "fwd_f64_n1c8o8_i9x11_k3x3_p1x1_bias_add_clip-1:1",
    "fwd_f32_n1c8o8_i9x11_k3x3_p1x1_flip_leaky_relu0.5",
};

TEST_F(VulkanKernels, ImplicitGemmGeometry) {
  for (const char* text : kDenseProblems) expect_exact("implicit_gemm", text);
}

TEST_F(VulkanKernels, ImplicitGemmAccuracy) {
  for (const char* text : {"fwd_f32_n1c128o16_i9x9_k3x3_p1x1_bias_gelu", "fwd_bf16_n1c96o16_i9x9_k3x3_p1x1_silu"})
    expect_accurate("implicit_gemm", text);
}

TEST_F(VulkanKernels, SubgroupGemm) {
  if (traits_.type != vulkan::DeviceType::software) GTEST_SKIP() << "for devices that run on a CPU";
  for (const char* text : kDenseProblems) expect_exact("subgroup_gemm", text);
  expect_exact("subgroup_gemm", "fwd_f32_n1c64o70_i80x81_k1x1_bias_add");  // the large tile
  expect_exact("subgroup_gemm", "fwd_f16_n1c24o40_i9x11_k3x3_p1x1_flip_relu", true);
  expect_accurate("subgroup_gemm", "fwd_f32_n1c128o16_i9x9_k3x3_p1x1_bias_gelu");
}

TEST_F(VulkanKernels, DirectGeometry) {
  for (const char* text : {
           "fwd_f32_n1c16o32_i9x11_k3x3_p1x1",
           "fwd_f32_n3c12o3_i5x5_k3x3_s2x2_p1x1",  // images share a tile
           "fwd_f32_n1c8o6_i10x10_k2x3_s1x2_d2x1_p-1:1x2:-1",
           "fwd_f32_n1c18o12g6_i9x9_k3x3_s2x1_p1x1",  // groups of 3 and 2
           "fwd_f32_n2c24o40_i33_k5_d3_p6",
           "fwd_f32_n1c8o12_i5x6x7_k3x2x3_s2x1x1_p1x0x1",
           "fwd_f16_n1c16o24_i9x11_k3x3_p1x1_bias_relu",
           "fwd_bf16>f32_n1c9o9_i9x11_k3x3_p1x1_bias_add",
           "fwd_f64_n1c8o8_i9x11_k3x3_p1x1_bias_add_clip-1:1",
       })
    expect_exact("direct", text);
  expect_exact("direct", "fwd_f32_n1c8o8_i9x11_k3x3_p1x1_flip_leaky_relu0.5", true);
}

// The tiles of GPUs, which no planner chooses on a software device.
TEST_F(VulkanKernels, DirectOnGpus) {
  traits_.type = vulkan::DeviceType::discrete;
  expect_exact("direct", "fwd_f32_n2c20o70_i17x19_k3x3_s2x1_p1x1");       // a chunk and a panel are not full
  expect_exact("direct", "fwd_f32_n1c300o20_i9x11_k3x3_p1x1_bias_relu");  // sums in parts
  expect_exact("direct", "fwd_f16_n2c24o40_i133_k1_bias_add", true);      // chunks loaded ahead
}

TEST_F(VulkanKernels, DirectAccuracy) {
  for (const char* text : {"fwd_f32_n1c128o16_i9x9_k3x3_p1x1_bias_gelu", "fwd_bf16_n1c96o16_i9x9_k3x3_p1x1_silu"})
    expect_accurate("direct", text);
}

TEST_F(VulkanKernels, OutputsOfEvenChannelsAreStoredInPairs) {
  for (const char* text : {"fwd_f16_n1c16o22_i9x11_k3x3_p1x1_bias_add", "fwd_bf16>f32_n1c16o18_i9x11_k3x3_p1x1_bias",
                           "fwd_f16_n1c32o12g2_i9x11_k3x3_p1x1_bias"})  // six of a group: fours would straddle the next
    for (const char* algorithm : {"direct", "direct_matrix"}) expect_exact(algorithm, text, true);
}

TEST_F(VulkanKernels, UnfoldGemmLimitNeverShows) {
  for (const char* text : {"fwd_f32_n2c8o8_i9x11_k3x3_p1x1_bias", "fwd_f32_n1c6o9g3_i9x9_k3x2_s2x1_p1x1",
                           "fwd_f16_n1c5o6_i7_k3_t4_p2", "fwd_f32_n1c4o4_i4x5x6_k2x2x2_p1x0x1"}) {
    const ConvProblem p = parse_problem(text);
    Planner<vulkan::Device> planner(registry<vulkan::Device>(), traits_);
    const tools::Arrays arrays = tools::make_arrays(p, tools::Data::small_integers);
    const auto want = reference(p, arrays);
    const std::size_t row_bytes =
        static_cast<std::size_t>(round_up(p.taps() * p.in_channels_per_group(), 4)) * size_bytes(p.dtype);
    for (const std::size_t limit : {row_bytes, 7 * row_bytes, kDefaultWorkspaceLimitBytes}) {
      EXPECT_LE(planner.plan({p, "unfold_gemm", limit})->workspace_bytes(), limit) << text;
      EXPECT_EQ(run(p, arrays, "unfold_gemm", limit), want) << text << " in " << limit;
    }
    EXPECT_THROW(planner.plan({p, "unfold_gemm", row_bytes - 1}), ProblemError) << text;
  }
}

// Equal, or, where `rounds`, equal but for the roundings of a GPU's Winograd on small integers.
void expect_like(const std::vector<double>& got, const std::vector<double>& want, bool rounds) {
  ASSERT_EQ(got.size(), want.size());
  if (!rounds) {
    EXPECT_EQ(got, want);
    return;
  }
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_TRUE(got[i] == want[i] || std::abs(got[i] - want[i]) < 1e-3) << got[i] << ", wanted " << want[i];
}

// Infinite weights under padding: the taps that read padding do not count.
TEST_F(VulkanKernels, PaddingTimesInfinityIsNothing) {
  for (const char* text : {"fwd_f32_n1c4o4g4_i5x6_k3x3_p1x1", "fwd_f32_n1c4o4g4_i3x4x5_k3x3x3_p1x1x1",
                           "fwd_f32_n1c4o4_i5x6_k3x3_p1x1", "fwd_f32_n1c3o5_i5_k3_t2_p1"}) {
    const ConvProblem p = parse_problem(text);
    Planner<vulkan::Device> planner(registry<vulkan::Device>(), traits_);
    tools::Arrays arrays = tools::make_arrays(p, tools::Data::small_integers);
    for (double& x : arrays.input) x = std::abs(x) + 1;
    arrays.weight[0] = HUGE_VAL;
    const auto want = reference(p, arrays);
    for (const Candidate& c : planner.explain(p, kDefaultWorkspaceLimitBytes))
      if (c.reason.empty()) {
        SCOPED_TRACE(std::string(c.name) + " " + text);
        expect_like(run(p, arrays, c.name), want, c.name == "winograd" && traits_.type != vulkan::DeviceType::software);
      }
  }
}

TEST_F(VulkanKernels, WeightGradGeometry) {
  for (const char* text : {
           "wgrad_f32_n2c16o20_i9x11_k3x3_p1x1",
           "wgrad_f32_n1c3o5_i17x19_k5x3_s2x3_p2x1",
           "wgrad_f32_n1c8o8_i60x50_k3x3_d2x1_p2x1",   // several chunks
           "wgrad_f32_n1c6o12g6_i9x9_k3x3_p-1:2x1:0",  // depthwise, cropped
           "wgrad_f32_n1c4o6_i5x6_k3x3_t2x3_p1x2",     // inserted zeros
           "wgrad_f32_n2c4o4_i5x6x7_k2x3x2_s1x2x1_p1x0x1",
           "wgrad_f16>f32_n1c8o8g2_i9x9_k3x3_p1x1",
           "wgrad_bf16_n1c8o8_i9x9_k3x3_p1x1",
           "wgrad_f64_n1c8o8_i9x9_k3x3_p1x1_flip",
       })
    expect_exact("weight_grad", text);
}

TEST_F(VulkanKernels, DepthwiseWeightGrad) {
  for (const char* text : {
           "wgrad_f32_n1c6o12g6_i9x9_k3x3_p-1:2x1:0",                // two outputs a channel, cropped
           "wgrad_f32_n2c8o8g8_i60x50_k3x3_p1x1",                    // several chunks
           "wgrad_f32_n1c40o40g40_i19x23_k7x7_s2x1_p3x0",            // several pieces
           "wgrad_f32_n1c4o4g4_i9x70_k1x9_s1x3_d1x2_p0x8",           // uneven ones
           "wgrad_f32_n1c4o8g4_i5x6_k3x3_t2x3_p1x2",                 // inserted zeros
           "wgrad_f32_n2c4o4g4_i5x6x7_k2x3x2_s1x2x1_d1x1x2_p1x0x1",  // depths
           "wgrad_f16_n1c3o3g3_i19x15_k5x5_p2x2",
           "wgrad_bf16_n2c5o10g5_i14x9_k2x4_s2x2",  // odd channels
           "wgrad_f16>f32_n1c8o8g8_i9x9_k3x3_p1x1", "wgrad_f64_n2c8o8g8_i9x30_k3x11_p1x5_flip",
           "wgrad_f32_n1c944o944g944_i40x40_k3x3_p1x1",  // blocks of strips, whose sums are added
       })
    expect_exact("depthwise_weight_grad", text);
  for (const char* text : {"wgrad_f32_n2c12o12g12_i90x80_k3x3_p1x1", "wgrad_f16_n1c8o8g8_i100x90_k5x5"})
    expect_accurate("depthwise_weight_grad", text);
  traits_.type = vulkan::DeviceType::discrete;  // whose invocations hold several rows and columns
  for (const char* text : {"wgrad_f32_n1c8o8g8_i37x41_k3x3_p1x1", "wgrad_bf16_n1c6o12g6_i9x30_k5x5_s2x2_p2x2",
                           "wgrad_f64_n16c64o64g64_i40x40_k3x3_p1x1",
                           // Eight channels an invocation.
                           "wgrad_f16_n2c24o24g24_i9x41_k5x5_p2x2", "wgrad_bf16_n1c16o16g16_i13x30_k7x7_s2x1_p3x3",
                           "wgrad_bf16>f32_n3c8o8g8_i300_k4_p3:0"})
    expect_exact("depthwise_weight_grad", text);
  expect_accurate("depthwise_weight_grad", "wgrad_f32_n32c16o16g16_i112x112_k3x3_p1x1", true, Bounds{});  // 264 chunks
}

// Some channels of wider arrays: eight are not aligned as one, four are or not.
TEST_F(VulkanKernels, DepthwiseWeightGradOfSomeChannels) {
  traits_.type = vulkan::DeviceType::discrete;
  const ConvProblem p = parse_problem("wgrad_f16_n1c16o16g16_i9x40_k5x5_p2x2");
  ConvProblem whole = p;
  whole.in_channels = whole.out_channels = whole.groups = 20;
  for (const std::ptrdiff_t first : {0, 4, 1}) {
    tools::HostOperands host(whole, tools::make_arrays(whole, tools::Data::small_integers));
    host.operands.input.data += 2 * first;
    host.operands.output.data += 2 * first;
    expect_exact_views("depthwise_weight_grad", p, host);
  }
}

// An infinite input meets zeros for outputs that do not exist: past the row, and where taps read padding.
TEST_F(VulkanKernels, WeightGradOfInfinity) {
  for (const char* text :
       {"wgrad_f32_n1c8o8g8_i9x21_k3x3", "wgrad_f32_n1c8o8g8_i9x21_k3x3_p1x1", "wgrad_f32_n1c8o8_i9x21_k3x3_p1x1"}) {
    const ConvProblem p = parse_problem(text);
    Planner<vulkan::Device> planner(registry<vulkan::Device>(), traits_);
    tools::Arrays arrays = tools::make_arrays(p, tools::Data::small_integers);
    for (double& y : arrays.output) y = std::abs(y) + 1;
    arrays.input[0] = arrays.input.back() = arrays.output[5] = HUGE_VAL;
    for (double& x : arrays.input) x = std::abs(x) + 1;
    const auto want = reference(p, arrays);
    for (const Candidate& c : planner.explain(p, kDefaultWorkspaceLimitBytes))
      if (c.reason.empty()) {
        EXPECT_EQ(run(p, arrays, c.name), want) << c.name << " " << text;
      }
  }
}

TEST_F(VulkanKernels, WeightGradLimitNeverShows) {
  const ConvProblem p = parse_problem("wgrad_f32_n1c40o40_i70x60_k3x3_p1x1");
  Planner<vulkan::Device> planner(registry<vulkan::Device>(), traits_);
  const tools::Arrays arrays = tools::make_arrays(p, tools::Data::random);
  const auto whole = run(p, arrays, "weight_grad");
  const std::size_t bytes = planner.plan({p, "weight_grad"})->workspace_bytes();
  ASSERT_GT(bytes, 0u);
  const auto plan = planner.plan({p, "weight_grad", bytes / 3});
  EXPECT_LE(plan->workspace_bytes(), bytes / 3);
  EXPECT_EQ(run(p, arrays, "weight_grad", bytes / 3), whole);
  EXPECT_THROW(planner.plan({p, "weight_grad", 64}), ProblemError);
}

}  // namespace
}  // namespace vkconv
#endif
