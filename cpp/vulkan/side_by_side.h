// The C++ twin of glsl/side_by_side.glsl: slices (output depths of images) side by side along x.
#pragma once
#include <algorithm>
#include <cstdint>

#include "core/checked.h"
#include "core/orientation.h"
#include "core/pixel_row.h"
#include "vulkan/device.h"

namespace vkconv::vulkan {

struct SideBySide {
  std::int64_t slices = 0, pitch = 0;  // output columns from one slice to the next
  bool straddled = true;               // tiles hold columns of several slices, which a gap separates
  std::int64_t columns() const { return checked_mul(slices, pitch); }
};

// The input of a slice takes pitch * stride columns. Its taps read from -pad_lo to reach - pad_lo relative to it, which
// must lie right of the input before it and left of the input after it.
inline SideBySide side_by_side(const ConvProblem& p) {
  const std::int64_t pad = p.pad_lo[2], stride = p.stride[2];
  const std::int64_t reach = (p.output[2] - 1) * stride + (p.kernel[2] - 1) * p.dilation[2];
  const std::int64_t least = std::max({p.input[2] + std::max<std::int64_t>(pad, 0), reach - pad + 1});
  return {checked_mul(p.batch, p.output[0]), std::max(ceil_div(least, stride), p.output[2])};
}

// The same in tiles of some columns, or every slice in tiles of its own where those are fewer.
inline SideBySide side_by_side(const ConvProblem& p, std::int64_t tile_columns) {
  const SideBySide straddled = side_by_side(p);
  const SideBySide apart{straddled.slices, round_up(p.output[2], tile_columns), false};
  return apart.columns() < round_up(straddled.columns(), tile_columns) ? apart : straddled;
}

// Makes depths of the rows of a problem without depth.
inline constexpr Orientation kRowsAsDepths{false, {1, 0, 2}};

// Of a problem without depth the rows of a kernel that has one, or whose rows are far apart, become depths: output rows
// lie side by side in a strip, and no tile holds the input between its taps' rows.
constexpr std::int64_t kFarRows = 6;
inline bool rows_are_slices(const ConvProblem& p) {
  return without_extent(p, 0) && (p.kernel[1] == 1 || p.dilation[1] >= kFarRows);
}

// The problem, and the operands of problem `p`, with such rows as depths.
inline ConvProblem rows_as_slices(const ConvProblem& p) { return rows_are_slices(p) ? kRowsAsDepths.apply(p) : p; }
inline Operands<Device> rows_as_slices(const ConvProblem& p, const Operands<Device>& a) {
  return rows_are_slices(p) ? kRowsAsDepths.apply(a) : a;
}

// Whether taps along the depth would share the input of a tile, were depths rows. A plane without height is a strip
// already, which such tiles are slower than.
inline bool has_depth_taps(const ConvProblem& p) {
  return p.kernel[0] > 1 && p.kernel[1] == 1 && p.output[1] > 1 && p.dilation[0] < kFarRows;
}

// Whether pixels are few enough to be one row where they are evenly apart, and whether they are.
inline bool may_be_row(const ConvProblem& p) {
  return is_pointwise(p) && p.batch * p.output_pixels() < std::int64_t{1} << 30;
}
inline bool pixels_are_row(const ConvProblem& p, const Operands<Device>& a) {
  return may_be_row(p) && evenly_apart(p, a);
}

}  // namespace vkconv::vulkan
