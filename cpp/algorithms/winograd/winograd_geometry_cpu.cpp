#include "algorithms/winograd/winograd_geometry.h"

#include <algorithm>

#include "core/checked.h"

namespace vkconv::cpu::winograd {
namespace {

// A deep shape has all taps of the first axis.
bool fits_depth(const ConvProblem& p, int axis, const TileShape& s) {
  return !s.deep() || (p.kernel[axis] == s.rd && p.dilation[axis] == 1 && p.stride[axis] == 1);
}

// More parts along an axis read the same input too often.
constexpr std::int64_t kMaxRunsOfTaps = 4;

// A transformed axis needs dilation 1 and as many taps as the shape in one phase of its stride at least; an axis with
// one tap and one output a tile needs nothing.
bool fits(const ConvProblem& p, int axis, int outputs, int taps) {
  if (outputs == 1 && taps == 1) return p.kernel[axis] == 1;
  const std::int64_t longest = ceil_div(p.kernel[axis], p.stride[axis]);
  return p.dilation[axis] == 1 && longest >= taps && longest <= kMaxRunsOfTaps * taps;
}

// First tap and number of taps of every part along one axis, the first part whole. The phases of a stride follow each
// other, so that they are neighbours in the input.
std::vector<std::pair<std::int64_t, std::int64_t>> cut_taps(std::int64_t kernel, std::int64_t stride,
                                                            std::int64_t taps) {
  std::vector<std::pair<std::int64_t, std::int64_t>> parts;
  for (std::int64_t run = 0; run < kernel; run += stride * taps)
    for (std::int64_t first = run; first < std::min(run + stride, kernel); ++first)
      parts.emplace_back(first, std::min(taps, ceil_div(kernel - first, stride)));
  return parts;
}

std::vector<KernelPart> cut_kernel(const ConvProblem& p, const TileShape& s) {
  std::vector<KernelPart> parts;
  for (const auto& [h, taps_h] : cut_taps(p.kernel[1], p.stride[1], s.rh))
    for (const auto& [w, taps_w] : cut_taps(p.kernel[2], p.stride[2], s.rw)) parts.push_back({h, w, taps_h, taps_w});
  return parts;
}

// A block holds several taps with all their parts, several whole parts, or a piece of one part.
std::vector<ReductionBlock> cut_reduction(std::int64_t taps, std::int64_t parts, std::int64_t part_channels,
                                          std::int64_t limit) {
  std::vector<ReductionBlock> blocks;
  const std::int64_t channels = parts * part_channels;
  if (channels <= limit) {
    const std::int64_t step = limit / channels;
    for (std::int64_t t = 0; t < taps; t += step) blocks.push_back({t, std::min(t + step, taps), 0, channels});
    return blocks;
  }
  const std::int64_t whole = limit / part_channels;  // parts a block
  const std::int64_t span = whole > 0 ? part_channels * even_part(parts, whole) : part_channels;
  const std::int64_t step = whole > 0 ? span : round_up(even_part(part_channels, limit), kStagedChannels);
  for (std::int64_t t = 0; t < taps; ++t)
    for (std::int64_t first = 0; first < channels; first += span) {
      const std::int64_t end = std::min(first + span, channels);
      for (std::int64_t c = first; c < end; c += step) blocks.push_back({t, t + 1, c, std::min(c + step, end)});
    }
  return blocks;
}

Geometry make_geometry(const ConvProblem& p, const std::array<int, 3>& axes, int shape_index) {
  Geometry g;
  g.orientation.axes = axes;
  g.problem = g.orientation.apply(p);
  g.shape_index = shape_index;
  g.shape = kTileShapes[shape_index];
  g.tiles_h = ceil_div(g.problem.output[1], g.shape.mh);
  g.tiles_w = ceil_div(g.problem.output[2], g.shape.mw);
  g.folded = g.problem.kernel[0] == 1 || g.shape.deep();
  g.tiles_d = g.folded ? ceil_div(g.problem.output[0], g.shape.md) : 1;
  g.depths = g.folded ? 1 : g.problem.output[0];
  g.positions = p.batch * g.tiles_d * g.tiles_h * g.tiles_w;
  g.in_channels = p.in_channels_per_group();
  g.out_channels = p.out_channels_per_group();
  g.parts = cut_kernel(g.problem, g.shape);
  g.reduction = cut_reduction(g.summed_taps(), static_cast<std::int64_t>(g.parts.size()), g.in_channels,
                              chain_terms(g.shape, g.terms()));
  return g;
}

}  // namespace

std::int64_t Geometry::shortest_sum() const {
  std::int64_t terms = in_channels;
  for (int axis = shape.deep() ? 0 : 1; axis < 3; ++axis) {
    const Range outputs = outputs_with_input(axis);
    if (outputs.size() == 0) continue;
    const Range first = taps_inside(problem, axis, outputs.begin), last = taps_inside(problem, axis, outputs.end - 1);
    terms *= std::min(first.size(), last.size());
  }
  return terms;
}

double Geometry::used_share() const {
  std::int64_t used = 0;
  for (const KernelPart& part : parts)
    for (std::int64_t point = 0; point < shape.plane_points(); ++point) used += vanishes(part, point) ? 0 : 1;
  return static_cast<double>(used) /
         static_cast<double>(shape.plane_points() * static_cast<std::int64_t>(parts.size()));
}

std::string Geometry::name() const {
  const auto times = [](int a, int b) { return std::to_string(a) + "x" + std::to_string(b); };
  std::string s = "winograd_f", kernel = times(shape.rh, shape.rw);
  s += shape.deep() ? times(shape.md, shape.mh) + "x" + std::to_string(shape.mw)
                    : std::to_string(std::max(shape.mh, shape.mw));
  if (shape.deep() && shape.rd != 3) kernel = std::to_string(shape.rd) + "x" + kernel;
  return kernel == "3x3" ? s : s + "_" + kernel;
}

std::vector<Geometry> geometries(const ConvProblem& p) {
  static constexpr std::array<int, 3> kOrders[] = {{0, 1, 2}, {1, 0, 2}, {2, 0, 1}, {0, 2, 1}, {1, 2, 0}, {2, 1, 0}};
  std::vector<Geometry> all;
  for (int i = 0; i < kTileShapeCount; ++i)
    for (const auto& axes : kOrders) {
      const TileShape& s = kTileShapes[i];
      const bool symmetric = s.mh == s.mw && s.rh == s.rw, cubic = symmetric && s.md == s.mh && s.rd == s.rh;
      if ((symmetric && axes[1] > axes[2]) || (cubic && axes[0] > axes[1])) continue;
      if (fits_depth(p, axes[0], s) && fits(p, axes[1], s.mh, s.rh) && fits(p, axes[2], s.mw, s.rw))
        all.push_back(make_geometry(p, axes, i));
    }
  return all;
}

PanelLayout panel_layout(const Geometry& g, std::int64_t columns) {
  PanelLayout l;
  l.output_blocks = ceil_div(g.out_channels, columns);
  l.point_stride = odd_lines(g.terms() * columns);
  l.panel_floats = g.shape.points() * l.point_stride;
  l.groups = g.problem.groups;
  return l;
}

}  // namespace vkconv::cpu::winograd
