// Borders that are not zeros, as an index map. A position of a padded axis counts from the first input element; outside
// of [0, extent) it repeats an element of the input, or is a constant. Only the outputs near the border read such
// positions, so a convolution is an inner part on the input itself and thin parts on small copies.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/problem.h"

namespace vkconv {

enum class BorderMode : std::uint8_t { zeros, reflect, symmetric, edge, circular, constant };
std::string_view to_string(BorderMode mode);

struct Border {
  BorderMode mode = BorderMode::zeros;
  double value = 0;  // of BorderMode::constant

  bool zeros() const { return mode == BorderMode::zeros || (mode == BorderMode::constant && value == 0); }
  bool repeats() const { return mode != BorderMode::zeros && mode != BorderMode::constant; }
};

// Positions [at, at + count) of a padded axis, which are the elements from, from + step, ... or the constant.
struct Run {
  std::int64_t at = 0, count = 1, from = 0, step = 1;
  bool constant = false;
};

// Positions [begin, end) of an axis of `extent` elements, not zero of them where the border repeats some.
std::vector<Run> runs(const Border& border, std::int64_t extent, std::int64_t begin, std::int64_t end);

// Positions [begin, end) along every axis.
struct Box {
  Extent3 begin, end;
  Extent3 extent() const { return {end[0] - begin[0], end[1] - begin[1], end[2] - begin[2]}; }
  bool empty() const { return begin[0] >= end[0] || begin[1] >= end[1] || begin[2] >= end[2]; }
};

// What the outputs in `outputs` read, and the outputs that read something in `positions`.
Box positions_read(const ConvProblem& p, const Box& outputs);
Box outputs_reading(const ConvProblem& p, const Box& positions);

bool reads_border(const ConvProblem& p);

// The outputs in disjoint parts. `inside`: the part reads the input only. The first part is the largest; it is the only
// one where the thin parts would move about as much as a copy of the whole.
struct BorderPart {
  Box outputs;
  bool inside;
};
std::vector<BorderPart> border_parts(const ConvProblem& p);

// A part as a problem without padding, whose input is positions_read().
ConvProblem part_problem(const ConvProblem& p, const Box& outputs);

// The positions outside of the input, in disjoint boxes: along each axis those before and after it, within the input
// along the axes before, with the border along the axes after.
std::vector<Box> border_boxes(const ConvProblem& p);

}  // namespace vkconv
