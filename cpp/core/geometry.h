// The index map of a convolution along one axis.
#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>

#include "core/checked.h"
#include "core/problem.h"

namespace vkconv {

// The tap (kd, kh, kw) that is number `i` of a kernel's.
constexpr Extent3 tap_at(const Extent3& kernel, std::int64_t i) {
  return {i / (kernel[1] * kernel[2]), i / kernel[2] % kernel[1], i % kernel[2]};
}

// The position, padding among them, that tap `k` of output `o` reads.
inline std::int64_t position_of(const ConvProblem& p, int axis, std::int64_t o, std::int64_t k) {
  return o * p.stride[axis] + k * p.dilation[axis] - p.pad_lo[axis];
}

// Input element that tap `k` of output `o` reads, or -1 when it falls on padding or between dilated elements.
inline std::int64_t input_index(const ConvProblem& p, int axis, std::int64_t o, std::int64_t k) {
  const std::int64_t position = position_of(p, axis, o, k);
  if (p.input_dilation[axis] == 1) return position >= 0 && position < p.input[axis] ? position : -1;
  if (position < 0 || position % p.input_dilation[axis] != 0) return -1;
  const std::int64_t i = position / p.input_dilation[axis];
  return i < p.input[axis] ? i : -1;
}

// Input elements, padding among them, from the first that `outputs` neighbours read to the last, for input_dilation 1.
inline std::int64_t inputs_under(const ConvProblem& p, int axis, std::int64_t outputs) {
  return (outputs - 1) * p.stride[axis] + dilated(p.kernel[axis], p.dilation[axis]);
}

// Bits j of [0, 63) with left <= first + j < right.
constexpr std::uint64_t positions_inside(std::int64_t left, std::int64_t right, std::int64_t first) {
  const std::int64_t lo = std::clamp<std::int64_t>(left - first, 0, 63);
  const std::int64_t hi = std::clamp<std::int64_t>(right - first, 0, 63);
  return (~std::uint64_t{0} << lo) & ((std::uint64_t{1} << hi) - 1);
}

struct Range {
  std::int64_t begin, end;
  std::int64_t size() const { return end > begin ? end - begin : 0; }
  bool contains(std::int64_t i) const { return begin <= i && i < end; }
};

// Part i of `parts` of [0, size), all of nearly equal size.
inline Range nth_part(std::int64_t size, std::int64_t i, std::int64_t parts) {
  return {size * i / parts, size * (i + 1) / parts};
}

inline Range common(const Range& a, const Range& b) { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }

// The positions, padding among them, that `outputs` read, and whether all of them are inside the input; for
// input_dilation 1.
inline Range positions_under(const ConvProblem& p, int axis, Range outputs) {
  const std::int64_t first = outputs.begin * p.stride[axis] - p.pad_lo[axis];
  return {first, first + inputs_under(p, axis, outputs.size())};
}
inline bool reads_inside(const ConvProblem& p, int axis, Range outputs) {
  const Range read = positions_under(p, axis, outputs);
  return read.begin >= 0 && read.end <= p.input[axis];
}

// Outputs along an axis from one to the next that reads positions a whole number of dilations further on, and that
// number: the stride of the dense problem they are part of.
inline std::int64_t dense_step(const ConvProblem& p, int axis) {
  return p.dilation[axis] / std::gcd(p.stride[axis], p.dilation[axis]);
}
inline std::int64_t dense_stride(const ConvProblem& p, int axis) {
  return p.stride[axis] / std::gcd(p.stride[axis], p.dilation[axis]);
}

// Outputs of [0, output) whose tap `k` reads inside the input, for input_dilation 1.
inline Range outputs_inside(const ConvProblem& p, int axis, std::int64_t k) {
  const std::int64_t shift = k * p.dilation[axis] - p.pad_lo[axis];  // position = o * stride + shift
  const std::int64_t begin = ceil_div(-shift, p.stride[axis]);
  const std::int64_t end = floor_div(p.input[axis] - 1 - shift, p.stride[axis]) + 1;
  return {begin < 0 ? 0 : begin, end > p.output[axis] ? p.output[axis] : end};
}

// Outputs of which every tap reads inside the input, for input_dilation 1.
inline Range whole_outputs(const ConvProblem& p, int axis) {
  return common(outputs_inside(p, axis, 0), outputs_inside(p, axis, p.kernel[axis] - 1));
}

// Of all pairs of an output and a tap, the share that reads inside the input, for input_dilation 1.
inline double share_inside(const ConvProblem& p, int axis) {
  double pairs = 0;
  for (std::int64_t k = 0; k < p.kernel[axis]; ++k) pairs += static_cast<double>(outputs_inside(p, axis, k).size());
  const std::int64_t all = p.kernel[axis] * p.output[axis];
  return all > 0 ? pairs / static_cast<double>(all) : 1;
}

// Taps of [0, kernel) that read inside the input for output `o`, for input_dilation 1.
inline Range taps_inside(const ConvProblem& p, int axis, std::int64_t o) {
  const std::int64_t shift = o * p.stride[axis] - p.pad_lo[axis];  // position = k * dilation + shift
  const std::int64_t dilation = p.dilation[axis], behind = p.input[axis] - shift;
  const std::int64_t begin = dilation == 1 ? -shift : ceil_div(-shift, dilation);
  const std::int64_t end = dilation == 1 ? behind : floor_div(behind - 1, dilation) + 1;
  return {begin < 0 ? 0 : begin, end > p.kernel[axis] ? p.kernel[axis] : end};
}

}  // namespace vkconv
