// Pixels as one row: where each output pixel reads the input pixel at its own place and nothing else, a problem on
// arrays whose pixels are evenly apart is one on a single row of them all.
#pragma once
#include <optional>

#include "core/algorithm.h"
#include "core/problem.h"
#include "core/view.h"

namespace vkconv {

// Whether the output at a place reads the input at that place only.
inline bool is_pointwise(const ConvProblem& p) {
  constexpr Extent3 ones{1, 1, 1}, none{0, 0, 0};
  return p.kernel == ones && p.stride == ones && p.pad_lo == none && p.input == p.output;
}

// Whether the pixels of an array with the problem's outputs are evenly apart, in the order N, D, H, W.
template <class Pointer>
bool evenly_apart(const ConvProblem& p, const View<Pointer>& v) {
  const std::int64_t extents[] = {p.batch, p.output[0], p.output[1], p.output[2]};
  std::int64_t pixels = extents[3];
  for (int axis = 2; axis >= 0; pixels *= extents[axis--])
    if (extents[axis] > 1 && v.stride[axis] != v.stride[3] * pixels) return false;
  return true;
}

// The same of all arrays of a pointwise problem.
template <class Device>
bool evenly_apart(const ConvProblem& p, const Operands<Device>& a) {
  return evenly_apart(p, a.input) && evenly_apart(p, a.output) && (!p.epilogue.addend || evenly_apart(p, a.addend));
}

// A pointwise problem whose arrays are evenly apart, on the same arrays.
inline ConvProblem pixels_as_row(ConvProblem p) {
  p.input = p.output = {1, 1, p.batch * p.output_pixels()};
  p.batch = 1;
  return p;
}

// The same if the problem is pointwise, its pixels are more than one row has, and that one more than a pixel.
inline std::optional<ConvProblem> one_row(const ConvProblem& p) {
  if (!is_pointwise(p) || p.output[2] == 1 || p.output[2] == p.batch * p.output_pixels()) return std::nullopt;
  return pixels_as_row(p);
}

// Whether the pixels of all arrays may be taken as one row, by a layout that has one of them.
template <class Layout, class Device>
bool takes_one_row(const Layout& s, const Operands<Device>& a) {
  return s.one_row && evenly_apart(s.original, a);
}

}  // namespace vkconv
