// The register micro-kernel and packing, for every instruction set this machine runs.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "test_gemm.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "core/half.h"
#include "cpu/bf16_dot.h"
#include "cpu/bf16_tiles.h"
#include "cpu/gemm-inl.h"
#include "cpu/gemm_kernels.h"
#include "cpu/pack-inl.h"
#include "small_integers.h"
#include "targets.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::HWY_NAMESPACE {
using tools::small_integers;

// Weights with any strides, tails of channels and terms, and parts of a panel.
template <class T>
void check_packing(bool transposed, std::int64_t count) {
  const Extent3 kernel{2, 1, 3};
  const std::int64_t in = 5, out = 20, first = 1, columns = panel_columns<Accumulator<T>>(), terms = 6 * in;
  const auto data = small_integers<T>(out * terms, 3);
  WeightView<const T*> w{data.data(), 0, terms, 1, {3 * in, 3 * in, in}};
  if (transposed) w = {data.data(), 0, 1, out, {3 * in * out, 3 * in * out, in * out}};
  for (const Range part : {Range{0, terms}, Range{0, 7}, Range{4, 17}}) {
    std::vector<Accumulator<T>> panel(static_cast<std::size_t>(terms * columns), 9);
    pack_terms(w, kernel, in, part, first, count, panel.data(), columns);
    for (std::int64_t k = part.begin; k < part.end; ++k)
      for (std::int64_t o = 0; o < columns; ++o) {
        const std::int64_t tap = k / in,
                           at = (first + o) * w.out + tap / 3 * w.tap[0] + tap % 3 * w.tap[2] + k % in * w.in;
        const Accumulator<T> want = o < count ? widened(w.data + at) : 0;
        ASSERT_EQ(want, panel[static_cast<std::size_t>((k - part.begin) * columns + o)]) << k << " " << o;
      }
    for (std::size_t i = static_cast<std::size_t>(part.size() * columns); i < panel.size(); ++i) ASSERT_EQ(9, panel[i]);
  }
}

void CheckPacking() {
  for (const bool transposed : {false, true})
    for (const std::int64_t count : {1, 7}) {
      const std::int64_t most = std::min<std::int64_t>(count, panel_columns<double>());
      check_packing<float>(transposed, most);
      check_packing<double>(transposed, most);
    }
}

}  // namespace vkconv::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace vkconv::cpu {
HWY_EXPORT(CheckPacking);

namespace {
using tools::small_integers;

// C += A B for `slices` slices whose rows run backwards (negative lda), with guard values around C.
template <class T>
void check_tile(const GemmKernels<T>& kernels, int vectors, std::int64_t rows, std::int64_t kc, std::int64_t slices,
                bool accumulate) {
  SCOPED_TRACE(testing::Message() << vectors << " vectors, " << rows << " rows, kc " << kc << ", " << slices
                                  << " slices, twins of " << kernels.shape.twin_rows);
  const std::int64_t columns = vectors * kernels.shape.lanes, lda = -(kc * slices + 3), ldc = columns + 5;
  const auto a = small_integers<T>(-lda * rows, 1), b = small_integers<T>(kc * slices * columns, 2);
  std::vector<T> c(static_cast<std::size_t>(ldc * rows), T{100}), expected = c;
  std::vector<GemmSlice<T>> list;
  const T* first_row = a.data() - lda * (rows - 1);
  for (std::int64_t s = 0; s < slices; ++s) list.push_back({first_row + s * kc, b.data() + s * kc * columns});
  kernels.tile({{list.data(), slices, kc}, lda, c.data(), ldc}, rows, vectors, accumulate);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t j = 0; j < columns; ++j) {
      T sum = accumulate ? T{100} : T{0};
      for (std::int64_t k = 0; k < kc * slices; ++k)
        sum += first_row[r * lda + k] * b[static_cast<std::size_t>(k * columns + j)];
      expected[static_cast<std::size_t>(r * ldc + j)] = sum;
    }
  EXPECT_EQ(expected, c);
}

