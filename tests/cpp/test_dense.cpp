// implicit_gemm and unfold_gemm against the reference, and the parts they share.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "core/geometry.h"
#include "cpu_test.h"
#include "targets.h"

namespace vkconv {
namespace {

using tools::CpuPlanner;
using tools::Data;
using tools::expect_matches;
using tools::make_planner;

// Ranks, strides, dilation, odd channels, both sides of every tile and panel edge, negative and one-sided padding.
const char* const kForward[] = {
    "fwd_f32_n1c1o1_i1_k1",
    "fwd_f32_n2c5o7_i9x8_k3x3_p1x1",
    "fwd_f32_n2c16o40_i9x30_k3x3_p1x1_s2x2",
    "fwd_f32_n1c3o64_i32x33_k7x7_p3x3_s2x2_bias_relu",
    "fwd_f32_n1c8o33_i130_k11_p25_d5",
    "fwd_f32_n1c1o3_i300_k128_p60",
    "fwd_f32_n1c1o1_i20x35_k5x7_p2x3",
    "fwd_f32_n3c6o8g2_i5x6x7_k2x3x2_p1x0x1_bias_add_gelu",
    "fwd_f32_n1c32o32g8_i9x14_k3x3_p1x1_add",
    "fwd_f32_n1c40o40g10_i9x20_k5x5_p2x2_bias_relu",
    "fwd_f32_n2c24o12g6_i9x13_k3x4_p1x2_s2x2_d1x2",
    "fwd_f32_n1c64o64g32_i200_k70_p20",
    "fwd_f16_n1c36o36g9_i7x9_k3x3_p1x1",
    "fwd_bf16>f32_n1c32o32g16_i3x4x5_k2x2x2_add",
    // two rows of outputs at a time, and what is left of them
    "fwd_f32_n2c32o32g8_i3x9x30_k2x3x4_p1x1x1_bias_relu",
    "fwd_f16_n1c32o32g8_i9x31_k5x3_p2x1",
    "fwd_bf16_n2c32o32g4_i9x31_k3x3_p1x1",
    "fwd_f64_n1c32o32g16_i6x25_k2x3_p1x1_add",
    "fwd_f64_n1c32o32g16_i5x9_k3x3_p1x1",
    "fwd_f32_n2c12o24g3_i11x6_k3x2_p1x1_s1x2_bias",
    "fwd_f32_n1c12o12g4_i9x41_k3x3_p1x1",
    "fwd_f32_n2c66o22g22_i9x23_k3x3_p1x1_bias_add_relu",
    "fwd_bf16_n1c32o8g8_i7x19_k3x3_s2x2_p1x1",
    "fwd_f32_n1c8o32g4_i10x21_k3x3_s2x2_p1x1_bias_add_relu",
    "fwd_f64_n1c4o4g2_i5x7x19_k3x3x3_p1x1x1",
    // taps a stride apart, in runs of three, two and one, and rows that share some lines
    "fwd_f32_n2c32o32g8_i11x41_k7x7_s2x2_p3x3_bias_relu",
    "fwd_f16_n1c32o32g8_i12x31_k5x5_s2x3_p2x1",
    "fwd_f32_n1c32o32g16_i5x13x37_k3x4x3_s2x3x2_p1x2x1_add",
    "fwd_f64_n1c16o16g4_i9x40_k2x9_s3x2_p1x4",
    // short rows, copied, of depths with gaps between them; rows in place, whose ends are tiles of their own
    "fwd_f32_n9c1o16_i9x14_k3x3_s2x2_p1x1_bias_relu",
    "fwd_f32_n3c2o20_i4x6x15_k3x3x3_d2x3x1_p2x3x1",
    "fwd_f32_n2c6o12_i3x90_k3x5_p1x2",
    // outputs of a row that share no tap, or few
    "fwd_f32_n11c5o9_i1x1_k7x7_p6x6_flip",
    "fwd_f32_n9c6o7_i2x3_k7x8_p6x7_add",
    // few outputs of all pixels
    "fwd_f32_n3c32o2_i4x5x6_k1x1x1_bias",
    "fwd_f16_n2c20o5_i7x9_k1x1_add",
    "fwd_f32_n20c7o20_i1x1_k1x1",
    "fwd_f32_n17c7o20_i3x3_k3x3_p1x1",
    "fwd_f32_n1c7o20_i40x2x2_k3x2x1_p4x3x3",
    "fwd_f32_n1c4o5_i12x11_k3x3_p-1x-2",
    "fwd_f32_n1c4o5_i12x11_k3x3_p5:0x0:6_d2x3",
    "fwd_f32_n1c2o65_i3x29_k1x1_bias_clip-1:1",
    "fwd_f32_n1c2o2_i3_k3_p9",
    "fwd_f64_n2c16o20_i9x15_k3x3_p1x1_s2x2_bias_add_tanh",
    "fwd_f16_n2c16o40_i9x15_k3x3_p1x1_s2x2_bias",
    "fwd_f16_n2c6o8g2_i5x6x7_k2x3x2_p1x0x1_bias_add_silu",
    "fwd_f16_n17c7o20_i3x3_k3x3_p1x1",
    "fwd_bf16_n2c16o40_i9x15_k3x3_p1x1_d3x2",
    "fwd_bf16>f32_n2c16o40_i4x5x9_k2x3x3_p1x1x1_s1x2x2_add",
    "fwd_bf16_n1c64o96_i2x17_k3x3_p1x1_bias_relu",
    "fwd_bf16_n1c6o9g3_i4x7_k3x3_p1x1",
    "fwd_bf16_n1c16o40_i9x15_k3x3_p1x1_highest",
    // finished by the micro-kernel: one chain and several, whole vectors and parts, in the padding
    "fwd_f32_n1c48o64_i9x30_k1x1_bias_add_relu6",
    "fwd_f32_n1c150o77_i9x15_k1x1_bias_add_clip-1:1",
    "fwd_f32_n1c20o48_i9x15_k3x3_p2x2_bias_add_relu",
    "fwd_f32_n1c96o70_i9x15_k1x1_bias_add_gelu",
    "fwd_f64_n1c20o24_i9x15_k3x3_p4x4_s2x2_bias_add_leaky_relu0.125",
    "fwd_f16_n1c150o64_i9x15_k1x1_bias_add_relu",
    "fwd_bf16_n1c150o64_i9x15_k1x1_bias_add_relu6",
    // parts of vectors, stored where they belong
    "fwd_f32_n1c6o24_i9x45_k3x3_p1x1",
    "fwd_f32_n2c5o3_i7x61_k1x1",
    // the last of the panels that go together is cut
    "fwd_f32_n1c24o54_i9x30_k1x1_bias_add_relu6",
    "fwd_f32_n2c10o126g2_i9x31_k3x3_p1x1_gelu",
    "fwd_f64_n1c20o30_i9x15_k3x3_p1x1_bias",
    "fwd_f32_n1c70o56_i2x3x40_k2x1x1_p1x0x0",
    "fwd_f64_n1c40o13_i3x50_k2x1",
    "fwd_bf16>f32_n1c64o20_i2x17_k1x1",
    "fwd_bf16_n1c600o64_i2x17_k1x1",
    // odd channels in pairs
    "fwd_bf16_n1c3o40_i9x31_k5x5_p2x2_s2x2",
    "fwd_bf16_n2c1o20_i7x40_k3x3_p1x1_bias",
    "fwd_bf16>f32_n1c5o33_i4x4x9_k2x3x3_p1x1x1_add",
    // few output channels: every count, whole and broken vectors of terms, several chains
    "fwd_f32_n1c32o1_i1100_k7_p6:0_bias",
    "fwd_f32_n2c40o2_i7x37_k3x3_p1x1_add_relu",
    "fwd_f32_n1c64o3_i9x70_k3x3_p1x1_bias_relu",
    "fwd_f32_n2c32o4_i3x5x40_k1x1x1",
    "fwd_f32_n1c33o5_i30x18_k3x3_p1x1_s2x2_bias_add",
    "fwd_f32_n1c48o6_i20x20_k2x3_d1x2_p0x2",
    "fwd_f32_n1c129o7_i9x50_k3x5_p1x2",
    "fwd_f32_n1c160o8_i90_k9_p4_bias",
    "fwd_f32_n2c64o6g2_i9x20_k3x3_p1x1_bias",
    "fwd_f32_n1c1200o1_i70_k3_p1",
    "fwd_f16_n1c64o3_i9x70_k3x3_p1x1_bias_relu",
    "fwd_bf16>f32_n1c40o3_i9x40_k3x3_p1x1_add",
    "fwd_bf16_n2c33o1_i5x5x20_k2x3x3_p1x1x1",
    "fwd_f64_n1c20o3_i9x40_k3x3_p1x1_bias",
};
const char* const kDilatedInput[] = {
    "fwd_f32_n1c4o5_i12x11_k3x3_t2x3_p2x2",     "fwd_f32_n1c4o5_i5x6x7_k2x3x4_t2x3x1_d3x2x1_p3x2x2_s2x1x3",
    "fwd_f16_n2c4o6g2_i12_k5_t4_d6_p7_bias",    "fwd_f32_n1c1o1_i20_k128_t32_p127",
    "fwd_f64_n1c2o3_i9x9_k4x4_t3x2_p-1:2x3:-2",
};

TEST(Dense, ImplicitGemmMatchesReference) {
  for (const char* text : kForward) expect_matches(text, "implicit_gemm");
}

TEST(Dense, UnfoldGemmMatchesReference) {
  for (const char* text : kForward) expect_matches(text, "unfold_gemm");
  for (const char* text : kDilatedInput) expect_matches(text, "unfold_gemm");
}

TEST(Dense, EveryInstructionSetMatchesReference) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const tools::OnlyTarget only(target);
    SCOPED_TRACE(hwy::TargetName(target));
    EXPECT_EQ(make_planner().traits().isa, hwy::TargetName(target));
    for (const char* text : kForward)
      for (const char* algorithm : {"implicit_gemm", "unfold_gemm"}) expect_matches(text, algorithm);
  }
}

