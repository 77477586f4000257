#include "core/border.h"

#include <algorithm>

#include "core/checked.h"
#include "core/geometry.h"

namespace vkconv {
namespace {

// The element that position q outside of an axis repeats.
std::int64_t source(BorderMode mode, std::int64_t q, std::int64_t extent) {
  switch (mode) {
    case BorderMode::edge:
      return std::clamp<std::int64_t>(q, 0, extent - 1);
    case BorderMode::circular:
      return floor_mod(q, extent);
    case BorderMode::reflect: {  // a b c d c b, again and again
      const std::int64_t period = std::max<std::int64_t>(2 * (extent - 1), 1), m = floor_mod(q, period);
      return m < extent ? m : period - m;
    }
    default: {  // symmetric: a b c d d c b a
      const std::int64_t m = floor_mod(q, 2 * extent);
      return m < extent ? m : 2 * extent - 1 - m;
    }
  }
}

// A run from position q on that ends before `end`: as far as the input, there or back, is repeated. Outside of it.
Run repeated(BorderMode mode, std::int64_t q, std::int64_t end, std::int64_t extent) {
  const std::int64_t from = source(mode, q, extent), left = end - q;
  if (mode == BorderMode::edge || extent == 1) return {q, left, from, 0};
  const std::int64_t step = source(mode, q + 1, extent) - from;
  if (step != 1 && step != -1) return {q, 1, from, 1};
  return {q, std::min(left, step == 1 ? extent - from : from + 1), from, step};
}

std::int64_t volume(const Box& box) {
  const Extent3 e = box.extent();
  return checked_mul(checked_mul(e[0], e[1]), e[2]);
}

Box all_outputs(const ConvProblem& p) { return {{0, 0, 0}, p.output}; }

// Outputs that read the input only.
Box inner_outputs(const ConvProblem& p) {
  Box inner;
  for (int a = 0; a < 3; ++a) {
    const Range whole = whole_outputs(p, a);
    inner.begin[a] = whole.begin, inner.end[a] = whole.end;
  }
  return inner;
}

// `whole` without `inner`: along each axis the slab before and after `inner`, within `inner` along the axes before.
std::vector<Box> around(Box whole, const Box& inner) {
  std::vector<Box> boxes;
  for (int a = 0; a < 3; ++a) {
    Box before = whole, after = whole;
    before.end[a] = std::min(whole.end[a], inner.begin[a]);
    after.begin[a] = std::max(whole.begin[a], inner.end[a]);
    for (const Box& box : {before, after})
      if (!box.empty()) boxes.push_back(box);
    whole.begin[a] = std::max(whole.begin[a], inner.begin[a]);
    whole.end[a] = std::min(whole.end[a], inner.end[a]);
  }
  return boxes;
}

}  // namespace

std::string_view to_string(BorderMode mode) {
  constexpr std::string_view names[] = {"zeros", "reflect", "symmetric", "edge", "circular", "constant"};
  return names[static_cast<std::size_t>(mode)];
}

std::vector<Run> runs(const Border& border, std::int64_t extent, std::int64_t begin, std::int64_t end) {
  std::vector<Run> made;
  for (std::int64_t q = begin; q < end; q += made.back().count) {
    const bool inside = q >= 0 && q < extent;
    const std::int64_t limit = inside ? std::min(end, extent) : q < 0 ? std::min<std::int64_t>(end, 0) : end;
    if (inside)
      made.push_back({q, limit - q, q, 1});
    else if (border.repeats())
      made.push_back(repeated(border.mode, q, limit, extent));
    else
      made.push_back({q, limit - q, 0, 0, true});
  }
  return made;
}

Box positions_read(const ConvProblem& p, const Box& outputs) {
  Box box;
  for (int a = 0; a < 3; ++a) {
    const Range read = positions_under(p, a, {outputs.begin[a], outputs.end[a]});
    box.begin[a] = read.begin;
    box.end[a] = read.end;
  }
  return box;
}

Box outputs_reading(const ConvProblem& p, const Box& positions) {
  Box box;
  for (int a = 0; a < 3; ++a) {
    const std::int64_t reach = (p.kernel[a] - 1) * p.dilation[a];
    box.begin[a] = std::max<std::int64_t>(ceil_div(positions.begin[a] + p.pad_lo[a] - reach, p.stride[a]), 0);
    box.end[a] = std::min(floor_div(positions.end[a] - 1 + p.pad_lo[a], p.stride[a]) + 1, p.output[a]);
  }
  return box;
}

bool reads_border(const ConvProblem& p) {
  for (int a = 0; a < 3; ++a)
    if (!reads_inside(p, a, {0, p.output[a]})) return true;
  return false;
}

std::vector<BorderPart> border_parts(const ConvProblem& p) {
  const Box whole = all_outputs(p), inner = inner_outputs(p);
  if (inner.empty()) return {{whole, false}};
  std::vector<BorderPart> parts{{inner, true}};
  const std::int64_t pixel = p.batch * p.in_channels;
  std::int64_t moved = 0;  // elements that the parts copy or, in the weight gradient, add
  for (const Box& slab : around(whole, inner)) {
    parts.push_back({slab, false});
    moved = checked_add(moved, checked_mul(volume(positions_read(p, slab)), pixel));
    if (p.pass == Pass::weight_grad) moved = checked_add(moved, p.weight_elements());
  }
  if (moved > checked_mul(volume(positions_read(p, whole)), pixel) / 2) return {{whole, false}};
  return parts;
}

ConvProblem part_problem(const ConvProblem& p, const Box& outputs) {
  ConvProblem part = p;
  part.output = outputs.extent();
  part.input = positions_read(p, outputs).extent();
  part.pad_lo = {0, 0, 0};
  return canonical(part);
}

std::vector<Box> border_boxes(const ConvProblem& p) {
  return around(positions_read(p, all_outputs(p)), {{0, 0, 0}, p.input});
}

}  // namespace vkconv
