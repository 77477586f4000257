#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "core/half.h"

namespace vkconv {
namespace {

// The value of a 16-bit pattern from the definition of the format, without bit tricks.
double value_of(std::uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1)
    return mantissa ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

template <class T>
struct Format;
template <>
struct Format<Half> {
  static constexpr int exponent_bits = 5, mantissa_bits = 10;
};
template <>
struct Format<BFloat16> {
  static constexpr int exponent_bits = 8, mantissa_bits = 7;
};

template <class T>
struct HalfTest : testing::Test {
  static constexpr int exponent_bits = Format<T>::exponent_bits, mantissa_bits = Format<T>::mantissa_bits;
  static constexpr std::uint16_t infinity = ((1 << exponent_bits) - 1) << mantissa_bits;
  static double exact(std::uint16_t bits) { return value_of(bits, exponent_bits, mantissa_bits); }
};
using Types = testing::Types<Half, BFloat16>;
TYPED_TEST_SUITE(HalfTest, Types);

TYPED_TEST(HalfTest, EveryPatternHasItsValue) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const TypeParam h{static_cast<std::uint16_t>(bits)};
    const double want = this->exact(h.bits), got = to_float(h);
    if (std::isnan(want))
      EXPECT_TRUE(std::isnan(got)) << bits;
    else
      EXPECT_EQ(std::bit_cast<std::uint64_t>(got), std::bit_cast<std::uint64_t>(want)) << bits;
  }
}

TYPED_TEST(HalfTest, EveryValueRoundsToItself) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    const double value = this->exact(pattern);
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(to_float(from_double<TypeParam>(to_float(TypeParam{pattern})))));
    else
      EXPECT_EQ(from_double<TypeParam>(value).bits, pattern);
  }
}

// Between every two neighbours: just below the middle goes down, the middle goes to the even one, just above goes up.
TYPED_TEST(HalfTest, RoundsToNearestEven) {
  for (int bits = 0; bits + 1 < this->infinity; ++bits) {
    const auto low = static_cast<std::uint16_t>(bits), high = static_cast<std::uint16_t>(bits + 1);
    const double middle = (this->exact(low) + this->exact(high)) / 2;
    const auto rounded = [](double v) { return from_double<TypeParam>(v).bits; };
    ASSERT_EQ(rounded(std::nextafter(middle, 0)), low) << bits;
    ASSERT_EQ(rounded(std::nextafter(middle, 1e300)), high) << bits;
    ASSERT_EQ(rounded(middle), bits % 2 ? high : low) << bits;
    ASSERT_EQ(rounded(-middle), (bits % 2 ? high : low) | 0x8000) << bits;
  }
}

TYPED_TEST(HalfTest, OverflowsAndUnderflows) {
  const double largest = this->exact(this->infinity - 1), next = 2 * largest - this->exact(this->infinity - 2);
  const double limit = (largest + next) / 2;  // rounds to even, which is infinity
  EXPECT_EQ(from_double<TypeParam>(std::nextafter(limit, 0)).bits, this->infinity - 1);
  EXPECT_EQ(from_double<TypeParam>(limit).bits, this->infinity);
  EXPECT_EQ(from_double<TypeParam>(-limit).bits, this->infinity | 0x8000);
  EXPECT_EQ(from_double<TypeParam>(1e300).bits, this->infinity);
  EXPECT_EQ(from_double<TypeParam>(std::numeric_limits<double>::infinity()).bits, this->infinity);
  const double smallest = this->exact(1);
  EXPECT_EQ(from_double<TypeParam>(smallest / 2).bits, 0);
  EXPECT_EQ(from_double<TypeParam>(-smallest / 2).bits, 0x8000);
  EXPECT_EQ(from_double<TypeParam>(std::nextafter(smallest / 2, 1)).bits, 1);
  EXPECT_EQ(from_double<TypeParam>(std::numeric_limits<double>::denorm_min()).bits, 0);
  EXPECT_EQ(from_double<TypeParam>(-0.0).bits, 0x8000);
}

}  // namespace
}  // namespace vkconv
