// The definition that vkconv_bench checks samples by, against the reference algorithm.
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "definition.h"
#include "harness.h"

namespace vkconv {
namespace {

double number(std::int64_t element) { return static_cast<double>(element * 7919 % 31 - 15); }

std::vector<double> numbers(std::int64_t count) {
  std::vector<double> v;
  for (std::int64_t i = 0; i < count; ++i) v.push_back(number(i));
  return v;
}

TEST(Definition, AgreesWithTheReference) {
  Planner<cpu::Device> planner(registry<cpu::Device>(), cpu::host_traits());
  for (const char* text : {"fwd_f64_n2c6o4g2_i5x4x6_k2x3x2_s2x1x1_p1x1x0",
                           "fwd_f64_n1c4o3_i7x6_k3x2_d2x1_p2:1x0:1_flip", "fwd_f64_n1c2o3_i5x4_k3x3_t2x3_p1x2_flip",
                           "igrad_f64_n2c6o4g2_i7x6_k3x2_s2x1_p1x0", "igrad_f64_n1c3o5_i6x5_k2x3_d2x1_p0x1_flip",
                           "wgrad_f64_n2c6o4g2_i7x6_k3x2_s2x1_p1x0", "wgrad_f64_n1c3o2_i5x4_k3x3_t2x2_p1x1_flip"}) {
    const ConvProblem p = parse_problem(text);
    tools::Arrays arrays{
        numbers(p.input_elements()), numbers(p.weight_elements()), numbers(p.output_elements()), {}, {}};
    const std::vector<double> want = tools::run_cpu(p, arrays, planner, "reference");
    const std::vector<double> magnitude = tools::run_magnitudes(p, arrays, planner);
    const tools::Definition definition(p, number);
    for (std::size_t i = 0; i < want.size(); ++i) {
      const tools::Sum sum = definition(static_cast<std::int64_t>(i));
      EXPECT_EQ(sum.value, want[i]) << text << " at " << i;
      EXPECT_EQ(sum.magnitude, magnitude[i]) << text << " at " << i;
    }
  }
}

}  // namespace
}  // namespace vkconv