// What the last chain rounds are the sums that it would have stored.
void check_rounding(const GemmKernels<float>& kernels, int vectors, std::int64_t rows, std::int64_t kc) {
  const std::int64_t columns = vectors * kernels.shape.lanes, stride = columns + 3;
  auto a = small_integers<float>(rows * kc, 1), b = small_integers<float>(kc * columns, 2);
  for (float& x : a) x /= 7;
  std::vector<float> c(static_cast<std::size_t>(rows * columns)), scratch = c;
  std::vector<hwy::float16_t> rounded(static_cast<std::size_t>(rows * stride)), expected = rounded;
  const GemmSlice<float> slice{a.data(), b.data()};
  GemmTile<float> tile{{&slice, 1, kc}, kc, c.data(), columns};
  kernels.tile(tile, rows, vectors, false);
  for (std::int64_t r = 0; r < rows; ++r)
    std::transform(c.begin() + r * columns, c.begin() + (r + 1) * columns, expected.begin() + r * stride,
                   [](float sum) { return std::bit_cast<hwy::float16_t>(from_double<Half>(sum).bits); });
  tile.c = scratch.data();
  GemmFinish<float> finish;
  finish.rounded = rounded.data();
  finish.rounded_stride = stride;
  tile.finish = &finish;
  kernels.tile(tile, rows, vectors, false);
  EXPECT_EQ(0, std::memcmp(expected.data(), rounded.data(), rounded.size() * sizeof rounded[0])) << rows << " " << kc;
}

// What the last chain finishes are the sums that it would have stored, with addend and bias, within bounds; NaN stays.
template <class T>
void check_finish(const GemmKernels<T>& kernels, int vectors, std::int64_t rows, std::int64_t kc) {
  const std::int64_t columns = vectors * kernels.shape.lanes, stride = columns + 3;
  auto a = small_integers<T>(rows * kc, 1);
  const auto b = small_integers<T>(kc * columns, 2), addend = small_integers<T>(rows * stride, 3),
             bias = small_integers<T>(columns, 4);
  a[0] = std::numeric_limits<T>::quiet_NaN();
  std::vector<T> sums(static_cast<std::size_t>(rows * columns)), finished = sums;
  const GemmSlice<T> slice{a.data(), b.data()};
  GemmTile<T> tile{{&slice, 1, kc}, kc, sums.data(), columns};
  kernels.tile(tile, rows, vectors, false);
  GemmFinish<T> finish{addend.data(), bias.data(), stride, T{-3}, T{2}};
  tile.c = finished.data();
  tile.finish = &finish;
  kernels.tile(tile, rows, vectors, false);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t j = 0; j < columns; ++j) {
      const auto at = static_cast<std::size_t>(r * columns + j);
      const T sum = sums[at] + addend[static_cast<std::size_t>(r * stride + j)] + bias[static_cast<std::size_t>(j)];
      if (r == 0)
        EXPECT_TRUE(std::isnan(finished[at]));
      else
        EXPECT_EQ(std::clamp(sum, T{-3}, T{2}), finished[at]) << rows << " rows, kc " << kc;
    }
}

// The kernels of this processor, with and without chains side by side, whatever is faster here.
template <class T>
std::vector<GemmKernels<T>> all_kernels() {
  GemmKernels<T> one = gemm_kernels<T>(), two = one;
  one.shape.twin_rows = 0;
  two.shape.twin_rows =
      std::count_if(two.twins.begin(), two.twins.end(), [](auto kernel) { return kernel != nullptr; });
  return two.shape.twin_rows > 0 ? std::vector{one, two} : std::vector{one};
}

int most_vectors(const RegisterTile& shape) { return shape.most_rows(3) > 0 ? 3 : 2; }

template <class T>
void check_tiles(const GemmKernels<T>& kernels) {
  const RegisterTile& shape = kernels.shape;
  for (std::int64_t rows = 1; rows <= shape.most_rows(1); ++rows)
    for (const std::int64_t kc : {1, 3, 64, 65, 200})
      for (int vectors = 1; vectors <= most_vectors(shape); ++vectors) {
        check_finish<T>(kernels, vectors, rows, kc);
        for (const bool accumulate : {false, true})
          check_tile<T>(kernels, vectors, rows, kc, vectors == 1 ? 1 : 3, accumulate);
      }
}