// The dot product takes bfloat16 in pairs; it is left alone where multiply-adds of widened values are faster.
TEST(Dense, Bfloat16IsMultipliedByTheFasterInstruction) {
  for (const double share : {0.5, 1.0, 2.0}) {
    cpu::Traits traits = cpu::host_traits();
    traits.bf16_flops_per_second = share * traits.f32_flops_per_second;
    traits.bf16_tiles = false;
    CpuPlanner planner(registry<cpu::Device>(), traits);
    const bool pairs = traits.bf16_dot && traits.vector_bytes >= 64 && share >= 1;
    for (const char* text : {"fwd_bf16_n1c64o64_i2x30_k1x1", "fwd_bf16_n1c3o40_i9x31_k5x5_p2x2_s2x2",
                             "fwd_bf16>f32_n1c5o33_i4x4x9_k2x3x3_p1x1x1_add"}) {
      SCOPED_TRACE(text + (" " + std::to_string(share)));
      const ConvProblem p = parse_problem(text);
      EXPECT_EQ(planner.plan({p, "implicit_gemm"})->weight_layout().starts_with("pairs"), pairs);
      const auto integers = tools::make_arrays(p, Data::small_integers);
      EXPECT_EQ(tools::run_cpu(p, integers, planner, "implicit_gemm"),
                tools::run_cpu(p, integers, planner, "reference"));
    }
  }
}

