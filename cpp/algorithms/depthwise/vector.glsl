// Vectors of channels: up to 16 bytes an instruction whatever the element. They travel in 32-bit words, a lone 16-bit
// element in the low half of one. Outputs have kVector channels, inputs kInputVector, each of kRepeats outputs.
const uint kRepeats = kMultiplier < kVector ? kMultiplier : kVector;
const uint kInputVector = kVector / kRepeats;
const uint kWords = (kVector * ELEMENT_BYTES + 3) / 4;
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer OneWordAt { uint value; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer TwoWordsAt { uint64_t value; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer FourWordsAt { u64vec2 value; };

uvec4 load_words(uint64_t address, uint elements) {
  const uint words = (elements * ELEMENT_BYTES + 3) / 4;
#if ELEMENT_BYTES == 2
  if (elements == 1) return uvec4(ElementAt(address).value, 0, 0, 0);
#endif
  if (words == 1) return uvec4(OneWordAt(address).value, 0, 0, 0);
  if (words == 2) return uvec4(unpackUint2x32(TwoWordsAt(address).value), 0, 0);
  const u64vec2 pairs = FourWordsAt(address).value;
  return uvec4(unpackUint2x32(pairs.x), unpackUint2x32(pairs.y));
}

// Of inputs, zeros unless `inside`. A lone half is widened as it is loaded: within a branch that would be waited for, so
// that it comes from `elsewhere` instead, which holds one too.
uvec4 load_input_if(bool inside, uint64_t address, uint64_t elsewhere) {
  if (kInputVector * ELEMENT_BYTES == 2) {
    const uint word = load_words(inside ? address : elsewhere, 1).x;
    return uvec4(inside ? word : 0, 0, 0, 0);
  }
  uvec4 words = uvec4(0);
  if (inside) words = load_words(address, kInputVector);
  return words;
}

void store_words(uint64_t address, uvec4 words) {
#if ELEMENT_BYTES == 2
  if (kVector == 1) {
    ElementAt(address).value = uint16_t(words.x);
    return;
  }
#endif
  if (kWords == 1)
    OneWordAt(address).value = words.x;
  else if (kWords == 2)
    TwoWordsAt(address).value = packUint2x32(words.xy);
  else
    FourWordsAt(address).value = u64vec2(packUint2x32(words.xy), packUint2x32(words.zw));
}

// Element i.
real real_of(uvec4 words, uint i) {
#if defined(VARIANT_F64)
  return packDouble2x32(uvec2(words[2 * i], words[2 * i + 1]));
#elif defined(VARIANT_F32)
  return uintBitsToFloat(words[i]);
#elif defined(VARIANT_F16)
  return unpackHalf2x16(words[i / 2])[i % 2];
#else
  return uintBitsToFloat(i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xffff0000u);
#endif
}

// Each element `repeats` times.
void widen_words(uvec4 words, uint repeats, out real x[kVector]) {
  [[unroll]] for (uint v = 0; v < kVector; ++v) x[v] = real_of(words, v / repeats);
}

// The bits of v without its sign, the upper half of a double's: at least kInfinityBits when v is not finite.
#ifdef VARIANT_F64
const uint kInfinityBits = 0x7ff00000u;
uint magnitude_bits(double v) { return unpackDouble2x32(v).y & 0x7fffffffu; }
#else
const uint kInfinityBits = 0x7f800000u;
uint magnitude_bits(float v) { return floatBitsToUint(v) & 0x7fffffffu; }
#endif

uvec4 round_words(real x[kVector]) {
  uvec4 words;
  [[unroll]] for (uint w = 0; w < kWords; ++w)
#if defined(VARIANT_F64)
    words[w] = unpackDouble2x32(x[w / 2])[w % 2];
#elif defined(VARIANT_F32)
    words[w] = floatBitsToUint(x[w]);
#else
    words[w] = round_pair(vec2(x[2 * w], 2 * w + 1 < kVector ? x[2 * w + 1] : 0));
#endif
  return words;
}

// finish() of epilogue.glsl for a vector whose first output is at `address`.
void finish_words(uint64_t address, int64_t addend_offset, uint o, real x[kVector], EpilogueParams e) {
  [[unroll]] for (uint v = 0; v < kVector; ++v) {
    if (kHasAddend) x[v] += load_given(e.addend, addend_offset + o + v);
    if (kHasBias) x[v] += load_given(e.bias, o + v);
    x[v] = activate(x[v], e);
    if (kStoresReal && ELEMENT_BYTES != REAL_BYTES) store_real(address, v, x[v]);
  }
  if (!kStoresReal || ELEMENT_BYTES == REAL_BYTES) store_words(address, round_words(x));
}
