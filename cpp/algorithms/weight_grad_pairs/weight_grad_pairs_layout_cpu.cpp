#include <limits>
#include <utility>

#include "algorithms/weight_grad_pairs/weight_grad_pairs.h"

namespace vkconv::cpu::weight_grad_pairs {
namespace {

constexpr std::int64_t kSliceTerms = 1024;  // packing what the last tap reads behind them counts little then

// Runs along an axis. Taps whose inputs are those of another tap a few outputs on share its run, up to `reach` outputs
// from one to the next, -1: none; with `even`, only whole pairs further on.
AxisRuns axis_runs(const ConvProblem& p, int axis, std::int64_t reach, bool even) {
  AxisRuns made;
  std::vector<std::int64_t> begin, last;  // of each run: the outputs whose first tap its first and last taps are like
  for (std::int64_t k = 0; k < p.kernel[axis]; ++k) {
    const std::int64_t position = k * p.dilation[axis] - p.pad_lo[axis];
    const std::int64_t output = floor_div(position, p.stride[axis]);
    std::size_t run = 0;
    for (; run < begin.size(); ++run) {
      const bool alike = (position - made.first[run]) % p.stride[axis] == 0;
      if (alike && output - last[run] <= reach && !(even && (output - begin[run]) % 2 != 0)) break;
    }
    if (run == begin.size()) {
      made.first.push_back(position);
      begin.push_back(output);
      last.push_back(output);
    }
    last[run] = output;
    made.taps.push_back({static_cast<std::int64_t>(run), output - begin[run]});
    made.most_shift = std::max(made.most_shift, output - begin[run]);
  }
  return made;
}

// Taps along W side by side, where that leaves fewer zeros.
bool fills_vectors(const ConvProblem& p) {
  const std::int64_t in = p.in_channels_per_group(), taps = p.kernel[2], lanes = kDotTile.lanes;
  return taps > 1 && p.groups == 1 && 3 * taps * round_up(in, lanes) >= 4 * round_up(taps * in, lanes);
}

void set_columns(Layout& s, const ConvProblem& p) {
  constexpr double kPackedOutputs = 50;  // multiply-adds with so many output channels take as long as packing a value
  s.channels = p.in_channels_per_group();
  s.taps_are_channels = fills_vectors(p);
  if (s.taps_are_channels) {
    s.columns.first = {-p.pad_lo[2]};
    s.columns.taps = {{}};
    s.channels *= p.kernel[2];
  } else {
    const AxisRuns apart = axis_runs(p, 2, -1, true), shared = axis_runs(p, 2, p.output[2], true);
    const auto outputs = static_cast<double>(p.kernel[1] * p.kernel[2] * p.out_channels_per_group());
    const auto cost = [&](const AxisRuns& runs) {
      return static_cast<double>(p.output[2] + runs.most_shift) *
             (static_cast<double>(runs.count()) * kPackedOutputs + outputs);
    };
    s.columns = cost(shared) < cost(apart) ? shared : apart;
  }
  s.columns_of_run = round_up(s.channels, kDotTile.lanes);
}

void set_slices(Layout& s, const ConvProblem& p) {
  s.width = even_part(p.output[2], kSliceTerms);
  s.segments = ceil_div(p.output[2], s.width);
  s.pitch = s.width + s.columns.most_shift;
  if (p.kernel[1] > 1) s.pitch = round_up(s.pitch, 2);
  s.lines = s.segments > 1 ? 1 : even_part(p.output[1], std::max<std::int64_t>(1, kSliceTerms / s.pitch));
  s.line_parts = ceil_div(p.output[1], s.lines);
  s.rows = axis_runs(p, 1, s.lines, false);
  s.terms = round_up(s.lines * s.pitch, kTileTerms);
  s.run_terms = round_up(s.rows.most_shift * s.pitch + s.columns.most_shift + s.terms, 2);
  s.sequence = p.output[0], s.sequences = p.batch * s.parts();
  if (p.kernel[0] == 1) s.sequence *= std::exchange(s.sequences, 1);
  s.together = std::clamp<std::int64_t>(kBlock / s.terms, 1, s.sequence);
}

void set_chunk(Layout& s, const ConvProblem& p, std::int64_t slices) {
  s.chunk_slices = slices;
  s.planes = p.kernel[0] > 1 ? (slices - 1) * p.stride[0] + dilated(p.kernel[0], p.dilation[0]) : slices;
  // An odd number of cache lines, so that channels lie in different sets.
  constexpr std::int64_t kLine = kLineBytes / 2;
  s.gradient_pitch = (slices * s.terms / kLine | 1) * kLine;
}

// Every thread has a task. Splits of the output channels pack the same inputs, parts of the pixels have sums to add.
void set_tasks(Layout& s, const ConvProblem& p, std::int64_t threads) {
  constexpr double kAddedSum = 4;  // adding one up, which another core made, takes as long as packing so many values
  const std::int64_t slices = s.sequence * s.sequences, out = p.out_channels_per_group();
  const auto packed = static_cast<double>(slices) * static_cast<double>(s.runs() * s.run_elements());
  double least = std::numeric_limits<double>::max();
  for (std::int64_t splits = 1; splits <= threads; ++splits) {
    const std::int64_t parts = std::min(threads / splits, s.blocks()), tasks = parts * splits;
    // Of one group, each packs all inputs.
    const double cost = packed * static_cast<double>(p.groups == 1 ? splits : 1) +
                        kAddedSum * static_cast<double>((parts - 1) * s.sum_count(p));
    const double all = cost * static_cast<double>(round_up(tasks, threads)) / static_cast<double>(tasks);
    if ((splits > 1 && p.out_channels < 2 * kTileRows * splits) || all >= least) continue;
    least = all;
    s.pixel_parts = parts, s.splits = splits;
  }
  const std::int64_t of_task = ceil_div(p.out_channels, s.splits);
  s.task_outputs = round_up(std::min(of_task, out), kTileRows);
  s.task_groups = std::min(p.groups, (of_task + out - 2) / out + 1);
}

}  // namespace

Layout choose_layout(const ConvProblem& p, Bf16Unit unit, const Traits& traits, std::size_t limit_bytes) {
  Layout s;
  s.unit = unit;
  set_columns(s, p);
  set_slices(s, p);
  set_chunk(s, p, s.together);
  set_tasks(s, p, traits.threads);
  // Sums are read and written once a chunk, whose operands stay in L2.
  while (s.chunk_slices < s.sequence) {
    Layout larger = s;
    set_chunk(larger, p, std::min(2 * s.chunk_slices, round_up(s.sequence, s.together)));
    if (4 * larger.slot_bytes() > 3 * traits.l2_bytes) break;
    s = larger;
  }
  set_chunk(s, p, round_up(even_part(s.sequence, s.chunk_slices), s.together));
  s.slots = static_cast<int>(std::min<std::int64_t>(traits.threads, s.pixel_parts * s.splits));
  while (s.slots > 1 && s.bytes(p) > limit_bytes) --s.slots;
  return s;
}

}  // namespace vkconv::cpu::weight_grad_pairs