// Tiles take 32 channels together, or as many taps and channels. Groups of other numbers of channels do without.
TEST(Dense, Bfloat16TilesMatchReference) {
  if (!tools::tiles_can_run()) GTEST_SKIP() << "this CPU has no vdpbf16ps";
  CpuPlanner planner = tools::make_tile_planner();
  const auto layout_of = [&](const ConvProblem& p) { return planner.plan({p, "implicit_gemm"})->weight_layout(); };
  for (const char* text : {"fwd_bf16_n1c64o64_i2x30_k1x1", "fwd_bf16_n2c32o100_i5x47_k3x3_p1x1_bias_relu",
                           "fwd_bf16_n1c3o40_i9x31_k5x5_p2x2_s2x2", "fwd_bf16_n1c24o70_i6x9_k3x3_p1x1_add",
                           "fwd_bf16>f32_n1c5o33_i4x4x9_k2x3x3_p1x1x1_add", "fwd_bf16_n1c96o33g3_i4x19_k3x3_p1x1_relu",
                           "fwd_bf16_n1c700o40_i3x40_k3x3_d2x2_p2x2", "fwd_bf16_n2c3o33_i20x9_k4x7_p3x3_d1x2_relu",
                           "fwd_bf16_n1c1o16_i300_k90_p45_s4", "fwd_bf16>f32_n1c1200o20_i2x9_k3x3_p1x1_bias"}) {
    SCOPED_TRACE(text);
    const ConvProblem p = parse_problem(text);
    EXPECT_TRUE(layout_of(p).starts_with("tiles"));
    const auto integers = tools::make_arrays(p, Data::small_integers);
    EXPECT_EQ(tools::run_cpu(p, integers, planner, "implicit_gemm"), tools::run_cpu(p, integers, planner, "reference"));
  }
  EXPECT_FALSE(layout_of(parse_problem("fwd_bf16_n1c80o80g2_i4x19_k3x3_p1x1")).starts_with("tiles"));
  EXPECT_TRUE(layout_of(parse_problem("fwd_bf16_n1c64o64_i2x30_k1x1_highest")).starts_with("panels"));
}

