// The pixels of one axis that contribute to one tap.
#pragma once
#include <algorithm>

#include "core/congruence.h"
#include "core/geometry.h"

namespace vkconv::cpu::weight_grad {

// Outputs out, out + out_step, ... (`count` of them) read inputs in, in + in_step, ...
struct Walk {
  std::int64_t out = 0, out_step = 1, in = 0, in_step = 1, count = 0;
};

// Output o reads position o * stride + shift of the dilated input, so it counts when that is a multiple of
// input_dilation inside the input: one residue class of o modulo input_dilation / gcd(stride, input_dilation).
inline Walk walk(const ConvProblem& p, int axis, std::int64_t tap, const Range& outputs) {
  const std::int64_t s = p.stride[axis], t = p.input_dilation[axis];
  const std::int64_t shift = tap * p.dilation[axis] - p.pad_lo[axis];
  if (t == 1) {  // every output counts
    const Range counted = common(outputs, outputs_inside(p, axis, tap));
    return {counted.begin, 1, counted.begin * s + shift, s, counted.size()};
  }
  const Congruence meeting(s, t);
  const std::int64_t period = meeting.period(), residue = meeting.least(-shift);
  Walk w{0, period, 0, s * period / t, 0};
  if (residue < 0) return w;
  const std::int64_t least = std::max(outputs.begin, ceil_div(-shift, s));
  const std::int64_t last = std::min(outputs.end - 1, floor_div((p.input[axis] - 1) * t - shift, s));
  w.out = least + floor_mod(residue - least, period);
  if (w.out > last) return w;
  w.count = (last - w.out) / period + 1;
  w.in = (w.out * s + shift) / t;
  return w;
}

}  // namespace vkconv::cpu::weight_grad
