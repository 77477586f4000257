#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "algorithms/winograd/winograd_blocking.h"
#include "algorithms/winograd/winograd_execution.h"
#include "algorithms/winograd/winograd_points.h"
#include "cpu_test.h"
#include "targets.h"

namespace vkconv {
namespace {
using namespace cpu::winograd;
using tools::CpuPlanner;

CpuPlanner& planner() {
  static CpuPlanner p(registry<cpu::Device>(), cpu::host_traits());
  return p;
}

// ---- matrices

template <int kOutputs, int kTaps>
void expect_identity() {
  using P = Points<kOutputs, kTaps>;
  for (int i = 0; i < P::outputs; ++i)
    for (int k = 0; k < P::taps; ++k)
      for (int x = 0; x < P::count; ++x) {
        double sum = 0;
        for (int row = 0; row < P::count; ++row) sum += P::output[row][i] * P::weight[row][k] * P::input[row][x];
        EXPECT_NEAR(sum, x == i + k ? 1 : 0, 1e-13) << kOutputs << " " << kTaps << " " << i << " " << k << " " << x;
      }
}

TEST(WinogradPoints, MatricesComputeTheCorrelation) {
  expect_identity<1, 1>();
  expect_identity<2, 2>();
  expect_identity<4, 2>();
  expect_identity<2, 3>();
  expect_identity<3, 3>();
  expect_identity<4, 3>();
  expect_identity<5, 3>();
  expect_identity<4, 4>();
  expect_identity<6, 3>();
  expect_identity<3, 4>();
  expect_identity<4, 5>();
}

// ---- one geometry with one blocking

Blocking blocking(const Geometry& g, WeightSource source, std::int64_t tiles, std::int64_t step, std::int64_t unit,
                  std::int64_t output_splits = 1, std::int64_t blocks_per_step = 1) {
  Blocking b;
  b.source = source;
  if (source != WeightSource::fused || g.shape.deep()) b.blocks_per_step = blocks_per_step;
  b.output_splits = output_splits;
  b.threads = cpu::num_threads();
  b.tiles = std::min(tiles, g.positions);
  b.depths_per_step = std::min(step, g.depths);
  b.depths_per_unit = std::min(unit, g.depths);
  lay_out(b, g, cpu::register_tile(DType::f32));
  return b;
}

std::vector<double> run(const Geometry& g, const Blocking& b, const ConvProblem& p, const tools::Arrays& arrays) {
  tools::HostOperands host(p, arrays);
  Operands<cpu::Device> a = g.orientation.apply(host.operands);
  PreparedWeights<cpu::Device> prepared;
  if (b.source == WeightSource::prepared) {
    prepared.memory = cpu::Buffer(static_cast<std::size_t>(panel_layout(g, b.columns).floats()) * sizeof(float));
    prepared.data = prepared.memory.pointer();
    Execution(g, b, a).transform_weights(reinterpret_cast<float*>(prepared.data));
    a.prepared = &prepared;
  }
  const cpu::Buffer output(host.output.size());  // aligned, which stores past the caches need
  std::memset(output.pointer(), 0xff, host.output.size());
  a.output.data = output.pointer();
  const cpu::Buffer workspace(b.workspace_bytes);
  Execution(g, b, a).run(workspace.pointer());
  return tools::decode(output.pointer(), p.output_elements(), p.output_dtype);
}

double error_bound(const TileShape& s) {
  if (s.error == TileError::large) return 600;
  return std::max(s.points_h(), s.points_w()) <= 4 ? 16 : 64;
}

void expect_accurate(const ConvProblem& p, const tools::Arrays& arrays) {
  const auto exact = tools::run_exact(p, arrays, planner()), magnitude = tools::run_magnitudes(p, arrays, planner());
  const auto all = geometries(p);
  ASSERT_FALSE(all.empty()) << to_string(p);
  for (const Geometry& g : all) {
    const auto got = run(g, blocking(g, WeightSource::own, 14, 2, 3), p, arrays);
    const auto a = tools::accuracy(p, got, exact, magnitude);
    EXPECT_TRUE(a.finite) << to_string(p) << " " << g.name();
    EXPECT_LE(a.c, p.output_dtype == DType::f32 ? error_bound(g.shape) : 0.51) << to_string(p) << " " << g.name();
  }
}

const char* const kProblems[] = {
    "fwd_f32_n1c16o32_i12x12_k3x3_p1x1",
    "fwd_f32_n1c2o1_i5x4_k3x3",
    "fwd_f32_n2c19o37_i13x9_k3x3_p1x1_bias",
    "fwd_f32_n1c33o5_i3x3_k3x3_p2x2",
    "fwd_f32_n1c16o8_i7x9_k3x3_p5x0",  // outputs that read padding only
    "fwd_f32_n2c48o40g2_i13x9_k3x3_p2:0x-1:1_relu",
    "fwd_f32_n1c16o12g4_i9x9_k3x3_p1x1_bias_add_leaky_relu0.1",
    "fwd_f32_n2c48o48g3_i14x13_k3x3_p1x1_bias_relu",  // a whole vector of outputs
    "fwd_bf16_n1c24o32g2_i11x12_k3x3_p1x1_relu",
    "fwd_f32_n1c5o7_i4x6x7_k1x3x3_p1x1x1",  // folded axis, with padding
    "fwd_f32_n2c20o9_i5x6x7_k1x3x3_s2x1x1_p0x1x1",
    "fwd_f32_n2c24o40g2_i6x13x9_k3x3x3_p1x1x0_bias",
    "fwd_f32_n1c30o10_i9x7x6_k3x3x3_s2x1x1_d2x1x1_p3x-1x1",
    "fwd_f32_n1c270o10_i5x7x6_k2x3x3_p2x1x1_add_gelu",  // a depth output that reads padding only
    "fwd_f32_n1c6o10_i7x8x6_k3x3x3_s1x1x2_p1x1x1",      // the summed axis is W
    "fwd_f32_n2c20o40g2_i6x5x9_k3x3x3_p1x1x1_bias_add_relu",
    "fwd_f32_n1c18o9_i7x9x10_k3x3x3_s1x2x2_p5x1x1",  // deep tiles of several parts, some on padding only
    "fwd_f16_n1c34o40_i5x9x6_k2x3x3_p1x1x1",
    "fwd_f32_n1c70o70_i11x9_k2x2_p1x0",
    "fwd_f32_n1c17o53_i11x9_k4x4_p1x2_bias",
    "fwd_f32_n1c17o40_i11x12_k5x5_p2x2",
    "fwd_f32_n2c20o33_i37_k3_p1",
    "fwd_f32_n2c20o70_i37_k4_p2",
    "fwd_f32_n2c40o34g2_i37_k5_p2_relu",
    "fwd_f32_n2c20o33_i37_k6_p5",
    "fwd_f32_n2c20o50_i37_k7_p3",
    "fwd_f32_n1c20o33_i17x6_k7x1_s1x2_p3x1",        // W strided and padded, H tiled
    "fwd_f32_n1c20o70_i17x16_k3x5_s2x1_p1x2",       // rows summed with stride 2
    "fwd_f32_n1c17o70_i13x15_k3x3_s2x2_p1x1_bias",  // parts: phases of a stride
    "fwd_f32_n2c3o40_i17x16_k7x7_s2x2_p3x3",        // few channels, staged together
    "fwd_f32_n1c5o53_i19x14_k7x5_s3x1_p3:1x2",      // and runs of taps
    "fwd_f32_n2c36o40g2_i31_k3_s2_p1_relu",
    "fwd_f32_n1c70o65_i40_k11_p5",
    "fwd_f32_n1c130o33_i9x13x12_k3x5x4_s2x2x2_p1x2x0",
    "fwd_bf16_n1c6o20_i13x15_k4x4_s2x2_p1x1_add",
    "fwd_f16_n2c33o40_i13x9_k3x3_p1x1_bias",
    "fwd_bf16_n1c20o70_i4x13x9_k2x3x3_p1x1x1_relu",
    "fwd_bf16>f32_n1c20o37_i13x9_k3x3_p1x1_add",
};

TEST(Winograd, EveryTileShapeIsAccurate) {
  for (const char* text : kProblems) {
    const ConvProblem p = parse_problem(text);
    expect_accurate(p, tools::make_arrays(p, tools::Data::random));
  }
}

TEST(Winograd, AllPositiveDataStaysWithinTheBound) {
  for (const char* text : {"fwd_f32_n1c700o70_i9x9_k3x3_p1x1", "fwd_f32_n1c128o33_i9x9_k3x3_p1x1",
                           "fwd_f32_n1c200o70_i6x9x9_k5x3x3_p1x1x1"}) {
    const ConvProblem p = parse_problem(text);
    expect_accurate(p, tools::magnitudes(tools::make_arrays(p, tools::Data::random)));
  }
  const ConvProblem p = parse_problem("fwd_f32_n1c256o64_i28x28_k3x3_p2x2");  // corners sum one tap of nine
  const auto arrays = tools::magnitudes(tools::make_arrays(p, tools::Data::random));
  EXPECT_LE(tools::accuracy(p, arrays, tools::run_cpu(p, arrays, planner(), "winograd"), planner()).c, 64);
}

TEST(Winograd, F2IsExactOnSmallIntegers) {
  const ConvProblem p = parse_problem("fwd_f32_n2c37o41_i3x8x7_k2x3x3_p1x1x1_bias_add");
  const tools::Arrays arrays = tools::make_arrays(p, tools::Data::small_integers);
  const auto exact = tools::run_exact(p, arrays, planner());
  int checked = 0;
  for (const Geometry& g : geometries(p))
    if (g.shape.mh == 2 && g.shape.rh == 3) {
      EXPECT_EQ(run(g, blocking(g, WeightSource::fused, 9, 1, 2), p, arrays), exact);
      ++checked;
    }
  EXPECT_GT(checked, 0);
}

// ---- what is not finite

void expect_same_specials(const ConvProblem& p, const tools::Arrays& arrays) {
  const auto exact = tools::run_exact(p, arrays, planner());
  for (const Geometry& g : geometries(p)) {
    const auto got = run(g, blocking(g, WeightSource::own, 14, 2, 3), p, arrays);
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(std::isnan(got[i]), std::isnan(exact[i])) << to_string(p) << " " << g.name() << " " << i;
      if (std::isinf(exact[i])) {
        ASSERT_EQ(got[i], exact[i]) << to_string(p) << " " << g.name() << " " << i;
      } else if (std::isfinite(exact[i])) {
        ASSERT_NEAR(got[i], exact[i], 1e-2) << to_string(p) << " " << g.name() << " " << i;
      }
    }
  }
}

TEST(Winograd, SpecialValuesStayWithTheOutputsThatReadThem) {
  for (const char* text : {"fwd_f32_n2c19o37_i13x9_k3x3_p1x1_bias", "fwd_f32_n1c20o40g2_i5x9x8_k2x3x3_p1x1x1_add",
                           "fwd_f32_n1c20o33_i17x6_k7x1_s1x2_p3x1", "fwd_f32_n1c5o7_i4x6x7_k1x3x3_p1x1x1",
                           "fwd_f32_n1c19o37_i13x9_k3x3_s2x2_p1x1_bias", "fwd_f32_n1c3o7_i16x13_k7x7_s2x2_p3x3",
                           "fwd_bf16_n1c20o37_i13x9_k3x3_p1x1_relu", "fwd_f32_n2c32o32g2_i13x9_k3x3_p1x1_bias"}) {
    const ConvProblem p = parse_problem(text);
    for (const double value : {NAN, INFINITY, -INFINITY}) {
      tools::Arrays arrays = tools::make_arrays(p, tools::Data::small_integers);
      arrays.input[arrays.input.size() / 2] = value;
      expect_same_specials(p, arrays);
      arrays.input[arrays.input.size() / 2] = 1;
      arrays.weight[arrays.weight.size() / 2] = value;
      expect_same_specials(p, arrays);
    }
  }
}

TEST(Winograd, SumsThatFitDoNotOverflow) {
  const ConvProblem p = parse_problem("fwd_f32_n1c16o40_i9x9_k3x3_p1x1");
  tools::Arrays arrays = tools::make_arrays(p, tools::Data::small_integers);
  for (double& x : arrays.input) x *= 1e38;
  for (double& w : arrays.weight) w *= 1e-38;
  for (auto* v : {&arrays.input, &arrays.weight})
    for (double& x : *v) x = static_cast<float>(x);
  expect_same_specials(p, arrays);
}

// ---- parts

TEST(Winograd, UsedChannelsAreThoseOfPartsThatDoNotVanish) {
  for (const char* text : {"fwd_f32_n1c130o8_i13x15_k3x3_s2x2", "fwd_f32_n1c3o8_i17x16_k7x7_s2x2_p3x3",
                           "fwd_f32_n1c20o8_i6x9x9_k3x3x3_p1x1x1"})
    for (const Geometry& g : geometries(parse_problem(text))) {
      std::int64_t used = 0;
      for (std::int64_t point = 0; point < g.shape.points(); ++point)
        for (const ReductionBlock& r : g.reduction) used += r.taps() * g.used_channels(r, point);
      EXPECT_DOUBLE_EQ(static_cast<double>(used), g.used_share() * static_cast<double>(g.shape.points() * g.terms()))
          << text << " " << g.name();
    }
}

// ---- equal bits

TEST(Winograd, BlockingsAgreeBitForBit) {
  for (const char* text : {"fwd_f32_n2c300o70_i13x9_k3x3_p1x1_bias", "fwd_f32_n1c40o70g2_i7x9x9_k3x3x3_p1x1x1",
                           "fwd_f32_n1c50o70_i15x13_k5x3_s2x1_p2x1", "fwd_f32_n1c30o33_i9x5x6_k3x3x3_p4x1x1"}) {
    const ConvProblem p = parse_problem(text);
    const tools::Arrays arrays = tools::make_arrays(p, tools::Data::random);
    for (const Geometry& g : geometries(p)) {
      const auto expected = run(g, blocking(g, WeightSource::prepared, 14, 1, 100), p, arrays);
      for (const auto source : {WeightSource::prepared, WeightSource::shared, WeightSource::own, WeightSource::fused})
        for (const std::int64_t tiles : {1, 5, 33})
          for (const std::int64_t step : {1, 2, 5})
            for (const std::int64_t splits : {1, 2})
              EXPECT_EQ(run(g, blocking(g, source, tiles, step, 2 * step, splits, tiles % 3 + 1), p, arrays), expected);
    }
  }
}

TEST(Winograd, StoresPastTheCachesHaveTheSameBits) {
  for (const char* text : {"fwd_f32_n2c20o64_i13x9_k3x3_p1x1", "fwd_f32_n2c20o64_i13x9_k3x3_p1x1_bias_relu",
                           "fwd_f32_n1c40o128g2_i5x9x9_k3x3x3_p1x1x1_add", "fwd_f32_n1c20o70_i13x9_k3x3_p1x1",
                           "fwd_f32_n2c32o32g2_i13x9_k3x3_p1x1_bias"}) {
    const ConvProblem p = parse_problem(text);
    const tools::Arrays arrays = tools::make_arrays(p, tools::Data::random);
    for (const Geometry& g : geometries(p)) {
      Blocking b = blocking(g, WeightSource::own, 14, 1, 100);
      const auto expected = run(g, b, p, arrays);
      b.stream = true;
      EXPECT_EQ(run(g, b, p, arrays), expected) << text << " " << g.name();
    }
  }
}

TEST(Winograd, OutputsThatOutgrowTheCachesAreStoredPastThem) {
  const ConvProblem p = parse_problem("fwd_f32_n1c32o64_i64x64_k3x3_p1x1");  // 1 MiB of output
  cpu::Traits fast;
  fast.threads = 1, fast.l2_bytes = 128 << 10, fast.l3_bytes = 2 << 20;
  fast.shared_cache_bytes_per_second = 5 * fast.memory_bytes_per_second;
  cpu::Traits slow = fast;
  slow.shared_cache_bytes_per_second = slow.memory_bytes_per_second;
  cpu::Traits small = fast;
  small.l3_bytes = 512 << 10;
  const auto streams = [&](const cpu::Traits& traits) {
    return choose_blocking(geometries(p).front(), traits, cpu::register_tile(DType::f32), true, std::size_t{1} << 30)
        ->stream;
  };
  EXPECT_FALSE(streams(fast));
  EXPECT_TRUE(streams(slow));
  EXPECT_TRUE(streams(small));
}

TEST(Winograd, ThreadsBatchLimitAndPreparationDoNotChangeBits) {
  const char* text = "fwd_f32_n3c40o50_i5x11x10_k3x3x3_p1x1x1_bias";
  tools::expect_same_bits(text, "winograd", {std::size_t{1} << 20, std::size_t{3} << 20, kDefaultWorkspaceLimitBytes});
  ConvProblem p = parse_problem(text);
  tools::Arrays arrays = tools::make_arrays(p, tools::Data::random);
  auto expected = tools::run_cpu(p, arrays, planner(), "winograd");
  p.batch = 1;
  arrays.input.resize(static_cast<std::size_t>(p.input_elements()));
  const auto got = tools::run_cpu(p, arrays, planner(), "winograd");
  expected.resize(got.size());
  EXPECT_EQ(got, expected);
}

TEST(Winograd, StridedViewsAreReadAndWritten) {
  const ConvProblem p = parse_problem("fwd_f32_n2c20o40_i3x9x8_k2x3x3_p1x1x1_add");
  const tools::Arrays arrays = tools::make_arrays(p, tools::Data::random);
  const auto expected = tools::run_cpu(p, arrays, planner(), "winograd");
  // Every array lies mirrored along every axis in a larger one, with a gap behind each pixel; the addend is the output.
  tools::HostOperands host(p, arrays);
  std::vector<float> wide_input(arrays.input.size() * 2, NAN), wide_output(expected.size() * 2, NAN);
  const auto spread = [](std::vector<float>& wide, const View<std::byte*>& dense, const Extent3& extent,
                         std::int64_t batch, std::int64_t channels) {
    View<std::byte*> v = dense;
    v.data = reinterpret_cast<std::byte*>(wide.data());
    for (int axis = 0; axis < 4; ++axis) v.stride[axis] *= 2;
    for (std::int64_t i = 0; i < batch * extent[0] * extent[1] * extent[2]; ++i)
      std::memcpy(v.data + 8 * i * channels, dense.data + 4 * i * channels, 4 * channels);
    return v;
  };
  const auto mirror = [](View<std::byte*> v, const Extent3& extent) {
    for (int axis = 0; axis < 3; ++axis) v = v.sliced(1 + axis, extent[axis] - 1, -1, DType::f32);
    return v;
  };
  auto& operands = host.operands;
  // A convolution of mirrored arrays with the mirrored kernel and the padding swapped (here symmetric) is mirrored.
  operands.input = mirror(spread(wide_input, operands.input, p.input, p.batch, p.in_channels), p.input);
  operands.output = mirror(spread(wide_output, operands.addend, p.output, p.batch, p.out_channels), p.output);
  operands.addend = operands.output;
  operands.weight = operands.weight.mirrored(p.kernel, p.dtype);
  tools::run_cpu(p, host, planner(), "winograd");
  const std::int64_t channels = p.out_channels;
  double worst = 0;
  for (std::int64_t i = 0; i < p.output_elements(); ++i) {
    const float got = wide_output[static_cast<std::size_t>(i / channels * 2 * channels + i % channels)];
    worst = std::max(worst, std::abs(got - expected[static_cast<std::size_t>(i)]));
  }
  EXPECT_LT(worst, 1e-4);
  for (std::int64_t pixel = 0; pixel < p.output_elements() / channels; ++pixel)
    EXPECT_TRUE(std::isnan(wide_output[static_cast<std::size_t>((2 * pixel + 1) * channels)]));
}

TEST(Winograd, TransposedWeightsAreTheSameWeights) {
  for (const char* text : {"fwd_f32_n1c20o37_i9x8_k3x3_p1x1", "fwd_bf16>f32_n1c20o37_i9x8_k3x3_p1x1"}) {
    const ConvProblem p = parse_problem(text);
    const tools::Arrays arrays = tools::make_arrays(p, tools::Data::random);
    const auto expected = tools::run_cpu(p, arrays, planner(), "winograd");
    for (const bool gap : {false, true}) {  // stride between outputs 1 or 2
      const std::int64_t step = gap ? 2 : 1, o_count = p.out_channels, c_count = p.in_channels;
      tools::Arrays transposed = arrays;
      transposed.weight.assign(arrays.weight.size() * static_cast<std::size_t>(step), 0);
      for (std::int64_t o = 0; o < o_count; ++o)
        for (std::int64_t tap = 0; tap < 9; ++tap)
          for (std::int64_t c = 0; c < c_count; ++c)
            transposed.weight[static_cast<std::size_t>(((c * 9 + tap) * o_count + o) * step)] =
                arrays.weight[static_cast<std::size_t>((o * 9 + tap) * c_count + c)];
      tools::HostOperands host(p, transposed);
      auto& w = host.operands.weight;
      w.out = step;
      w.tap = {0, 3 * o_count * step, o_count * step};
      w.in = 9 * o_count * step;
      EXPECT_EQ(tools::run_cpu(p, host, planner(), "winograd"), expected);
    }
  }
}

// ---- what it says about itself

TEST(Winograd, HonoursTheWorkspaceLimit) {
  const cpu::Traits traits = cpu::host_traits();
  const ConvProblem p = parse_problem("fwd_f32_n1c128o128_i5x56x56_k3x3x3_p1x1x1");
  for (const Geometry& g : geometries(p))
    for (const std::size_t limit : {std::size_t{1} << 21, std::size_t{1} << 23, std::size_t{1} << 26})
      for (const bool prepared : {false, true}) {
        const auto b = choose_blocking(g, traits, cpu::register_tile(DType::f32), prepared, limit);
        ASSERT_TRUE(b.has_value());
        EXPECT_LE(b->total_bytes(), limit);
      }
  const auto explained = planner().explain(p, 1000);
  const auto row = std::find_if(explained.begin(), explained.end(), [](auto& c) { return c.name == "winograd"; });
  EXPECT_NE(row->reason.find("workspace limit"), std::string::npos);
}

TEST(Winograd, RefusesWithAReason) {
  for (const char* text :
       {"fwd_f32_n1c16o16_i9x9_k3x3_s3x3", "fwd_f32_n1c16o16_i9x9_k3x3_d2x2", "fwd_f32_n1c16o16_i9x9_k1x1",
        "fwd_f64_n1c16o16_i9x9_k3x3", "fwd_f32_n1c16o16_i9x9_k3x3_highest", "fwd_f32_n1c16o16_i9x9_k3x3_t2x1",
        "igrad_f32_n1c16o16_i9x9_k3x3", "fwd_f32_n1c8o16_i9x9_k3x3_p2x2"})
    EXPECT_THROW(planner().plan({parse_problem(text), "winograd"}), ProblemError) << text;
  const auto plan = planner().plan({parse_problem("fwd_f32_n1c64o64_i56x56_k3x3_p1x1"), "winograd", 256 << 20});
  EXPECT_EQ(plan->describe(), "winograd_f4");
}

// ---- every instruction set of this processor

TEST(Winograd, EveryInstructionSet) {
  tools::for_each_target([] {
    for (const char* text : {kProblems[2], kProblems[6], kProblems[9], kProblems[16], kProblems[23]}) {
      const ConvProblem p = parse_problem(text);
      expect_accurate(p, tools::make_arrays(p, tools::Data::random));
    }
  });
}

}  // namespace
}  // namespace vkconv
