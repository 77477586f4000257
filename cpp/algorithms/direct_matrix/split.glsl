// fp32 numbers as the sum of two halves. A set of numbers is scaled by a power of two so that its largest magnitude lies
// in [2^14, 2^15): the high half keeps 11 bits of a number, the low half 11 of the rest, down to 2^-40 of the largest.
// The product of two numbers is three products of halves; the fourth, of the low ones, is below 2^-22 of it.

// Orders numbers by |x|: its bits without the sign, one exponent up, so that infinities and NaN wrap to below zero.
uint finite_order(uint bits) { return 2 * bits + 0x01000000u; }

// The biased exponent that stands for a set with this largest order, such that both scales are normal numbers.
uint scale_exponent(uint order) { return max(order >> 24, 28u) - 1; }
float scale(uint exponent) { return uintBitsToFloat((268 - exponent) << 23); }
float inverse_scale(uint exponent) { return uintBitsToFloat((exponent - 14) << 23); }
float inverse_of_power(float power) { return uintBitsToFloat(0x7f000000u - floatBitsToUint(power)); }

// The nearest number of 11 bits, by its bits: a driver may take x - float(half(x)) for zero.
vec4 high_part(vec4 x) { return uintBitsToFloat((floatBitsToUint(x) + 0x1000u) & 0xffffe000u); }

uvec2 halves(vec4 x) { return uvec2(packHalf2x16(x.xy), packHalf2x16(x.zw)); }

// Of an infinity, and of NaN, the low part is NaN: sums that come out as either are computed again by their definition.
void split_octet(uvec4 octet[2], float scale, out uvec4 high, out uvec4 low) {
  const vec4 x = uintBitsToFloat(octet[0]) * scale, y = uintBitsToFloat(octet[1]) * scale;
  const vec4 high_x = high_part(x), high_y = high_part(y);
  high = uvec4(halves(high_x), halves(high_y));
  low = uvec4(halves(x - high_x), halves(y - high_y));
}
