// y = activation(sum + addend + bias), one rounding, and its store. Every forward kernel has the specialization
// constants 0 to 4 in common; kernel_params.h fills them and EpilogueParams.
#include "vulkan/glsl/types.glsl"

layout(constant_id = 0) const bool kHasBias = false;
layout(constant_id = 1) const bool kHasAddend = false;
layout(constant_id = 2) const uint kActivation = 0;
layout(constant_id = 3) const bool kStoresReal = false;  // output_dtype is the accumulator type
layout(constant_id = 4) const uint kStoreUnit = 1;       // 4, 2 or 1: output, addend and bias are aligned to it
const bool kStoresFours = kStoreUnit == 4;

struct EpilogueParams {
  uint64_t bias;
  uint64_t addend;
  int64_t addend_stride[4];  // N D H W
  uvec2 alpha, beta;         // bits of a real, the low word first
};

real real_from_bits(uvec2 bits) {
#ifdef VARIANT_F64
  return packDouble2x32(bits);
#else
  return uintBitsToFloat(bits.x);
#endif
}

#ifdef VARIANT_F64
// exp(x) = 2^n exp(r), |r| <= ln2 / 2, by its Taylor series to r^13: error below 1e-16.
double exponential(double x) {
  if (isnan(x)) return x;
  x = clamp(x, -745.0lf, 709.0lf);
  const double n = roundEven(x * 1.4426950408889634lf);
  const double r = fma(n, -1.9082149292705877e-10lf, fma(n, -0.69314718036912382lf, x));
  double sum = 1;
  for (int k = 13; k > 0; --k) sum = fma(sum * r, 1.0lf / k, 1.0lf);
  // In two factors, each a normal number.
  const int half_n = int(n) / 2, rest = int(n) - half_n;
  return sum * packDouble2x32(uvec2(0, (half_n + 1023) << 20)) * packDouble2x32(uvec2(0, (rest + 1023) << 20));
}

// erf below 3/2 by its series of positive terms 2/sqrt(pi) exp(-x^2) sum of 2^k x^(2k+1) / (2k+1)!!, beyond by the continued
// fraction of the rest 1 - erf = exp(-x^2)/sqrt(pi) / (x + 1/2 / (x + 2/2 / (x + 3/2 / ...))): few roundings in either.
double erf(double x) {
  const double a = abs(x);
  if (a >= 6) return sign(x);
  double value = a;
  if (a < 1.5lf) {
    double term = a;
    for (int k = 1; k < 60 && term > value * 1e-17lf; ++k) {
      term *= 2 * a * a / (2 * k + 1);
      value += term;
    }
    value *= 1.1283791670955126lf * exponential(-a * a);
  } else {
    for (int k = 100; k > 0; --k) value = a + 0.5lf * k / value;
    value = 1 - 0.56418958354775629lf * exponential(-a * a) / value;
  }
  return x < 0 ? -value : value;
}
#else
float exponential(float x) { return exp(x); }

// Abramowitz & Stegun 7.1.26: absolute error below 1.5e-7.
float erf(float x) {
  const float a = abs(x), t = 1 / (1 + 0.3275911 * a);
  const float poly = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
  const float value = 1 - poly * exp(-a * a);
  return x < 0 ? -value : value;
}
#endif

real sigmoid(real x) { return 1 / (1 + exponential(-x)); }

// tanh by Lambert's continued fraction x / (1 + s / (3 + s / (5 + ...))), s = x^2, below 1; beyond by
// 1 - 2 / (exp(2|x|) + 1), which does not cancel there.
real hyperbolic_tangent(real x) {
  const real a = abs(x), s = x * x;
  if (a < 1) {
    real denominator = REAL_BYTES == 8 ? 19 : 11;
    for (int k = REAL_BYTES == 8 ? 17 : 9; k > 0; k -= 2) denominator = k + s / denominator;
    return x / denominator;
  }
  const real value = 1 - 2 / (exponential(2 * a) + 1);
  return x < 0 ? -value : value;
}

real limit(real x, real lo, real hi) {
  x = x < lo ? lo : x;
  return x > hi ? hi : x;
}

// The numbers are those of vkconv::Activation. NaN stays NaN: drivers turn comparisons into min and max, which drop it.
real activate(real x, EpilogueParams e) {
  if (isnan(x)) return x;
  switch (kActivation) {
    case 1: return x < 0 ? real(0) : x;
    case 2: return limit(x, real(0), real(6));
    case 3: return x < 0 ? x * real_from_bits(e.alpha) : x;
    case 4: return x * sigmoid(x);
    case 5: return real(0.5) * x * (1 + erf(x * sqrt(real(0.5))));
    case 6: return sigmoid(x);
    case 7: return hyperbolic_tangent(x);
    case 8: return x * (limit(x + 3, real(0), real(6)) / 6);
    case 9: return limit(x, real_from_bits(e.alpha), real_from_bits(e.beta));
  }
  return x;
}

// Finishes and stores the sum of channel o. The offsets are those of channel 0 of the pixel.
void finish(uint64_t array, int64_t out_offset, int64_t addend_offset, uint o, real sum, EpilogueParams e) {
  if (kHasAddend) sum += load_given(e.addend, addend_offset + o);
  if (kHasBias) sum += load_given(e.bias, o);
  const real y = activate(sum, e);
  if (kStoresReal)
    store_real(array, out_offset + o, y);
  else
    store(array, out_offset + o, y);
}

// The same for channels o and o + 1, aligned to two elements.
void finish2(uint64_t array, int64_t out_offset, int64_t addend_offset, uint o, real2 sum, EpilogueParams e) {
  [[unroll]] for (uint j = 0; j < 2; ++j) {
    if (kHasAddend) sum[j] += load_given(e.addend, addend_offset + o + j);
    if (kHasBias) sum[j] += load_given(e.bias, o + j);
    sum[j] = activate(sum[j], e);
  }
  if (kStoresReal)
    store_real2(array, out_offset + o, sum);
  else
    store2(array, out_offset + o, sum);
}

// The same for channels o to o + 3, aligned to four elements: their values.
real4 finished4(int64_t addend_offset, uint o, real4 sum, EpilogueParams e) {
  if (kHasAddend) sum += load_given4(e.addend, addend_offset + o);
  if (kHasBias) sum += load_given4(e.bias, o);
  [[unroll]] for (uint j = 0; j < 4; ++j) sum[j] = activate(sum[j], e);
  return sum;
}

// Finishes and stores channels o to o + 3, of which those below `channels` exist.
void finish4(uint64_t array, int64_t out_offset, int64_t addend_offset, uint o, uint channels, real4 sum,
             EpilogueParams e) {
  if (kStoreUnit == 2) {
    [[unroll]] for (uint j = 0; j < 4; j += 2)
      if (o + j < channels) finish2(array, out_offset, addend_offset, o + j, j == 0 ? sum.xy : sum.zw, e);
    return;
  }
  if (!kStoresFours) {
    [[unroll]] for (uint j = 0; j < 4; ++j)
      if (o + j < channels) finish(array, out_offset, addend_offset, o + j, sum[j], e);
    return;
  }
  sum = finished4(addend_offset, o, sum, e);
  if (kStoresReal)
    store_real4(array, out_offset + o, sum);
  else
    store4(array, out_offset + o, sum);
}
