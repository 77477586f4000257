// The grouped kernel of implicit_gemm: one vector of output channels spans several small groups, and a permutation of
// one vector of input channels gives every lane the input channel of its own group. Where groups have one output
// for many products, each lane keeps the input that it loads instead, and the sums of a group are folded at the end.
#pragma once
#include <algorithm>
#include <cstddef>
#include <numeric>

#include "core/algorithm.h"
#include "core/checked.h"
#include "core/orientation.h"
#include "cpu/device.h"

namespace vkconv::cpu {

inline constexpr std::int64_t kGroupedPixels = 8;  // outputs along W in registers
inline constexpr int kGroupedTaps = 3;             // of a run, that share the permuted input

struct GroupedLayout {
  ConvProblem p;  // with its axes in the order of `orientation`
  Orientation orientation;
  std::int64_t lanes = 4;
  std::int64_t outputs = 1;  // of a vector
  std::int64_t vectors = 1;  // of output channels
  std::int64_t rows = 0, chunk_rows = 1;
  bool copied = false;   // the rows of input: halves, and pixels of fewer channels than a vector, which is loaded whole
  bool fetched = false;  // those that the next outputs read are fetched ahead
  std::size_t packed_bytes = 0, stage_bytes = 0;
  int slots = 1;

  bool folds() const {
    constexpr std::int64_t kWorth = 16;  // multiply-adds of a vector that a vector of outputs saves
    return p.out_channels_per_group() == 1 && p.taps() * (p.in_channels_per_group() - 1) >= kWorth;
  }
  std::int64_t lane_inputs() const { return folds() ? 1 : p.in_channels_per_group(); }
  std::int64_t terms() const { return p.taps() * lane_inputs(); }  // of a lane
  // First input channel of the group of a vector's first output.
  std::int64_t first_input(std::int64_t vector) const {
    return vector * outputs / p.out_channels_per_group() * p.in_channels_per_group();
  }
  // First input channel loaded for a vector; the load must not run past a pixel that is read in place.
  std::int64_t window(std::int64_t vector) const {
    return std::min(first_input(vector), std::max<std::int64_t>(p.in_channels - lanes, 0));
  }
  std::int64_t outputs_of(std::int64_t vector) const { return std::min(outputs, p.out_channels - vector * outputs); }
  std::int64_t chunks() const { return ceil_div(rows, chunk_rows); }
  // Where the packed weights of all vectors are followed by a mark for each: whether they are finite.
  std::int64_t mark(std::int64_t vector) const { return vectors * terms() * lanes + vector; }
  std::size_t workspace_bytes() const { return packed_bytes + stage_bytes * static_cast<std::size_t>(slots); }
};

// Output channels of a vector: all its lanes, if the groups that any such vector meets have no more inputs, or those of
// as many groups as fit; 0: not even one does.
inline std::int64_t outputs_in_vector(const ConvProblem& p, std::int64_t lanes) {
  const std::int64_t in = p.in_channels_per_group(), out = p.out_channels_per_group();
  const std::int64_t last_start = out - std::gcd(out, lanes);  // of vectors within their first groups
  const std::int64_t groups = std::min(p.groups, ceil_div(last_start + lanes, out));
  return groups * in <= lanes ? lanes : lanes / std::max(in, out) * out;
}

GroupedLayout grouped_layout(const ConvProblem& p, const Context<Device>& context, std::int64_t lanes);

// Implemented once per instruction set in grouped_simd.cpp.
void run_grouped(const GroupedLayout& layout, const Operands<Device>& operands, std::byte* workspace);
void pack_grouped(const GroupedLayout& layout, const WeightView<std::byte*>& weight, std::byte* packed);

}  // namespace vkconv::cpu
