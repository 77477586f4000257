// The committed rates of a described processor.
#include <gtest/gtest.h>

#include <string>

#include "cpu/processor.h"
#include "cpu_test.h"

namespace vkconv::cpu {
namespace {

const Processor kZen5{"AuthenticAMD", 26}, kZen4{"AuthenticAMD", 25}, kXeon{"GenuineIntel", 6};

// With the dot product where the vectors are as long as its.
Traits rated(const Processor& processor, const std::string& isa, int vector_bytes, int threads = 1) {
  Traits t;
  t.isa = isa;
  t.vector_bytes = vector_bytes;
  t.bf16_dot = vector_bytes == 64;
  t.threads = threads;
  set_rates(t, processor);
  return t;
}

TEST(Rates, VendorsHaveTheirOwn) {
  const Traits amd = rated(kZen5, "AVX3", 64), intel = rated(kXeon, "AVX3", 64);
  EXPECT_NE(amd.f32_flops_per_second, intel.f32_flops_per_second);
  EXPECT_GT(amd.bf16_flops_per_second, amd.f32_flops_per_second);
  EXPECT_LT(intel.bf16_flops_per_second, intel.f32_flops_per_second);
  EXPECT_GT(intel.bf16_tile_flops_per_second, 4 * intel.f32_flops_per_second);
  EXPECT_EQ(amd.bf16_tile_flops_per_second, 0);
}

TEST(Rates, NewerProcessorsOfAVendorHaveTheirOwn) {
  const Traits zen5 = rated(kZen5, "AVX3", 64), zen4 = rated(kZen4, "AVX3", 64);
  EXPECT_GT(zen5.f32_flops_per_second, zen4.f32_flops_per_second);
  EXPECT_GT(zen4.bf16_flops_per_second, zen4.f32_flops_per_second);
  Traits older = rated(kXeon, "AVX3", 64);
  const double newer_rate = older.f32_flops_per_second;
  older.bf16_dot = false;
  set_rates(older, kXeon);
  EXPECT_LT(older.f32_flops_per_second, newer_rate);
  EXPECT_EQ(older.bf16_flops_per_second, 0);
}

// Which decides whether float32 is multiplied in parts.
TEST(Rates, Avx10TellsGraniteRapids) {
  const Traits older = rated(kXeon, "AVX3", 64), newer = rated({"GenuineIntel", 6, true}, "AVX3", 64);
  EXPECT_LT(older.f32_parts_flops_per_second, older.f32_flops_per_second);
  EXPECT_GT(newer.f32_parts_flops_per_second, 1.3 * newer.f32_flops_per_second);
  EXPECT_EQ(rated(kZen5, "AVX3", 64).f32_parts_flops_per_second, 0);
}

TEST(Rates, WiderVectorsAreFaster) {
  for (const Processor& processor : {kZen5, kZen4, kXeon}) {
    EXPECT_GT(rated(processor, "AVX3", 64).f32_flops_per_second, rated(processor, "AVX2", 32).f32_flops_per_second);
    EXPECT_GT(rated(processor, "AVX2", 32).f32_flops_per_second, rated(processor, "SSE4", 16).f32_flops_per_second);
    EXPECT_GT(rated(processor, "AVX3", 64).bf16_flops_per_second, 0);
    EXPECT_EQ(rated(processor, "AVX2", 32).bf16_flops_per_second, 0);
  }
}

// An instruction set that is not listed counts as the vendor's with vectors as long; a vendor that is not listed has
// the first rates.
TEST(Rates, TheNearestServesWhatIsNotListed) {
  for (const Processor& processor : {kZen5, kZen4, kXeon}) {
    for (const char* isa : {"AVX3_DL", "AVX3_ZEN4", "AVX3_SPR"})
      EXPECT_EQ(rated(processor, isa, 64).f32_flops_per_second, rated(processor, "AVX3", 64).f32_flops_per_second);
    EXPECT_EQ(rated(processor, "SSSE3", 16).f32_flops_per_second, rated(processor, "SSE4", 16).f32_flops_per_second);
  }
  const Traits other = rated({}, "AVX2", 32), first = rated(kZen5, "AVX2", 32);
  EXPECT_EQ(other.f64_flops_per_second, first.f64_flops_per_second);
  EXPECT_EQ(other.launch_seconds, first.launch_seconds);
}

// Two threads have twice the rate of one; more than two get in each other's way.
TEST(Rates, AreOfAllThreads) {
  const Traits one = rated(kXeon, "AVX3", 64), two = rated(kXeon, "AVX3", 64, 2), eight = rated(kXeon, "AVX3", 64, 8);
  EXPECT_DOUBLE_EQ(two.f32_flops_per_second, 2 * one.f32_flops_per_second);
  EXPECT_DOUBLE_EQ(eight.cache_bytes_per_second, 8 * one.cache_bytes_per_second);
  for (const auto rate : {&Traits::f32_flops_per_second, &Traits::shared_cache_bytes_per_second,
                          &Traits::shared_cache_read_bytes_per_second, &Traits::memory_bytes_per_second}) {
    EXPECT_GT(eight.*rate, two.*rate);
    EXPECT_LT(eight.*rate, 4 * two.*rate);
  }
  EXPECT_EQ(two.launch_seconds, one.launch_seconds);
  EXPECT_GT(eight.launch_seconds, two.launch_seconds);
}

// As many points as save most products, unless their weights outgrow what a process holds of a large L3: here 51 MB,
// and 177 by four outputs a tile, 79 by two.
TEST(Rates, WinogradReadsWeightsAtTheRateOfWhereTheyLie) {
  Traits t = rated(kXeon, "AVX3", 64, 2);
  t.l2_bytes = 2 << 20, t.l3_bytes = 260 << 20;
  tools::CpuPlanner planner(registry<Device>(), t);
  const auto plan = [&](const char* text) {
    return planner.plan({parse_problem(text), "", std::size_t{256} << 20})->describe();
  };
  EXPECT_EQ(plan("fwd_f32_n1c512o512_i14x14_k3x3_p1x1"), "winograd_f5");
  EXPECT_EQ(plan("fwd_f32_n1c1920o640_i8x16_k3x3_p1x1"), "winograd_f2");
}

}  // namespace
}  // namespace vkconv::cpu