TEST(Dense, EstimatesCountProductsInsideTheInput) {
  const ConvProblem p = parse_problem("fwd_f32_n1c256o512_i7x14x13_k3x2x5_s1x2x3_d4x4x1_p4x9x2");
  for (int axis = 0; axis < 3; ++axis) {
    std::int64_t inside = 0;
    for (std::int64_t o = 0; o < p.output[axis]; ++o)
      for (std::int64_t k = 0; k < p.kernel[axis]; ++k) inside += input_index(p, axis, o, k) >= 0;
    EXPECT_DOUBLE_EQ(share_inside(p, axis) * static_cast<double>(p.output[axis] * p.kernel[axis]),
                     static_cast<double>(inside));
  }
  CpuPlanner planner(registry<cpu::Device>(), cpu::host_traits());
  const auto estimate = [&](const char* text) {
    for (const Candidate& c : planner.explain(parse_problem(text), kDefaultWorkspaceLimitBytes))
      if (c.name == "implicit_gemm") return c.seconds;
    return 0.0;
  };
  EXPECT_LT(estimate("fwd_f32_n1c64o64_i7x14x14_k3x3x3_d4x4x4_p4x4x4"),
            0.7 * estimate("fwd_f32_n1c64o64_i15x22x22_k3x3x3_d4x4x4"));
}

TEST(Dense, ImplicitGemmSaysWhyNot) {
  const auto reason = [](const char* text, std::size_t limit = kDefaultWorkspaceLimitBytes) {
    return tools::reason_of("implicit_gemm", text, limit);
  };
  EXPECT_EQ(reason("fwd_f32_n1c4o5_i12x11_k3x3_t2x3"), "the input is dilated");
  EXPECT_NE(reason("wgrad_f32_n1c4o5_i12x11_k3x3"), "");
  EXPECT_NE(reason("fwd_f32_n1c4o5_i12x11_k3x3", 16).find("16"), std::string::npos);
  EXPECT_EQ(reason("fwd_f32_n1c4o5_i12x11_k3x3"), "");
}

// What is kept of the index map grows with the kernel, not with the distance of the elements.
TEST(Dense, UnfoldsElementsFarApart) {
  expect_matches("fwd_f32_n1c3o5_i3_k3_s2147483647_t2147483647_p1", "unfold_gemm");
  expect_matches("fwd_f32_n1c3o5_i3_k4_s1073741824_d3_t2147483647_p1073741824:7", "unfold_gemm");
}

// Any limit that holds one row gives the same bits, and the workspace stays within it.
TEST(Dense, UnfoldIsTheSameForAnyWorkspaceLimit) {
  CpuPlanner planner = make_planner();
  for (const char* text :
       {"fwd_f32_n2c5o40_i60_k9_p4", "fwd_f32_n1c6o8g2_i9x13_k3x3_p1x1_t2x2", "fwd_f16_n1c9o33_i7x8_k5x5_p2x2",
        "fwd_f64_n1c3o4_i4x5x6_k2x3x3_p1x1x1", "fwd_f32_n1c40o40_i5x9_k7x7_p3x3"}) {
    const ConvProblem p = parse_problem(text);
    const auto arrays = tools::make_arrays(p, Data::random);
    const auto whole = tools::run_cpu(p, arrays, planner, "unfold_gemm");
    int limits = 0;
    for (std::size_t limit = 4 << 20; limit > 64; limit = limit * 2 / 3) {
      try {
        EXPECT_LE(planner.plan({p, "unfold_gemm", limit})->workspace_bytes(), limit);
      } catch (const ProblemError& e) {
        EXPECT_NE(std::string(e.what()).find(std::to_string(limit)), std::string::npos);
        break;
      }
      EXPECT_EQ(whole, tools::run_cpu(p, arrays, planner, "unfold_gemm", limit)) << text << " in " << limit;
      ++limits;
    }
    EXPECT_GE(limits, 8) << text;
  }
}

