// How unfold_gemm cuts its work. A row of the unfolded matrix is one output pixel of one group: taps * C / groups
// values in the accumulator type, zeros for padding and between dilated elements. A task unfolds tile_rows of them
// into its slot of the workspace and multiplies them by the panels of their group, pack_terms terms at a time.
#pragma once
#include <array>
#include <cstddef>

#include "core/algorithm.h"
#include "core/congruence.h"
#include "core/geometry.h"
#include "cpu/device.h"
#include "cpu/gemm.h"

namespace vkconv::cpu {

// The taps of one axis that meet an input element, for any input dilation: k = first, first + step, ... < end, and
// the element that the first one meets; elements advance by `advance`.
struct MetTaps {
  std::int64_t first = 0, step = 1, end = 0, element = 0, advance = 1;
  std::int64_t count() const { return end > first ? (end - first + step - 1) / step : 0; }
};

// Solves o * stride + k * dilation - pad_lo = element * input_dilation for the outputs of one axis.
class AxisTaps {
 public:
  AxisTaps() = default;
  AxisTaps(const ConvProblem& p, int axis);
  MetTaps at(std::int64_t o) const;

 private:
  std::int64_t stride_ = 1, dilation_ = 1, input_dilation_ = 1, pad_lo_ = 0, kernel_ = 1, input_ = 1;
  Congruence taps_{1, 1};
};

struct UnfoldLayout {
  ConvProblem p;
  std::array<AxisTaps, 3> taps;
  std::int64_t lanes = 4, columns = 8;  // of a panel: one vector when that holds a group's outputs, else two or three
  std::int64_t panels = 0;              // a group
  std::int64_t terms = 0;               // values in an unfolded row
  std::int64_t rows = 0;                // output pixels
  std::int64_t tile_rows = 1, pack_terms = 0;
  bool shared_weights = false;  // every panel is packed into the workspace before the first tile
  int slots = 1;

  std::size_t accumulator_bytes() const { return size_bytes(accumulator(p.dtype)); }
  std::int64_t slot_elements() const;  // unfolded rows, their sums, and a panel being packed
  std::size_t packed_bytes() const;
  std::size_t workspace_bytes() const;
};

// The fastest cut within the limit, or the smallest there is when that is larger.
UnfoldLayout unfold_layout(const ConvProblem& p, const Context<Device>& context, RegisterTile tile);

// Implemented once per instruction set in unfold_gemm_simd.cpp.
void run_unfold(const UnfoldLayout& layout, const Operands<Device>& operands, std::byte* workspace);
void pack_unfold(const UnfoldLayout& layout, const WeightView<std::byte*>& weight, std::byte* packed);

}  // namespace vkconv::cpu
