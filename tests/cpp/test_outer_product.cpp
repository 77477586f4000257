// Products of columns: every register tile of every instruction set this machine runs.
#include <gtest/gtest.h>

#include <vector>

#include "cpu/outer_product.h"
#include "small_integers.h"
#include "targets.h"

namespace vkconv::cpu {
namespace {

using tools::small_integers;

// Two slices of terms that lie `rows` + 2 and `vectors` vectors + 3 apart; the last vector overlaps its neighbour, and
// sums have guard values around them.
template <class T>
void check(std::int64_t rows, std::int64_t vectors, bool along_rows, bool adds) {
  SCOPED_TRACE(testing::Message() << rows << " rows, " << vectors << " vectors");
  constexpr std::int64_t kTerms = 9, kOverlap = 1;
  const OuterKernels<T>& kernels = outer_kernels<T>();
  const std::int64_t lanes = kernels.shape.lanes, width = vectors * lanes, last = vectors - 1;
  const std::int64_t row_step = rows + 2, vector_step = width + 3, ldc = width + 5;
  const auto a = small_integers<T>(2 * kTerms * row_step, 1), b = small_integers<T>(2 * kTerms * vector_step, 2);
  std::vector<T> c(static_cast<std::size_t>(ldc * rows), T{100}), expected = c;
  const std::vector<OuterSlice<T>> slices{{a.data(), b.data()},
                                          {a.data() + kTerms * row_step, b.data() + kTerms * vector_step}};
  const auto offset = [&](std::int64_t v) { return v * lanes - (v > 0 && v == last ? kOverlap : 0); };
  OuterTile<T> tile{};
  tile.slices = slices.data();
  tile.slice_count = 2;
  tile.count = kTerms;
  tile.row_step = row_step, tile.vector_step = vector_step;
  tile.row = 1;
  tile.c = c.data();
  tile.ldc = ldc;
  tile.adds = adds;
  kernels.multiply(tile, rows, {0, vectors}, along_rows, offset, [&](std::int64_t v) { return v * lanes; });
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t j = 0; j < width; ++j) {
      T sum = adds ? T{100} : T{0};
      for (std::int64_t k = 0; k < 2 * kTerms; ++k)
        sum += a[static_cast<std::size_t>(k * row_step + r + 1)] *
               b[static_cast<std::size_t>(k * vector_step + offset(j / lanes) + j % lanes)];
      expected[static_cast<std::size_t>(r * ldc + j)] = sum;
    }
  EXPECT_EQ(expected, c);
}

TEST(OuterProduct, EveryTileOfEveryTarget) {
  tools::for_each_target([] {
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 14, 15, 29})
      for (std::int64_t vectors = 1; vectors <= 9; ++vectors)
        for (const bool flag : {false, true}) {
          check<float>(rows, vectors, flag, !flag);
          check<double>(rows, vectors, !flag, !flag);
        }
  });
}

}  // namespace
}  // namespace vkconv::cpu
