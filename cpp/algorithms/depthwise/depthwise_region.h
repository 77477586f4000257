// The part of the input behind a block of outputs, and how a staged copy of it is laid out.
#pragma once
#include <algorithm>

#include "algorithms/depthwise/depthwise.h"
#include "cpu/cache_sets.h"
#include "cpu/lines.h"

namespace vkconv::cpu::depthwise {

// Copied as [depth][row][phase][position][channel]: column w is position floor(w / phases) of phase w mod phases.
struct Region {
  Range depths{}, rows{}, columns{};  // of the input
  Range channels{};                   // of the output
  std::int64_t pixel = 0;             // elements between positions, of which the channels are the first
  std::int64_t phases = 1, first_position = 0;
  std::int64_t phase_length = 0;  // elements
  std::int64_t line_length() const { return phases * phase_length; }
  std::int64_t elements() const { return depths.size() * rows.size() * line_length(); }
};

// Elements from pixel to pixel of a copy, so far apart that they do not crowd a set of L1.
inline std::int64_t staged_pixel(const ConvProblem& p, std::int64_t channels) {
  constexpr std::int64_t kFewSets = 4;
  const std::int64_t bytes = accumulator_bytes(p.dtype);
  return channels + (crowd_sets(channels * bytes, kFewSets) ? kLineBytes / bytes : 0);
}

// Input indices that outputs [out.begin, out.end) read along one axis.
inline Range input_range(const ConvProblem& p, int axis, const Range& out) {
  const Range read = positions_under(p, axis, out);
  const std::int64_t begin = std::max<std::int64_t>(read.begin, 0);
  return {begin, std::max(begin, std::min(read.end, p.input[axis]))};
}

inline Region block_region(const ConvProblem& p, const Block& b) {
  Region r;
  r.depths = input_range(p, 0, {b.od, b.od + 1});
  r.rows = input_range(p, 1, b.oh);
  r.columns = input_range(p, 2, b.ow);
  r.channels = b.channels;
  r.first_position = r.columns.begin;
  r.pixel = staged_pixel(p, r.channels.size());
  r.phase_length = r.columns.size() * r.pixel;
  return r;
}

// Phases are those of the stride along W. `slack` elements may be read in front of and behind the columns.
inline Region flat_region(const ConvProblem& p, const Block& b, std::int64_t slack) {
  Region r = block_region(p, b);
  r.phases = p.stride[2];
  const std::int64_t channels = r.channels.size(), margin = ceil_div(slack, channels);
  r.first_position = floor_div(r.columns.begin, r.phases) - margin;
  const std::int64_t positions = floor_div(r.columns.end, r.phases) + 1 + margin - r.first_position;
  r.phase_length = round_up(positions * channels, kMaxLanes);
  return r;
}

}  // namespace vkconv::cpu::depthwise
