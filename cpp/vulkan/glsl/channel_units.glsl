// Channels of a pixel from memory, where they fill no octet of 16 bytes or are not aligned to it: by units of 4, 2 or 1
// that are aligned and divide the channels of a group. What does not exist reads the last unit that does: loads without
// a branch go out together, and what they fill stays in registers.
uint bits_at(uint64_t address) {
  ElementAt element_at = ElementAt(address);
#ifdef VARIANT_F32
  return floatBitsToUint(element_at.value);
#else
  return uint(element_at.value);
#endif
}

uint element_bits(uint64_t address, int channel, int channels) {
  return bits_at(address + min(channel, channels - 1) * ELEMENT_BYTES);
}

#if ELEMENT_BYTES == 2
layout(buffer_reference, scalar, buffer_reference_align = 4) readonly buffer HalvesAt { uint value; };

uint two_halves(uint64_t address, int channel, int channels, uint unit) {
  if (unit == 2) return HalvesAt(address + min(channel, channels - 2) * ELEMENT_BYTES).value;
  const uint low = element_bits(address, channel, channels), high = element_bits(address, channel + 1, channels);
  return low | (channel + 1 < channels ? high << 16 : 0);
}

uvec2 four_halves(uint64_t address, int channel, int channels, uint unit) {
  if (unit == 4) return unpackUint2x32(Element4At(address + min(channel, channels - 4) * ELEMENT_BYTES).value);
  return uvec2(two_halves(address, channel, channels, unit), two_halves(address, channel + 2, channels, unit));
}
#endif

// Eight channels, of which the first `channels` exist, the others zero, into `octet`: uvec4[1] of halves, uvec4[2] of
// fp32, which comes one by one.
#ifdef VARIANT_F32
#define LOAD_UNITS(octet, address, channels, unit) \
  [[unroll]] for (int c_ = 0; c_ < 8; ++c_)        \
    octet[c_ / 4][c_ % 4] = c_ < (channels) ? element_bits(address, c_, channels) : 0
#else
#define LOAD_UNITS(octet, address, channels, unit)                                 \
  [[unroll]] for (int c_ = 0; c_ < 8; c_ += 4) {                                   \
    const uvec2 four_ = four_halves(address, c_, channels, unit);                  \
    [[unroll]] for (int k_ = 0; k_ < 4; k_ += 2)                                   \
      octet[0][(c_ + k_) / 2] = c_ + k_ < (channels) ? four_[k_ / 2] : 0;          \
  }
#endif
