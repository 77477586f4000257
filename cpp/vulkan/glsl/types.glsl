// Element types of a shader variant. Arithmetic runs in `real` whatever the elements are: they are widened when read
// and rounded once when written. 16-bit elements travel as uint16_t, so that a device needs 16-bit storage only, no
// 16-bit arithmetic. Arrays are 64-bit addresses; strides and offsets are in elements. Four elements travel as 64-bit
// words: a GPU moves 16 bytes an instruction either way, a rasteriser loads component by component, lane by lane.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

#if defined(VARIANT_F64)
#define real double
#define real2 dvec2
#define real4 dvec4
#define packed_real4 dvec4
#define element double
#define element2 dvec2
#define element4 dvec4
#define ELEMENT_BYTES 8
#define REAL_BYTES 8
#elif defined(VARIANT_F32)
#define real float
#define real2 vec2
#define real4 vec4
#define packed_real4 u64vec2
#define element float
#define element2 uvec2
#define element4 u64vec2
#define ELEMENT_BYTES 4
#define REAL_BYTES 4
#else
#define real float
#define real2 vec2
#define real4 vec4
#define packed_real4 u64vec2
#define element uint16_t
#define element2 uint
#define element4 uint64_t
#define ELEMENT_BYTES 2
#define REAL_BYTES 4
#endif
#define ELEMENT2_BYTES (2 * ELEMENT_BYTES)
#define ELEMENT4_BYTES (4 * ELEMENT_BYTES)
#define REAL2_BYTES (2 * REAL_BYTES)
#define REAL4_BYTES (4 * REAL_BYTES)

layout(buffer_reference, scalar, buffer_reference_align = ELEMENT_BYTES) buffer ElementAt { element value; };
layout(buffer_reference, scalar, buffer_reference_align = ELEMENT2_BYTES) buffer Element2At { element2 value; };
layout(buffer_reference, scalar, buffer_reference_align = ELEMENT4_BYTES) buffer Element4At { element4 value; };
layout(buffer_reference, scalar, buffer_reference_align = REAL_BYTES) buffer RealAt { real value; };
layout(buffer_reference, scalar, buffer_reference_align = REAL2_BYTES) buffer Real2At { real2 value; };
layout(buffer_reference, scalar, buffer_reference_align = REAL4_BYTES) buffer Real4At { packed_real4 value; };

#ifdef VARIANT_BF16
// A number whose upper half is the nearest bf16, ties to even. NaN stays NaN: above 0x7fff8000 the addition overflows
// into the sign, and its result is no longer the greater one. Two NaNs must not come: those of signalling bits, which
// no sum has, and one whose upper 17 bits are ones, which load_given replaces.
uint round_high(float v) {
  const int bits = floatBitsToInt(v), odd = -(bits << 15 >> 31);  // two shifts: the first can be a multiplication
  return uint(max(bits, bits + 0x7fff + odd));
}
#endif

