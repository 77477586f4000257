// Relabelling of axes. A convolution does not care which of its axes is called W, and the batch is a spatial axis with
// a kernel of one; kernels that walk along W get the axis that suits them in that place.
#pragma once
#include <algorithm>
#include <array>
#include <string>

#include "core/algorithm.h"
#include "core/checked.h"

namespace vkconv {

struct Orientation {
  bool batch_as_depth = false;       // N takes the place of a trivial D first
  std::array<int, 3> axes{0, 1, 2};  // old axis in each new place

  ConvProblem apply(ConvProblem p) const {
    if (batch_as_depth) {
      p.input[0] = p.output[0] = p.batch;
      p.batch = 1;
    }
    const ConvProblem from = p;
    for (std::size_t a = 0; a < 3; ++a) {
      const auto old = static_cast<std::size_t>(axes[a]);
      p.input[a] = from.input[old], p.kernel[a] = from.kernel[old], p.output[a] = from.output[old];
      p.stride[a] = from.stride[old], p.dilation[a] = from.dilation[old];
      p.input_dilation[a] = from.input_dilation[old], p.pad_lo[a] = from.pad_lo[old];
    }
    return p;
  }
  template <class Pointer>
  View<Pointer> apply(View<Pointer> v) const {
    if (batch_as_depth) v.stride[1] = v.stride[0];
    const auto from = v.stride;
    for (std::size_t a = 0; a < 3; ++a) v.stride[1 + a] = from[1 + static_cast<std::size_t>(axes[a])];
    return v;
  }
  template <class Pointer>
  WeightView<Pointer> apply(WeightView<Pointer> w) const {
    const Extent3 from = w.tap;
    for (std::size_t a = 0; a < 3; ++a) w.tap[a] = from[static_cast<std::size_t>(axes[a])];
    return w;
  }
  template <class Device>
  Operands<Device> apply(Operands<Device> o) const {
    o.input = apply(o.input), o.output = apply(o.output), o.addend = apply(o.addend), o.weight = apply(o.weight);
    return o;
  }
  // In a name of a weight layout.
  std::string axes_text() const {
    std::string text = "_axes";
    for (const int axis : axes) text += std::to_string(axis);
    return text;
  }
  bool operator==(const Orientation&) const = default;
};

// Whether an axis has one input, one output and one tap.
inline bool without_extent(const ConvProblem& p, int a) {
  return p.input[a] == 1 && p.output[a] == 1 && p.kernel[a] == 1 && p.pad_lo[a] == 0;
}

// Puts the axes that `is_last` names behind the others.
template <class F>
Orientation axes_last(F is_last) {
  Orientation o;
  auto place = o.axes.begin();
  for (const bool last : {false, true})
    for (int a = 0; a < 3; ++a)
      if (is_last(a) == last) *place++ = a;
  return o;
}

// Puts the axes without an extent first: a column of pixels is a row of them.
inline Orientation extended_axes_last(const ConvProblem& p) {
  return axes_last([&](int a) { return !without_extent(p, a); });
}

// Puts the axes along which the kernel has a single tap first.
inline Orientation kernel_axes_last(const ConvProblem& p) {
  return axes_last([&](int a) { return p.kernel[a] > 1; });
}

// Outputs along an axis that one tap can reach, at least one.
inline std::int64_t outputs_of_a_tap(const ConvProblem& p, int a) {
  return std::max<std::int64_t>(1, std::min(p.output[a], ceil_div(p.input[a], p.stride[a])));
}

// Puts an axis with at least `enough` outputs that share a tap into the place of W, or else the longest one.
inline Orientation long_rows(const ConvProblem& p, std::int64_t enough) {
  Orientation o;
  const std::int64_t width = outputs_of_a_tap(p, 2), height = outputs_of_a_tap(p, 1);
  if (width >= enough) return o;
  const bool trivial_depth = without_extent(p, 0);
  const std::int64_t depth = trivial_depth ? p.batch : outputs_of_a_tap(p, 0);
  if (height >= enough || height >= std::max(depth, width)) {
    if (height > width) o.axes = {0, 2, 1};
  } else if (depth > width) {
    o.batch_as_depth = trivial_depth;
    o.axes = {2, 1, 0};
  }
  return o;
}

}  // namespace vkconv
