// Division by a number the host knows: one multiplication. divisor.h makes them.
struct Divisor {
  uint value, multiplier, shift;
};

// Of a number below 2^31.
uint divide(uint number, Divisor by) {
  uint high, low;
  umulExtended(number << 1, by.multiplier, high, low);
  return high >> by.shift;
}

// Takes the last digit off a mixed-radix index below 2^31: returns index % extent and leaves index / extent.
uint take_digit(inout uint index, Divisor extent) {
  const uint quotient = divide(index, extent), digit = index - quotient * extent.value;
  index = quotient;
  return digit;
}
