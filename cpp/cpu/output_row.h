// One row of the output, rows (n, od, oh) counted through: its place, and the taps along D and H inside the input.
#pragma once
#include <cstdint>

#include "core/geometry.h"
#include "core/view.h"

namespace vkconv::cpu {

struct OutputRow {
  std::int64_t n, d, h;
  Range kd, kh;

  OutputRow(const ConvProblem& p, std::int64_t r)
      : n(r / p.output[1] / p.output[0]),
        d(r / p.output[1] % p.output[0]),
        h(r % p.output[1]),
        kd(taps_inside(p, 0, d)),
        kh(taps_inside(p, 1, h)) {}

  // To the row behind.
  void advance(const ConvProblem& p) {
    if (++h == p.output[1]) {
      h = 0;
      if (++d == p.output[0]) d = 0, ++n;
      kd = taps_inside(p, 0, d);
    }
    kh = taps_inside(p, 1, h);
  }
  // Element (n, d, h, w, channel) of an array with the output's shape.
  template <class Pointer>
  std::int64_t offset(const View<Pointer>& v, std::int64_t w, std::int64_t channel) const {
    return n * v.stride[0] + d * v.stride[1] + h * v.stride[2] + w * v.stride[3] + channel;
  }
  bool outside() const { return kd.size() == 0 || kh.size() == 0; }
};

}  // namespace vkconv::cpu