TEST(Dense, ThreadsAndPreparationDoNotChangeBits) {
  for (const char* text :
       {"fwd_f32_n2c16o80_i31x30_k3x3_p1x1", "fwd_f16_n1c32o32_i500_k5_p2", "fwd_f32_n1c64o64g16_i30x31_k3x3_p1x1",
        "fwd_f32_n1c64o64g4_i30x31_k3x3_p1x1", "fwd_f32_n1c64o64g16_i30x31_k5x5_s2x2_p2x2",
        "fwd_f32_n1c64o3_i100x90_k3x3_p1x1", "fwd_f32_n2c3o64_i90x90_k7x7_s2x2_p3x3"})
    for (const char* algorithm : {"implicit_gemm", "unfold_gemm"}) tools::expect_same_bits(text, algorithm);
}

// Rows of reversed, widely spaced and repeated pixels; mirrored and transposed weights.
TEST(Dense, StridedViews) {
  for (const char* text :
       {"fwd_f32_n2c5o37_i6x20_k3x3_p1x1_bias_add", "fwd_f16_n2c16o20_i6x20_k3x3_p1x1_s1x2",
        "fwd_f32_n1c16o16g4_i6x20_k3x3_p1x1", "fwd_f32_n1c1o1_i20x20_k5x5_p2x2", "fwd_f32_n1c64o2_i6x9_k3x3"}) {
    const ConvProblem p = parse_problem(text);
    CpuPlanner planner = make_planner();
    const auto arrays = tools::make_arrays(p, Data::small_integers);
    const auto run = [&](const std::string& algorithm) {
      tools::HostOperands host(p, arrays);
      auto& x = host.operands.input;
      x = x.sliced(2, p.input[1] - 1, -1, p.dtype);  // rows bottom up
      x.stride[3] = 0;                               // every pixel of a row the same
      auto& y = host.operands.output;
      y = y.sliced(3, p.output[2] - 1, -1, p.output_dtype);
      host.operands.weight = host.operands.weight.mirrored(p.kernel, p.dtype);
      if (p.groups == 1 && p.in_channels == p.out_channels) host.operands.weight = host.operands.weight.transposed();
      return tools::run_cpu(p, host, planner, algorithm);
    };
    const auto expected = run("reference");
    EXPECT_EQ(expected, run("implicit_gemm")) << text;
    EXPECT_EQ(expected, run("unfold_gemm")) << text;
  }
}

// Pixels of a pointwise problem as one row, where the input's are evenly apart; the outputs may lie otherwise.
TEST(Dense, PointwiseViews) {
  for (const char* text :
       {"fwd_f32_n2c40o37_i3x5x7_k1x1x1_bias_add_relu", "fwd_f32_n3c70o64_i5x7_k1x1", "fwd_f32_n2c8o64_i3x40_k1x1",
        "fwd_f16_n2c40o64_i5x7_k1x1", "fwd_bf16_n3c40o64_i5x7_k1x1", "fwd_f64_n2c9o20_i5x17_k1x1"}) {
    const ConvProblem p = parse_problem(text);
    CpuPlanner planner = make_planner();
    const auto arrays = tools::make_arrays(p, Data::small_integers);
    for (const bool even_input : {true, false})
      for (const bool even_output : {true, false}) {
        const auto run = [&](const std::string& algorithm) {
          tools::HostOperands host(p, arrays);
          auto &x = host.operands.input, &y = host.operands.output;
          if (!even_input) x = x.sliced(2, p.input[1] - 1, -1, p.dtype);
          if (!even_output) y = y.sliced(2, p.output[1] - 1, -1, p.output_dtype);
          return tools::run_cpu(p, host, planner, algorithm);
        };
        EXPECT_EQ(run("reference"), run("implicit_gemm")) << text << " " << even_input << even_output;
      }
  }
}

void expect_padding_skipped(const char* text, const char* algorithm, CpuPlanner& planner) {
  const ConvProblem p = parse_problem(text);
  auto arrays = tools::make_arrays(p, Data::random);
  for (double& x : arrays.input) x = std::abs(x) + 0.5;
  // The first tap of every output channel meets padding at the low border only.
  const std::int64_t a_channel = p.taps() * p.in_channels_per_group();
  for (std::int64_t o = 0; o < p.out_channels; ++o)
    arrays.weight[static_cast<std::size_t>(o * a_channel)] = std::numeric_limits<double>::infinity();
  const auto expected = tools::run_cpu(p, arrays, planner, "reference");
  for (const std::size_t limit : {kDefaultWorkspaceLimitBytes, std::size_t{24} << 10}) {
    const auto got = tools::run_cpu(p, arrays, planner, algorithm, limit);
    SCOPED_TRACE(std::string(text) + " " + algorithm);
    tools::expect_same_infinities(expected, got);
  }
}

