// The C++ twin of glsl/side_by_side.glsl: slices (output depths of images) side by side along x.
#pragma once
#include <algorithm>
#include <cstdint>

#include "core/checked.h"
#include "core/problem.h"

namespace vkconv::vulkan {

struct SideBySide {
  std::int64_t slices = 0, pitch = 0;  // output columns from one slice to the next
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

}  // namespace vkconv::vulkan
