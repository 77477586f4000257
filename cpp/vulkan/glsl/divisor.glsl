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