TEST(Dense, PaddingNeverMultipliesInfiniteWeights) {
  CpuPlanner planner = make_planner();
  for (const char* text :
       {"fwd_f32_n1c3o5_i6x7_k3x3_p1x1", "fwd_f32_n1c4o4g2_i9_k5_p4", "fwd_f32_n1c1o1_i9x9_k3x3_p1x1",
        "fwd_f32_n1c40o2_i5_k3_p1", "fwd_f32_n1c8o8g2_i6x6_k3x3_p1x1", "fwd_f32_n1c32o3_i5x20_k3x3_p1x1",
        "fwd_f32_n1c3o40_i9x40_k5x5_p2x2_s2x2", "fwd_f16_n1c8o40_i5x20_k3x3_p1x1", "fwd_f16_n1c32o32g8_i5x20_k3x3_p1x1",
        "fwd_f32_n1c32o32g8_i7x40_k3x3_s2x2_p1x1", "fwd_bf16_n1c3o40_i5x20_k3x3_p1x1"})
    for (const char* algorithm : {"implicit_gemm", "unfold_gemm"}) expect_padding_skipped(text, algorithm, planner);
  if (!tools::tiles_can_run()) return;
  CpuPlanner tiles = tools::make_tile_planner();
  for (const char* text : {"fwd_bf16_n1c3o40_i5x20_k3x3_p1x1_relu", "fwd_bf16>f32_n1c3o20_i5x20_k3x3_p1x1",
                           "fwd_bf16_n1c24o20_i5x20_k1x3_p0x1", "fwd_bf16_n1c32o32_i2x6_k1x3_p0x1_bias"})
    expect_padding_skipped(text, "implicit_gemm", tiles);
}

// All halves times four weights: every result, rounded, subnormal or infinite, is the reference's.
TEST(Dense, HalvesConvertAlikeOnEveryInstructionSet) {
  const ConvProblem p = parse_problem("fwd_f16_n1c1o4_i63488_k1");
  CpuPlanner planner = make_planner();
  auto arrays = tools::make_arrays(p, Data::random);
  std::size_t count = 0;
  for (int sign : {1, -1})
    for (int exponent = 0; exponent < 31; ++exponent)
      for (int mantissa = 0; mantissa < 1024; ++mantissa)
        arrays.input[count++] = exponent ? std::ldexp(sign * (1024.0 + mantissa), exponent - 25)
                                         : std::ldexp(sign * static_cast<double>(mantissa), -24);
  ASSERT_EQ(count, arrays.input.size());
  arrays.input[0] = std::numeric_limits<double>::infinity();
  arrays.input[1] = std::numeric_limits<double>::quiet_NaN();
  arrays.weight = {1.0, 0.333251953125, std::ldexp(1.0, -12), 7.0};
  const auto expected = tools::run_cpu(p, arrays, planner, "reference");
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const tools::OnlyTarget only(target);
    CpuPlanner own = make_planner();
    const auto got = tools::run_cpu(p, arrays, own, "implicit_gemm");
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_TRUE(got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i])))
          << hwy::TargetName(target) << " " << i << " " << got[i] << " " << expected[i];
  }
}

// Long sums of positive terms stay within a few roundings.
TEST(Dense, LongReductions) {
  for (const char* text : {"fwd_f32_n1c1024o8_i5x5_k3x3_p1x1", "fwd_f32_n1c1o2_i5000_k4096", "fwd_f32_n1c3000o1_i9_k1",
                           "fwd_bf16>f32_n1c1024o40_i5x5_k3x3_p1x1", "fwd_bf16>f32_n1c250o40_i40_k1"})
    for (const char* algorithm : {"implicit_gemm", "unfold_gemm"}) tools::expect_accurate(text, algorithm);
}

// The dot product and widened operands round the same share of outputs correctly.
TEST(Dense, Bf16RoundsCorrectly) {
  for (const char* text : {"fwd_bf16_n1c64o64_i14x14_k3x3_p1x1", "fwd_bf16_n1c64o64_i14x14_k3x3_p1x1_highest"})
    tools::expect_accurate(text, "implicit_gemm");
}

}  // namespace
}  // namespace vkconv