TEST(Gemm, EveryRowCountOnEveryTarget) {
  tools::for_each_target([] {
    for (const auto& kernels : all_kernels<float>()) {
      check_tiles<float>(kernels);
      for (std::int64_t rows = 1; rows <= kernels.shape.most_rows(2); ++rows)
        for (const std::int64_t kc : {5, 200})
          for (int vectors = 1; vectors <= most_vectors(kernels.shape); ++vectors)
            check_rounding(kernels, vectors, rows, kc);
    }
    for (const auto& kernels : all_kernels<double>()) check_tiles<double>(kernels);
  });
}

TEST(Gemm, PanelsOfThreeVectorsLeaveNoneAlone) {
  constexpr RegisterTile wide{16, {14, 14, 9, 6}}, narrow{8, {12, 6, 4, 0}}, few{4, {12, 6, 0, 0}};
  constexpr RegisterTile twins{16, {14, 14, 9, 6}, 7};
  for (const std::int64_t all : {1, 2, 4, 5, 7, 8, 11, 16}) EXPECT_EQ(wide.vectors(all), 2) << all;
  for (const std::int64_t all : {3, 6, 9, 12, 24}) EXPECT_EQ(wide.vectors(all), 3) << all;
  for (const std::int64_t all : {3, 9, 15}) EXPECT_EQ(twins.vectors(all), 3) << all;
  for (const std::int64_t all : {6, 12, 24}) EXPECT_EQ(twins.vectors(all), 2) << all;
  for (const std::int64_t all : {3, 5, 7, 11}) EXPECT_TRUE(wide.leaves_one(all)) << all;
  for (const std::int64_t all : {1, 2, 4, 6, 8}) EXPECT_FALSE(wide.leaves_one(all)) << all;
  for (std::int64_t all = 1; all < 9; ++all) {
    EXPECT_EQ(narrow.vectors(all), 3);
    EXPECT_EQ(few.vectors(all), 2);
    EXPECT_FALSE(few.leaves_one(all));
  }
}

// C += A B for rows from the third on and panels whose C lies side by side, finished with a bias, or apart.
template <class T>
void check_panels(const GemmKernels<T>& kernels, int vectors, std::int64_t rows, std::int64_t panels, std::int64_t kc,
                  bool apart) {
  const std::int64_t columns = vectors * kernels.shape.lanes, panel = kc * columns + 7, lda = kc + 2, above = 2;
  const std::int64_t ldc = (apart ? 1 : panels) * columns + 3, step = apart ? (rows + above) * ldc + 5 : columns;
  const auto a = small_integers<T>((rows + above) * lda, 1), b = small_integers<T>(panels * panel, 2),
             bias = small_integers<T>(panels * columns, 3);
  std::vector<T> c = small_integers<T>((apart ? panels : 1) * (rows + above) * ldc + panels * 5, 4), expected = c;
  const GemmSlice<T> slice{a.data() + above * lda, b.data()};
  const GemmFinish<T> finish{nullptr, bias.data()};
  GemmTile<T> tile{{&slice, 1, kc}, lda, c.data() + above * ldc, ldc};
  tile.panels = panels;
  tile.panel_stride = panel;
  if (apart)
    tile.c_panel_stride = step;
  else
    tile.finish = &finish;
  kernels.tile(tile, rows, vectors, true);
  for (std::int64_t r = above; r < rows + above; ++r)
    for (std::int64_t j = 0; j < panels * columns; ++j) {
      T& sum = expected[static_cast<std::size_t>(r * ldc + j / columns * step + j % columns)];
      for (std::int64_t k = 0; k < kc; ++k)
        sum += a[static_cast<std::size_t>(r * lda + k)] *
               b[static_cast<std::size_t>(j / columns * panel + k * columns + j % columns)];
      if (!apart) sum += bias[static_cast<std::size_t>(j)];
    }
  EXPECT_EQ(expected, c) << rows << " rows, " << panels << " panels, kc " << kc << (apart ? ", apart" : "");
}

