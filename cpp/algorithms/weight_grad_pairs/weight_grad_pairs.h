// How weight_grad_pairs cuts a problem, and what it packs.
//
// A slice is some lines of outputs, or a segment of one: a line is `pitch` terms of the sums, a slice `terms`, with
// zeros behind its outputs. Output gradients are packed [output channel][term]. Inputs are packed in runs, panels of
// pairs of terms [term / 2][channel][term % 2]: those that the outputs of a slice meet at the same tap, and, since taps
// further on meet them some terms later, those of other taps too. Both lie so that a tap's terms begin at a cache line.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/algorithm.h"
#include "core/geometry.h"
#include "cpu/bf16_unit.h"
#include "cpu/device.h"

namespace vkconv::cpu::weight_grad_pairs {

// Where a tap finds its inputs along an axis: in which of the axis' runs, and how many outputs behind its first tap.
struct Place {
  std::int64_t run = 0, shift = 0;
};

// The runs of an axis, each by the position that output 0 reads at its first tap, and the places of the taps.
struct AxisRuns {
  std::vector<std::int64_t> first;
  std::vector<Place> taps;
  std::int64_t most_shift = 0;

  std::int64_t count() const { return static_cast<std::int64_t>(first.size()); }
  std::int64_t tap_count() const { return static_cast<std::int64_t>(taps.size()); }
};

struct Layout {
  Bf16Unit unit = Bf16Unit::none;
  AxisRuns rows, columns;                         // along H and W
  bool taps_are_channels = false;                 // of a run along W, side by side: it has a single place
  std::int64_t lines = 0, width = 0, pitch = 0;   // of a slice: lines, outputs of a line, terms of a line
  std::int64_t line_parts = 0, segments = 0;      // slices of a plane, and of a line
  std::int64_t terms = 0, run_terms = 0;          // of a slice, of a run
  std::int64_t channels = 0, columns_of_run = 0;  // of a run in a group, and with the zeros that fill vectors
  // Slices follow each other along the depth, so that neighbours share planes of the input where the kernel has a
  // depth: a chunk of them, which is packed together, goes on in the next sequence only where it has none.
  std::int64_t sequence = 0, sequences = 0, chunk_slices = 0;
  std::int64_t together = 1;  // slices of a sequence that are summed in registers: chunks and parts have all of them
  std::int64_t planes = 0;    // of the input, packed for a chunk
  std::int64_t gradient_pitch = 0;                 // terms from output channel to output channel
  std::int64_t pixel_parts = 1, splits = 1;        // tasks: parts of the slices, each with its sums, times splits
  std::int64_t task_outputs = 0, task_groups = 0;  // of a task: a group's output channels in whole vectors, groups
  int slots = 1;

  std::int64_t parts() const { return line_parts * segments; }
  std::int64_t blocks_in_sequence() const { return ceil_div(sequence, together); }
  std::int64_t blocks() const { return sequences * blocks_in_sequence(); }
  std::int64_t runs() const { return rows.count() * columns.count(); }
  std::int64_t plane_taps() const { return rows.tap_count() * columns.tap_count(); }
  std::int64_t run_elements() const { return run_terms * columns_of_run; }
  // The output channels of all groups that split `i` has.
  Range split_outputs(const ConvProblem& p, std::int64_t i) const { return nth_part(p.out_channels, i, splits); }
  std::size_t gradient_bytes() const {
    return aligned_bytes(checked_mul(2 * task_groups * task_outputs, gradient_pitch));
  }
  std::size_t slot_bytes() const {
    return gradient_bytes() + aligned_bytes(checked_mul(checked_mul(2 * planes, runs() * task_groups), run_elements()));
  }
  // Of one part of the pixels: [group][tap][output channel][channel].
  std::int64_t sum_count(const ConvProblem& p) const {
    return checked_mul(p.kernel[0] * plane_taps() * p.out_channels, columns_of_run);
  }
  std::size_t sum_bytes(const ConvProblem& p) const {
    return aligned_bytes(checked_mul(4 * pixel_parts, sum_count(p)));
  }
  std::size_t bytes(const ConvProblem& p) const {
    return sum_bytes(p) + static_cast<std::size_t>(slots) * slot_bytes();
  }
};

inline constexpr std::int64_t kBlock = 512;  // terms summed in registers, about

// For a problem with its axes in the order that the plan gives them.
Layout choose_layout(const ConvProblem& p, Bf16Unit unit, const Traits& traits, std::size_t limit_bytes);

// False: some operands are infinite or NaN, whose products with the zeros of a slice are NaN.
bool run(const ConvProblem& p, const Layout& layout, const Operands<Device>& operands, std::byte* workspace);

}  // namespace vkconv::cpu::weight_grad_pairs