#if ELEMENT_BYTES == 2
// The 16-bit pattern nearest to v, ties to even. NaN stays NaN.
uint round_bits(float v) {
#ifdef VARIANT_BF16
  return round_high(v) >> 16;
#else
  const uint bits = floatBitsToUint(v), magnitude = bits & 0x7fffffffu;
  const uint sign = bits >> 16 & 0x8000u;
  if (magnitude >= 0x47800000u) return sign | (magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u);  // 2^16 and above
  // Below 2^-14 the result is subnormal: the sum with 1/2 leaves round(v * 2^24) in the low bits.
  if (magnitude < 0x38800000u) return sign | (floatBitsToUint(uintBitsToFloat(magnitude) + 0.5) - 0x3f000000u);
  return sign | (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
#endif
}
#endif

#ifdef VARIANT_F16
// Whether packHalf2x16 rounds as round_bits does, which is up to the driver: ties to even, overflow to infinity,
// subnormals kept. Pipelines::create sets the constant where it is known; elsewhere kernels that round much find out
// by start_rounding() of dispatch.glsl.
#ifdef HARDWARE_ROUNDS_HALVES
const bool kPacksNearest = true;
#else
layout(constant_id = 100) const bool kPacksNearest = false;
#endif
bool packs_nearest = kPacksNearest;

// `one` is 1, but not to the compiler.
bool packs_to_nearest(float one) {
  return packHalf2x16(one * vec2(1.00048828125, 1.00146484375)) == 0x3c023c00u &&
         packHalf2x16(one * vec2(65520, 4.5e-8)) == 0x00017c00u;
}
#endif

#if ELEMENT_BYTES == 2
// Two elements in a word, the first in its low half.
uint round_pair(vec2 v) {
#ifdef VARIANT_BF16
  return round_high(v.x) >> 16 | (round_high(v.y) & 0xffff0000u);
#else
  if (kPacksNearest || packs_nearest) return packHalf2x16(v);
  return round_bits(v.x) | round_bits(v.y) << 16;
#endif
}
#endif

#ifdef VARIANT_F64
dvec4 pack4(dvec4 v) { return v; }
dvec4 unpack4(dvec4 v) { return v; }
#else
u64vec2 pack4(vec4 v) {
  const uvec4 bits = floatBitsToUint(v);
  return u64vec2(packUint2x32(bits.xy), packUint2x32(bits.zw));
}
vec4 unpack4(u64vec2 v) { return uintBitsToFloat(uvec4(unpackUint2x32(v.x), unpackUint2x32(v.y))); }
#endif

real4 widen4(element4 e) {
#if ELEMENT_BYTES == 2
  const uvec2 pairs = unpackUint2x32(e);
#endif
#if defined(VARIANT_F16)
  return vec4(unpackHalf2x16(pairs.x), unpackHalf2x16(pairs.y));
#elif defined(VARIANT_BF16)
  return uintBitsToFloat(uvec4(pairs.x << 16, pairs.x & 0xffff0000u, pairs.y << 16, pairs.y & 0xffff0000u));
#else
  return unpack4(e);
#endif
}

element4 round_element4(real4 v) {
#if ELEMENT_BYTES == 2
  return packUint2x32(uvec2(round_pair(v.xy), round_pair(v.zw)));
#else
  return pack4(v);
#endif
}

real load(uint64_t array, int64_t offset) {
  ElementAt element_at = ElementAt(array + uint64_t(offset) * ELEMENT_BYTES);
#if defined(VARIANT_F16)
  return unpackHalf2x16(uint(element_at.value)).x;
#elif defined(VARIANT_BF16)
  return uintBitsToFloat(uint(element_at.value) << 16);
#else
  return element_at.value;
#endif
}

// Four elements at an address that is a multiple of ELEMENT4_BYTES.
real4 load4(uint64_t array, int64_t offset) {
  return widen4(Element4At(array + uint64_t(offset) * ELEMENT_BYTES).value);
}

void store(uint64_t array, int64_t offset, real v) {
  ElementAt element_at = ElementAt(array + uint64_t(offset) * ELEMENT_BYTES);
#if ELEMENT_BYTES == 2
  element_at.value = uint16_t(round_bits(v));
#else
  element_at.value = v;
#endif
}

// Two elements at an address that is a multiple of ELEMENT2_BYTES.
void store2(uint64_t array, int64_t offset, real2 v) {
  Element2At at = Element2At(array + uint64_t(offset) * ELEMENT_BYTES);
#if defined(VARIANT_F64)
  at.value = v;
#elif defined(VARIANT_F32)
  at.value = floatBitsToUint(v);
#else
  at.value = round_pair(v);
#endif
}

void store4(uint64_t array, int64_t offset, real4 v) {
  Element4At(array + uint64_t(offset) * ELEMENT_BYTES).value = round_element4(v);
}

real load_real(uint64_t array, int64_t offset) { return RealAt(array + uint64_t(offset) * REAL_BYTES).value; }
void store_real(uint64_t array, int64_t offset, real v) {
  RealAt(array + uint64_t(offset) * REAL_BYTES).value = v;
}
void store_real2(uint64_t array, int64_t offset, real2 v) {
  Real2At(array + uint64_t(offset) * REAL_BYTES).value = v;
}
real4 load_real4(uint64_t array, int64_t offset) {
  return unpack4(Real4At(array + uint64_t(offset) * REAL_BYTES).value);
}
void store_real4(uint64_t array, int64_t offset, real4 v) {
  Real4At(array + uint64_t(offset) * REAL_BYTES).value = pack4(v);
}

real4 no_wrapping_nan(real4 v) {
#ifdef VARIANT_BF16
  return uintBitsToFloat(min(floatBitsToUint(v), uvec4(0xffff7fffu)));
#else
  return v;
#endif
}

// Numbers of the caller, whose NaNs may have any bits. Sums of 16-bit numbers have not.
real load_given(uint64_t array, int64_t offset) { return no_wrapping_nan(real4(load_real(array, offset))).x; }
real4 load_given4(uint64_t array, int64_t offset) { return no_wrapping_nan(load_real4(array, offset)); }
