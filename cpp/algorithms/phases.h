// Phases of one axis: outputs p = first, first + period, .. read only every tap_step-th tap of the kernel and every
// input_step-th element of the input, and seen through those strides the axis has no dilation of either kind.
//
// Position read: q = o s + k d - pad, which is an input element when t divides q (t the input dilation, s stride,
// d kernel dilation).
#pragma once
#include <array>
#include <numeric>
#include <vector>

#include "core/checked.h"
#include "core/congruence.h"
#include "core/decomposition.h"
#include "core/orientation.h"

namespace vkconv {

// One phase as the fields of a child problem along the axis, and where it lies in its parent. Neighbouring phases that
// are alike but for their place may be one: `count` of them, whose outputs and inputs begin so far from those of the
// one before, are the elements of another axis of the child (0 N, 1 D, 2 H, 3 W), which the parent lacks.
struct AxisPhase {
  std::int64_t output_start, output_step, output;
  std::int64_t tap_start, tap_step, kernel;
  std::int64_t input_start, input_step, input;
  std::int64_t stride, dilation, pad_lo;
  std::int64_t count = 1, output_apart = 0, input_apart = 0;
  int elements_of = -1;
  bool operator==(const AxisPhase&) const = default;
};

using PhaseAxes = std::array<std::vector<AxisPhase>, 3>;

inline AxisPhase whole_axis(const ConvProblem& p, int a) {
  return {0, 1, p.output[a], 0, 1, p.kernel[a], 0, 1, p.input[a], p.stride[a], p.dilation[a], p.pad_lo[a]};
}

// Phases of an axis where outputs d / gcd(s, d) apart are of one, d one of the two dilations.
inline std::int64_t phases_along(const ConvProblem& p, int a, std::int64_t d) {
  return std::min(d / std::gcd(p.stride[a], d), p.output[a]);
}

// Strided transposed convolution: t > 1. With g = gcd(d, t), tap k of output o reads an element when
// o s + k d = pad (mod t); for o = r + j P with P = t / gcd(s, t) that fixes k modulo t / g, and
// q / t = (r s + k0 d - pad) / t + j (P s / t) + m (d / g).
inline std::vector<AxisPhase> input_dilation_phases(const ConvProblem& p, int a) {
  const std::int64_t s = p.stride[a], d = p.dilation[a], t = p.input_dilation[a];
  const std::int64_t period = t / std::gcd(s, t);
  const Congruence taps(d, t);
  std::vector<AxisPhase> phases;
  for (std::int64_t r = 0; r < phases_along(p, a, t); ++r) {
    const std::int64_t k0 = taps.least(p.pad_lo[a] - r * s);
    AxisPhase phase = whole_axis(p, a);
    phase.output_start = r;
    phase.output_step = period;
    phase.output = ceil_div(p.output[a] - r, period);
    phase.stride = period * s / t;
    phase.dilation = d / std::gcd(d, t);
    if (k0 >= 0 && k0 < p.kernel[a]) {
      phase.tap_start = k0;
      phase.tap_step = taps.period();
      phase.kernel = ceil_div(p.kernel[a] - k0, taps.period());
      phase.pad_lo = -((r * s + k0 * d - p.pad_lo[a]) / t);
    } else {
      phase.kernel = 0;  // these outputs fall between the elements: their sum is empty
    }
    phases.push_back(phase);
  }
  return phases;
}

// Dilated kernel: d > 1, t = 1. Outputs r + j P with P = d / gcd(s, d) read the input elements that are congruent to
// (r s - pad) modulo d: q = rem + d (b + k + j (P s / d)) with b = floor((r s - pad) / d).
inline std::vector<AxisPhase> kernel_dilation_phases(const ConvProblem& p, int a) {
  const std::int64_t s = p.stride[a], d = p.dilation[a], period = d / std::gcd(s, d);
  std::vector<AxisPhase> phases;
  for (std::int64_t r = 0; r < phases_along(p, a, d); ++r) {
    const std::int64_t rem = floor_mod(r * s - p.pad_lo[a], d);
    AxisPhase phase = whole_axis(p, a);
    phase.output_start = r;
    phase.output_step = period;
    phase.output = ceil_div(p.output[a] - r, period);
    phase.stride = period * s / d;
    phase.dilation = 1;
    if (rem < p.input[a]) {
      phase.input_start = rem;
      phase.input_step = d;
      phase.input = ceil_div(p.input[a] - rem, d);
      phase.pad_lo = -floor_div(r * s - p.pad_lo[a], d);
    } else {
      phase.kernel = 0;  // only padding is read
    }
    phases.push_back(phase);
  }
  return phases;
}

// Whether the phase behind those of `first` is alike, and as far from them as they are from each other.
inline bool joins(const AxisPhase& first, const AxisPhase& next) {
  const std::int64_t outputs = next.output_start - first.output_start, inputs = next.input_start - first.input_start;
  const bool evenly =
      first.count == 1 || (outputs == first.count * first.output_apart && inputs == first.count * first.input_apart);
  AxisPhase like = next;
  like.output_start = first.output_start, like.input_start = first.input_start;
  like.count = first.count, like.output_apart = first.output_apart, like.input_apart = first.input_apart;
  like.elements_of = first.elements_of;
  return evenly && next.kernel > 0 && like == first;
}

inline std::vector<AxisPhase> alike_together(const std::vector<AxisPhase>& phases, int axis) {
  std::vector<AxisPhase> together;
  for (const AxisPhase& f : phases) {
    if (together.empty() || !joins(together.back(), f)) {
      together.push_back(f);
      continue;
    }
    AxisPhase& first = together.back();
    first.output_apart = (f.output_start - first.output_start) / first.count;
    first.input_apart = (f.input_start - first.input_start) / first.count;
    first.elements_of = axis;
    ++first.count;
  }
  return together;
}

// Makes the phases of axis `a` elements of another.
inline void place(const AxisPhase& f, int a, ConvProblem& c, Slice& slice) {
  const auto axis = static_cast<std::size_t>(f.elements_of);
  if (axis == 0)
    c.batch = f.count;
  else
    c.input[axis - 1] = c.output[axis - 1] = f.count;
  slice.along[axis] = 1 + a;
  slice.input_apart[axis] = f.input_apart;
  slice.output_apart[axis] = f.output_apart;
}

// The child problem of one phase an axis. All outputs of an empty phase are epilogues of a zero sum.
inline ChildProblem phase_child(const ConvProblem& parent, const AxisPhase* const (&phases)[3]) {
  ConvProblem c = parent;
  Slice slice;
  for (int a = 0; a < 3; ++a) {
    const AxisPhase& f = *phases[a];
    c.input[a] = f.input;
    c.kernel[a] = f.kernel;
    c.output[a] = f.output;
    c.stride[a] = f.stride;
    c.dilation[a] = f.dilation;
    c.input_dilation[a] = 1;
    c.pad_lo[a] = f.pad_lo;
    slice.input_start[a] = f.input_start;
    slice.input_step[a] = f.input_step;
    slice.output_start[a] = f.output_start;
    slice.output_step[a] = f.output_step;
    slice.tap_start[a] = f.tap_start;
    slice.tap_step[a] = f.tap_step;
  }
  for (int a = 0; a < 3; ++a)
    if (phases[a]->count > 1) place(*phases[a], a, c, slice);
  return {canonical(c), slice};
}

// Alike phases are joined while axes are left: the batch of one image, and axes without extent.
inline void join_alike(const ConvProblem& p, PhaseAxes& axes) {
  std::vector<int> free;
  if (p.batch == 1) free.push_back(0);
  for (int a = 0; a < 3; ++a)
    if (without_extent(p, a)) free.push_back(1 + a);
  for (std::vector<AxisPhase>& phases : axes)
    if (phases.size() > 1 && !free.empty()) {
      phases = alike_together(phases, free.back());
      free.pop_back();
    }
}

// The phases of the axes with a dilation above 1, joined.
template <class F>
PhaseAxes phase_axes(const ConvProblem& p, const Extent3& dilation, F&& phases) {
  PhaseAxes axes;
  for (int a = 0; a < 3; ++a) {
    if (dilation[a] > 1)
      axes[static_cast<std::size_t>(a)] = phases(p, a);
    else
      axes[static_cast<std::size_t>(a)] = {whole_axis(p, a)};
  }
  join_alike(p, axes);
  return axes;
}

// Every child is planned by itself, which takes a quarter of a millisecond.
template <class F>
Support phases_support(const ConvProblem& p, const Extent3& dilation, F&& phases) {
  constexpr std::int64_t most_children = 4096, most_along = 1 << 16;
  const auto too_many = [](std::int64_t most) {
    return Support::no("there are over " + std::to_string(most) + " phases");
  };
  std::int64_t children = 1;
  for (int a = 0; a < 3; ++a) {
    const std::int64_t along = phases_along(p, a, dilation[a]);
    if (along > most_along) return too_many(most_along);
    children *= along;
  }
  if (children <= most_children) return Support::yes();
  children = 1;  // of those that are joined
  for (const std::vector<AxisPhase>& along : phase_axes(p, dilation, phases)) children *= std::ssize(along);
  return children > most_children ? too_many(most_children) : Support::yes();
}

// Every combination of one phase an axis; beside an empty phase the axes behind it are whole.
inline std::vector<ChildProblem> phase_children(const ConvProblem& parent, const PhaseAxes& axes) {
  const std::vector<AxisPhase> h_whole{whole_axis(parent, 1)}, w_whole{whole_axis(parent, 2)};
  std::vector<ChildProblem> children;
  for (const AxisPhase& d : axes[0])
    for (const AxisPhase& h : d.kernel == 0 ? h_whole : axes[1])
      for (const AxisPhase& w : d.kernel == 0 || h.kernel == 0 ? w_whole : axes[2])
        children.push_back(phase_child(parent, {&d, &h, &w}));
  return children;
}

}  // namespace vkconv
