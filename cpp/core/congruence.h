// Which taps or outputs meet an element of a dilated input: solutions of a x = b (mod m).
#pragma once
#include <cstdint>
#include <numeric>

#include "core/checked.h"

namespace vkconv {

// For a, m in [1, 2^31): an x, where there is one, and every period()-th integer from it on in both directions.
class Congruence {
 public:
  Congruence(std::int64_t a, std::int64_t m) : common_(std::gcd(a, m)), period_(m / common_) {
    // Euclid's algorithm: t1 times a / common_ is r1 modulo period_.
    std::int64_t r0 = period_, r1 = a / common_ % period_, t0 = 0, t1 = 1;
    while (r1 > 1) {
      const std::int64_t q = r0 / r1, r2 = r0 - q * r1, t2 = t0 - q * t1;
      r0 = r1, r1 = r2, t0 = t1, t1 = t2;
    }
    inverse_ = floor_mod(t1, period_);
  }

  std::int64_t period() const { return period_; }
  // The x in [0, period), or -1 where there is none.
  std::int64_t least(std::int64_t b) const {
    if (period_ == 1 && common_ == 1) return 0;  // modulo 1, without a division
    if (b % common_ != 0) return -1;
    return floor_mod(b / common_, period_) * inverse_ % period_;
  }

 private:
  std::int64_t common_, period_, inverse_;
};

}  // namespace vkconv
