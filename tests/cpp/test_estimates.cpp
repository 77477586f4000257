// What the estimates of a described machine choose. Each of these was measured on such a machine.
#include <gtest/gtest.h>

#include <string>

#include "cpu/estimates.h"
#include "cpu/processor.h"
#include "cpu_test.h"

namespace vkconv::cpu {
namespace {

// Two cores of an Intel Xeon (Emerald Rapids), or of an AMD EPYC (Zen 5).
Traits described(const char* vendor) {
  const bool intel = std::string(vendor) == "GenuineIntel";
  Traits t;
  t.isa = "AVX3";
  t.vector_bytes = 64;
  t.bf16_dot = true;
  t.threads = 2;
  t.l1_bytes = 48 << 10;
  t.l2_bytes = intel ? 2 << 20 : 1 << 20;
  t.l3_bytes = intel ? 260 << 20 : 32 << 20;
  set_rates(t, {vendor, intel ? 6 : 26});
  return t;
}

std::string chosen(const std::string& text, const Traits& traits) {
  tools::CpuPlanner planner(registry<Device>(), traits);
  const std::string plan = planner.plan({parse_problem(text), ""})->describe();
  return plan.substr(0, plan.find('('));
}
std::string chosen(const std::string& text, const char* vendor = "GenuineIntel") {
  return chosen(text, described(vendor));
}

// The phases' pixels of 96 bytes are 192 and 480 bytes apart. Pixels of 48 bytes waste most of their lines; those of
// 256 waste none, and Winograd's tiles save more of their products.
TEST(Estimates, DilationPhasesPayForLinesFarApart) {
  const auto dilated = [](int channels, int dilation) {
    const std::string c = std::to_string(channels), d = std::to_string(dilation);
    return "fwd_f32_n1c" + c + "o" + c + "_i320x480_k3x3_d" + d + "x" + d + "_p" + d + "x" + d;
  };
  for (const char* vendor : {"GenuineIntel", "AuthenticAMD"}) {
    EXPECT_EQ(chosen(dilated(24, 2), vendor), "dilation_phases");
    EXPECT_EQ(chosen(dilated(24, 5), vendor), "dilation_phases");
    EXPECT_EQ(chosen(dilated(12, 11), vendor), "implicit_gemm");
    EXPECT_EQ(chosen(dilated(64, 11), vendor), "dilation_phases");
  }
}

TEST(Estimates, SiblingsThatCachesHoldPayForTheirBeginningOnly) {
  const Traits t = described("GenuineIntel");
  const ConvProblem small = parse_problem("fwd_f32_n1c24o24_i8x8_k3x3"),
                    large = parse_problem("fwd_f32_n1c24o24_i160x240_k3x3");
  const double begun = 5e-7;
  EXPECT_EQ(Device::scattered_seconds(t, large, 1, 1, 4), begun);
  EXPECT_EQ(Device::scattered_seconds(t, small, 11, 11, 121), begun);
  EXPECT_GT(Device::scattered_seconds(t, large, 2, 2, 4), begun);
  EXPECT_GT(Device::scattered_seconds(t, large, 11, 11, 4), Device::scattered_seconds(t, large, 2, 2, 4));
}

// Winograd saves float32 products; tiles multiply bfloat16 six times as fast.
TEST(Estimates, Bfloat16TakesMatrixTiles) {
  Traits t = described("GenuineIntel");
  for (const bool tiles : {false, true}) {
    t.bf16_tiles = tiles;
    tools::CpuPlanner planner(registry<Device>(), t);
    for (const char* text : {"fwd_bf16_n1c64o64_i56x56_k3x3_p1x1", "fwd_bf16_n1c320o320_i64x64_k3x3_p1x1",
                             "fwd_bf16_n1c3o64_i224x224_k7x7_s2x2_p3x3"}) {
      const std::string plan = planner.plan({parse_problem(text), ""})->describe();
      EXPECT_EQ(plan.starts_with("winograd"), !tiles) << text << " " << plan;
    }
  }
}

// One panel of weights is packed by one thread, while matrix_vector packs none. Of many outputs packing is a small
// part.
TEST(Estimates, AFewPixelsDoNotPayForPacking) {
  for (const char* vendor : {"GenuineIntel", "AuthenticAMD"}) {
    EXPECT_EQ(chosen("fwd_f32_n2c480o20_i1_k1", vendor), "matrix_vector");
    EXPECT_EQ(chosen("fwd_f32_n1c216o54_i1_k1", vendor), "matrix_vector");
    EXPECT_EQ(chosen("fwd_f32_n8c16o16_i1_k1", vendor), "implicit_gemm");
  }
}

// Copied input rows: 32 channels multiply each value 96 times, so that copying is a tenth of the time.
TEST(Estimates, CopiedRowsCount) {
  EXPECT_EQ(chosen("fwd_f32_n4c32o32_i15360_k3_p1"), "winograd_f6_1x3");
  EXPECT_EQ(chosen("fwd_f32_n1c32o64_i56x56_k3x3_s2x2_p1x1"), "winograd_f4_2x2");
}

// A copy with repeated channels stays in L2, or it does not; permutations have nothing to share in sums of one term.
TEST(Estimates, RepeatedChannelsPayForTheirCopy) {
  EXPECT_EQ(chosen("fwd_f32_n8c32o64g32_i112x112_k3x3_p1x1"), "implicit_gemm");
  EXPECT_EQ(chosen("fwd_f32_n1c64o128g64_i28x28_k3x3_p1x1"), "depthwise");
  EXPECT_EQ(chosen("fwd_f32_n1c96o192g96_i28x28_k1x1"), "depthwise");
}

// Pixels of 4,096 bytes, which a core whose L1 has eight lines a set reads one after the other.
TEST(Estimates, CopiesOfCrowdedPixelsCostLittle) {
  Traits t = described("AuthenticAMD");
  t.l1_bytes = 32 << 10;
  for (const char* text : {"fwd_f32_n1c1024o1024g1024_i14x14_k3x3_p1x1", "fwd_f32_n1c1024o1024g1024_i7x7_k7x7_p3x3"})
    EXPECT_EQ(chosen(text, t), "depthwise") << text;
}

// Tiles save little of 2x2 taps, and groups of 12 input channels have 160 outputs to fill vectors.
TEST(Estimates, WeightGradientsFillTheirVectors) {
  EXPECT_EQ(chosen("wgrad_f32_n2c12o320g2_i199x82_k2x2_d2x5_p1x2", "AuthenticAMD"), "weight_grad");
}

// Few groups leave most lanes of a vector of several empty; columns beside channels fill them.
TEST(Estimates, FewChannelsLieBesideColumns) {
  for (const char* vendor : {"GenuineIntel", "AuthenticAMD"})
    for (const char* text : {"fwd_f32_n1c3o3g3_i256x256_k5x5_p2x2", "fwd_f32_n1c2o2g2_i175x336_k3x3_p1x0",
                             "fwd_f32_n1c8o8g8_i317x70_k5x5", "fwd_f32_n1c4o4g4_i217x195_k7x7"})
      EXPECT_EQ(chosen(text, vendor), "depthwise") << text;
}

// One vector of several groups serves them without a copy, which depthwise's repeated channels take.
TEST(Estimates, StridesLeaveLittleOfACopy) {
  EXPECT_EQ(chosen("fwd_f32_n1c96o192g96_i56x56_k3x3_s2x2_p1x1", "AuthenticAMD"), "implicit_gemm");
  EXPECT_EQ(chosen("fwd_f32_n4c64o128g64_i101x213_k7x7_s3x3_p0x12_d4x4", "AuthenticAMD"), "implicit_gemm");
}

// Three slices of 2.2 MB, which every row of outputs reads, leave L2 between two of its rows' readers.
TEST(Estimates, DepthTapsThatLeaveTheCacheAreReadAgain) {
  EXPECT_EQ(chosen("fwd_f32_n1c128o3_i11x66x66_k3x3x3"), "small_kernel_depth");
  EXPECT_EQ(chosen("fwd_f32_n1c128o3_i11x20x20_k3x3x3"), "implicit_gemm");
}

TEST(Estimates, ASingleTaskStartsNoThreads) {
  const Traits t = described("GenuineIntel");
  EXPECT_EQ(section_seconds(t, 1e-7, 0, 1), 1e-7);
  EXPECT_EQ(section_seconds(t, 1e-7, 0, 2), 1e-7 + t.launch_seconds);
  EXPECT_DOUBLE_EQ(uneven_share(t, 1), 2);
  EXPECT_DOUBLE_EQ(uneven_share(t, 3), 4.0 / 3);
  EXPECT_DOUBLE_EQ(uneven_share(t, 4), 1);
}

}  // namespace
}  // namespace vkconv::cpu
