// How `direct` cuts problems into workgroups: a pure function of described devices, no hardware needed.
#if VKCONV_VULKAN
#include <gtest/gtest.h>

#include "algorithms/direct/direct_tile.h"
#include "algorithms/registry_vulkan.h"
#include "core/planner.h"

namespace vkconv::vulkan {
namespace {

Traits gpu(std::size_t shared_bytes) {
  Traits t;
  t.type = DeviceType::discrete;
  t.limits.shared_memory_bytes = shared_bytes;
  return t;
}

TEST(DirectTile, FitsTheDevice) {
  for (const char* text : {"fwd_f32_n32c64o64_i56x56_k3x3_p1x1", "fwd_f32_n1c3o64_i224x224_k7x7_s2x2_p3x3",
                           "fwd_f64_n1c256o256_i14x14_k3x3_p1x1", "fwd_f16_n1c256o256_i8192_k11_p5",
                           "fwd_bf16_n1c64o64_i9x30x40_k3x3x3_d2x2x2_p2x2x2", "fwd_f32_n1c5o1_i7x7_k1x1_s3x3"})
    for (const std::size_t shared : {std::size_t{16} << 10, std::size_t{48} << 10}) {
      const ConvProblem p = parse_problem(text);
      const auto t = choose_direct_tile(p, gpu(shared));
      ASSERT_TRUE(t) << text;
      EXPECT_LE(t->shared_bytes(p.dtype), shared) << text;
      EXPECT_LE(t->input_pixels, kMaxTilePixels) << text;
      EXPECT_LE(t->outputs[0] * t->outputs[1] * t->outputs[2] * t->outputs[3], t->rows()) << text;
      EXPECT_EQ(t->group_size, t->rows() / t->reg_m * (t->n / t->reg_n)) << text;
      EXPECT_GE(std::int64_t{t->n}, std::min<std::int64_t>(p.out_channels, 4)) << text;
    }
}

// A tile of 16 x 8 would leave an eighth of itself empty on 56 rows or columns, and more on small images.
TEST(DirectTile, WastesFewOutputs) {
  for (const char* text : {"fwd_f32_n32c64o64_i56x56_k3x3_p1x1", "fwd_f32_n32c128o128_i28x28_k3x3_p1x1",
                           "fwd_f32_n32c256o256_i14x14_k3x3_p1x1", "fwd_f32_n32c512o512_i7x7_k3x3_p1x1"}) {
    const ConvProblem p = parse_problem(text);
    const auto t = choose_direct_tile(p, gpu(48 << 10));
    ASSERT_TRUE(t);
    const double computed = double(tile_count(p, t->outputs)) * t->rows();
    EXPECT_GE(double(p.batch * p.output_pixels()) / computed, 0.85) << text;
  }
}

TEST(DirectTile, RefusesInputsBeyondSharedMemory) {
  EXPECT_FALSE(choose_direct_tile(parse_problem("fwd_f32_n1c4o4_i4000_k3_d1000"), gpu(48 << 10)));
  EXPECT_TRUE(choose_direct_tile(parse_problem("fwd_f32_n1c4o4_i4000_k3_d100"), gpu(48 << 10)));
}

TEST(InputTile, SkipsWhatStrideAndDilationSkip) {
  const ConvProblem p = parse_problem("fwd_f32_n1c4o4_i40x40_k3x1_s2x4_d4x1");
  const TileParams t = tile_params(p, {1, 1, 5, 6});
  EXPECT_EQ(t.step, (std::array<std::int32_t, 3>{1, 2, 4}));
  EXPECT_EQ(t.inputs, (Tile4{1, 1, 4 + 2 * 2 + 1, 6}));
  EXPECT_EQ(std::int64_t{t.input_count}, input_reach(p, 1).of(5) * input_reach(p, 2).of(6));
}

std::string chosen(const Traits& traits, const char* text) {
  Planner<Device> planner(registry<Device>(), traits);
  return planner.plan({parse_problem(text), {}})->describe();
}

TEST(DirectTile, IsChosenOnGpus) {
  EXPECT_EQ(chosen(gpu(48 << 10), "fwd_f32_n32c64o64_i56x56_k3x3_s2x2_p1x1"), "direct");
  EXPECT_EQ(chosen(gpu(48 << 10), "fwd_f32_n32c64o64_i56x56_k3x3_p1x1_highest"), "direct");
  EXPECT_EQ(chosen(gpu(48 << 10), "fwd_f16_n8c256o64_i56x57_k1x1"), "direct");
  EXPECT_EQ(chosen(gpu(48 << 10), "fwd_f32_n1c96o96g96_i56x56_k3x3_p1x1"), "depthwise");
  Traits software = gpu(32 << 10);
  software.type = DeviceType::software;
  EXPECT_EQ(chosen(software, "fwd_f32_n1c64o64_i56x56_k3x3_p1x1"), "implicit_gemm");
  EXPECT_EQ(chosen(software, "fwd_f32_n8c96o96g96_i56x56_k3x3_p1x1"), "depthwise");
}

}  // namespace
}  // namespace vkconv::vulkan
#endif
