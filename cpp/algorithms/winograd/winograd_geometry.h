// How a problem is laid out for Winograd: which axis plays which part, and the sizes of everything transformed.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/winograd/winograd_kernels.h"
#include "core/geometry.h"
#include "core/orientation.h"
#include "core/problem.h"
#include "cpu/lines.h"

namespace vkconv::cpu::winograd {

// Longest chain of additions of products. Longer sums are sums of such chains, which bounds their rounding error, of
// which it is the larger part in two dimensions. The bound of F2 is the tighter one. Sums shorter than a chain are cut,
// so that results of normally distributed data are within 1e-4 of the exact ones, as tests compare them; of longer sums
// no cut would do that, and chains of 128 terms are 5 to 15 % faster.
inline constexpr std::int64_t kMaxChainTerms = 128;
constexpr std::int64_t chain_terms(const TileShape& s, std::int64_t terms) {
  if (s.points_h() <= 4 && s.points_w() <= 4) return 64;
  return s.points_h() > 1 && s.points_w() > 1 && terms < kMaxChainTerms ? 48 : kMaxChainTerms;
}

// Taps of h and w that one tile shape covers: `h` + i stride_h for i < taps_h, and likewise along w. A kernel
// with more taps than the shape, or with a stride, is cut into parts, each a small kernel of stride 1 on its own
// phase of the input. They are transformed like further input channels and summed in the transform domain. A part
// with fewer taps than the shape is a polynomial of lower degree and vanishes at infinity: F(4x4) of a 3x3 kernel with
// stride 2 multiplies (5 + 4)^2 = 81 values where the definition multiplies 144.
struct KernelPart {
  std::int64_t h, w, taps_h, taps_w;
};

// Terms summed in one chain: taps [tap_begin, tap_end) of the summed axis, channels [channel_begin, channel_end) of
// all parts. The cut depends on the problem only, so every blocking gives the same bits.
struct ReductionBlock {
  std::int64_t tap_begin, tap_end, channel_begin, channel_end;
  std::int64_t taps() const { return tap_end - tap_begin; }
  std::int64_t channels() const { return channel_end - channel_begin; }
  std::int64_t terms() const { return taps() * channels(); }
};

// The problem with its axes reordered as (summed, h, w): taps of the summed axis are added up in the transform domain
// and may have any stride, dilation and padding; h and w are tiled. A deep shape tiles all three.
struct Geometry {
  ConvProblem problem;
  Orientation orientation;  // of the original problem
  int shape_index = 0;
  TileShape shape{};
  std::int64_t tiles_d = 0, tiles_h = 0, tiles_w = 0;
  // Without summed taps, in the kernel or in a deep shape, the first axis is part of the batch: tile positions.
  bool folded = false;
  std::int64_t positions = 0;  // tiles of one summed-axis output: batch (x folded depth) x tiles_h x tiles_w
  std::int64_t depths = 0;     // summed-axis outputs a position
  std::int64_t in_channels = 0, out_channels = 0;  // of one group
  std::vector<KernelPart> parts;
  std::vector<ReductionBlock> reduction;

  // Transformed channels of one summed tap: [part][channel].
  std::int64_t channels() const { return static_cast<std::int64_t>(parts.size()) * in_channels; }
  std::int64_t summed_taps() const { return folded ? 1 : problem.kernel[0]; }
  std::int64_t terms() const { return summed_taps() * channels(); }
  std::int64_t first_term(const ReductionBlock& r) const { return r.tap_begin * channels() + r.channel_begin; }
  const KernelPart& part(std::int64_t channel) const { return parts[static_cast<std::size_t>(channel / in_channels)]; }
  // At a point of a plane.
  bool vanishes(const KernelPart& part, std::int64_t point) const {
    const std::int64_t i = point / shape.points_w(), j = point % shape.points_w();
    return (i == shape.points_h() - 1 && part.taps_h < shape.rh) ||
           (j == shape.points_w() - 1 && part.taps_w < shape.rw);
  }
  // Of a block's channels, those whose part does not vanish at the point.
  std::int64_t used_channels(const ReductionBlock& r, std::int64_t point) const {
    if (parts.size() == 1) return r.channels();  // it has all taps of the shape
    std::int64_t used = 0;
    const std::int64_t step = std::min(r.channels(), in_channels);
    for (std::int64_t c = r.channel_begin; c < r.channel_end; c += step) used += vanishes(part(c), point) ? 0 : step;
    return used;
  }
  // Of all pairs of a point and a part, those that do not vanish.
  double used_share() const;
  // Summed-axis taps of depth output `d` that read inside the input. A folded axis has its one tap everywhere: a
  // tile on padding is transformed from zeros.
  Range taps(std::int64_t d) const { return folded ? Range{0, 1} : taps_inside(problem, 0, d); }
  // The input slice a tap reads.
  std::int64_t slice(std::int64_t d, std::int64_t tap) const { return position_of(problem, 0, d, tap); }
  // Outputs along a tiled axis whose taps do not all fall on padding.
  Range outputs_with_input(int axis) const {
    return {outputs_inside(problem, axis, problem.kernel[axis] - 1).begin, outputs_inside(problem, axis, 0).end};
  }
  // Products behind the output with the fewest; taps that are not tiled count once.
  std::int64_t shortest_sum() const;
  // winograd_f4, or winograd_f2_5x5 for other kernels than 3x3; of deep shapes winograd_f4x4x4 and
  // winograd_f4x4x4_2x3x3.
  std::string name() const;
};

// Every way Winograd applies to the problem, whatever the precision.
std::vector<Geometry> geometries(const ConvProblem& p);

// Panels of transformed weights: [group][output block][point][term][columns].
struct PanelLayout {
  std::int64_t output_blocks, point_stride, panel_floats, groups;
  std::int64_t group_floats() const { return output_blocks * panel_floats; }
  std::int64_t floats() const { return groups * group_floats(); }
};
PanelLayout panel_layout(const Geometry& g, std::int64_t columns);

inline constexpr std::int64_t kLineFloats = kLineBytes / std::int64_t{sizeof(float)};

// Whether vectors fill lines, so that panels that another thread reads can be written past the caches.
constexpr bool streams_panels(std::int64_t lanes) { return lanes % kLineFloats == 0; }

// Floats of at least `count` values whose lines are odd in number, so that equal offsets in consecutive blocks fall
// into different cache sets.
constexpr std::int64_t odd_lines(std::int64_t count) {
  return ((count + kLineFloats - 1) / kLineFloats | 1) * kLineFloats;
}

}  // namespace vkconv::cpu::winograd
