// Numbers as sums of bf16, for processors that multiply bf16 many times as fast as fp32. A float of 24 bits is three
// parts of 8, each the rounded rest of those before it, and a float16 of 11 bits two: x = x0 + x1 + x2, |x1| <= 2^-8
// |x|, |x2| <= 2^-17 |x|. Products of parts are exact in fp32. Of two floats' nine, x1 w2, x2 w1 and x2 w2 are left
// out: together little more than 2^-24 |x w|, a rounding of fp32. Source: Henry, Tang & Heinecke, "Leveraging the
// bfloat16 artificial intelligence datatype for higher-precision computations" (2019).
//
// Units that multiply bf16 take what is below 2^-126 for zero, which is less than a rounding of the product of numbers
// of kLeastSplit; so that no product of parts overflows where that of the numbers does not, they are below
// kLeastUnsplit. Others, but zero, have no parts.
#pragma once
#include "core/dtype.h"

namespace vkconv::cpu {

inline constexpr float kLeastSplit = 0x1p-49f, kLeastUnsplit = 0x1p63f;  // magnitudes

constexpr int parts_of(DType operand) { return operand == DType::f32 ? 3 : operand == DType::f16 ? 2 : 1; }

struct PartPair {
  int a, b;
};

// The parts that are multiplied, in an order in which each product but the last has a part of the one before it. The
// last is of the first parts, the other products are at most 2^-8 of it.
template <int kParts>
inline constexpr PartPair kPartPairs[1] = {{0, 0}};
template <>
inline constexpr PartPair kPartPairs<2>[4] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
template <>
inline constexpr PartPair kPartPairs<3>[6] = {{0, 2}, {0, 1}, {1, 1}, {1, 0}, {2, 0}, {0, 0}};

constexpr int part_products(int parts) { return parts == 3 ? 6 : parts == 2 ? 4 : 1; }

}  // namespace vkconv::cpu