template <class T>
void check_all_panels() {
  for (const auto& kernels : all_kernels<T>())
    for (const std::int64_t panels : {1, 2, 3, 4})
      for (const std::int64_t rows : {1, 5, 6, 7, 8, 9, 10, 13, 14, 15, 31})
        for (const std::int64_t kc : {1, 3, 70, 130})
          for (const bool apart : {false, true})
            for (int vectors = 2; vectors <= most_vectors(kernels.shape); ++vectors)
              check_panels<T>(kernels, vectors, rows, panels, kc, apart);
}

TEST(Gemm, PanelsTogetherOnEveryTarget) {
  tools::for_each_target([] {
    check_all_panels<float>();
    check_all_panels<double>();
  });
}

TEST(Gemm, PackingOnEveryTarget) {
  tools::for_each_target([] { HWY_DYNAMIC_DISPATCH(CheckPacking)(); });
}

TEST(Gemm, BlocksGrowWithTheSum) {
  EXPECT_EQ(64, block_terms(1));
  EXPECT_EQ(64, block_terms(4096));
  EXPECT_EQ(128, block_terms(4097));
  EXPECT_EQ(4096, block_terms(1 << 18));
}

// Small integers are exact in bf16, so every sum is.
void check_pairs(const GemmKernels<hwy::bfloat16_t, float>& kernels) {
  const auto bf16 = [](int v) {
    const float f = static_cast<float>(v);
    std::uint32_t bits;
    std::memcpy(&bits, &f, 4);
    hwy::bfloat16_t x;
    const auto upper = static_cast<std::uint16_t>(bits >> 16);
    std::memcpy(&x, &upper, 2);
    return x;
  };
  std::mt19937 random(1);
  const auto digit = [&] { return static_cast<int>(random() % 7) - 3; };
  const std::int64_t lanes = kernels.shape.lanes;
  for (std::int64_t rows = 1; rows <= 2 * kernels.shape.most_rows(2) + 3; ++rows)
    for (const auto& [vectors, panels] : {std::pair{1, 1}, {2, 1}, {2, 2}, {2, 3}})
      for (const std::int64_t kc : {kernels.granule, 2 * kernels.granule, 64 + 96 * kernels.granule}) {
        const std::int64_t width = vectors * lanes, columns = panels * width;
        std::vector<int> a(static_cast<std::size_t>(rows * kc)), b(static_cast<std::size_t>(kc * columns));
        std::vector<hwy::bfloat16_t> pa, pb(b.size());
        for (int& v : a) pa.push_back(bf16(v = digit()));
        for (std::int64_t i = 0; i < kc * columns; ++i) {
          const std::int64_t k = i / columns, panel = i % columns / width, o = i % width;
          const std::int64_t at = panel * kc * width + (k / 2 * width + o) * 2 + k % 2;
          pb[static_cast<std::size_t>(at)] = bf16(b[static_cast<std::size_t>(i)] = digit());
        }
        std::vector<float> c(static_cast<std::size_t>(rows * columns), 5);
        const GemmSlice<hwy::bfloat16_t> slice{pa.data(), pb.data()};
        GemmTile<hwy::bfloat16_t, float> tile{{&slice, 1, kc}, kc, c.data(), columns};
        tile.panels = panels;
        tile.panel_stride = kc * width;
        kernels.tile(tile, rows, vectors, true);
        for (std::int64_t i = 0; i < rows * columns; ++i) {
          int sum = 5;
          for (std::int64_t k = 0; k < kc; ++k)
            sum += a[static_cast<std::size_t>(i / columns * kc + k)] *
                   b[static_cast<std::size_t>(k * columns + i % columns)];
          ASSERT_EQ(static_cast<float>(sum), c[static_cast<std::size_t>(i)])
              << rows << " rows, " << panels << " panels, kc " << kc;
        }
      }
}

TEST(Gemm, Bf16DotProduct) {
  if (!bf16_dot_available()) GTEST_SKIP() << "this CPU has no vdpbf16ps";
  check_pairs(bf16_dot_kernels());
}

TEST(Gemm, Bf16Tiles) {
  if (!bf16_dot_available()) GTEST_SKIP() << "this CPU has no vdpbf16ps";
  check_pairs(bf16_tile_kernels());  // emulated ones where it has none
}

}  // namespace
}  // namespace vkconv::cpu
#endif
