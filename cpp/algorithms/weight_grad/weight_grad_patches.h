// Sizes of patches: see weight_grad_patches-inl.h. `p` is the problem whose taps they hold.
#pragma once
#include <algorithm>

#include "core/geometry.h"

namespace vkconv::cpu::weight_grad {

// The pointwise problem whose input pixels are the patches.
inline ConvProblem patches_of(ConvProblem p) {
  p.in_channels *= p.taps();
  p.kernel = p.stride = p.dilation = {1, 1, 1};
  p.pad_lo = {0, 0, 0};
  p.input = p.output;
  return p;
}

// Channels of a kernel row, and those of them that lie side by side in the input.
inline std::int64_t patch_row_channels(const ConvProblem& p) { return p.kernel[2] * p.in_channels_per_group(); }
inline std::int64_t patch_run(const ConvProblem& p) {
  return p.dilation[2] == 1 ? patch_row_channels(p) : p.in_channels_per_group();
}

// The kernel rows that have some channels.
inline Range patch_kernel_rows(const ConvProblem& p, const Range& channels) {
  const std::int64_t of_row = patch_row_channels(p);
  return {channels.begin / of_row, ceil_div(channels.end, of_row)};
}

// How many elements are copied at a time.
inline std::int64_t patch_vector(const ConvProblem& p, std::int64_t lanes) {
  const std::int64_t run = patch_run(p);
  return std::min<std::int64_t>(lanes, run <= 4 ? 4 : run <= 8 ? 8 : lanes);
}

// Elements of a patch, as it is copied: the last run is so many vectors.
inline std::int64_t patch_elements(const ConvProblem& p, std::int64_t lanes) {
  const std::int64_t run = patch_run(p);
  return p.taps() * p.in_channels_per_group() - run + round_up(run, patch_vector(p, lanes));
}

// Elements of the copy of an input row under so many outputs, and of a vector behind it.
inline std::int64_t patch_row(const ConvProblem& p, std::int64_t lanes, std::int64_t outputs) {
  return inputs_under(p, 2, outputs) * p.in_channels_per_group() + lanes;
}

}  // namespace vkconv::cpu::weight_grad
