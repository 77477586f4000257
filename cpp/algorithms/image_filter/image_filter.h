// image_filter: how the output is cut into tasks, and the staged input under one.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/algorithm.h"
#include "core/checked.h"
#include "core/geometry.h"
#include "cpu/device.h"

namespace vkconv::cpu::image_filter {

inline constexpr std::int64_t kMostIn = 4, kMostOut = 24;  // channels
// Rows of a single output are summed together 8 or 4 at a time, from multiples of 8 on: which chain of additions a term
// is in depends on the output's place among them.
inline constexpr std::int64_t kRowsTogether = 8;
inline std::int64_t rows_together(const ConvProblem& p, std::int64_t left) {
  if (p.out_channels > 1 || p.stride[1] != 1 || p.dilation[1] != 1) return 1;
  if (p.kernel[1] >= 8 && left >= 8) return 8;
  return p.kernel[1] >= 2 && left >= 4 ? 4 : 1;
}
inline constexpr std::int64_t kMostVectors = 6;  // of outputs along W that are summed together

// Several outputs of a pixel are summed in blocks of as many as each other, or one more.
inline constexpr std::int64_t kMostTogether = 8;
inline std::int64_t blocks(const ConvProblem& p) { return ceil_div(p.out_channels, kMostTogether); }
inline Range block(const ConvProblem& p, std::int64_t i) { return nth_part(p.out_channels, i, blocks(p)); }

// A staged row is a plane of pixels for each input channel and phase of the stride along W, so that what neighbouring
// outputs read for a term lies side by side.
struct Layout {
  ConvProblem p;
  std::int64_t lanes = 4;
  std::int64_t piece_pixels = 1, piece_rows = 1;  // a task's output: a rectangle of one plane (n, od)
  std::int64_t phases = 1;                        // of the stride, that taps meet
  std::int64_t staged_width = 0, staged_rows = 0;
  std::size_t packed_bytes = 0, stage_bytes = 0;
  int slots = 1;

  std::int64_t row_terms() const { return p.kernel[2] * p.in_channels; }
  std::int64_t planes() const { return phases * p.in_channels; }
  std::int64_t row_stride() const { return planes() * staged_width; }
  // Planes that one load separates, of pixels side by side; where a group of two is whole, two loads go together.
  std::int64_t separated() const { return phases == 2 ? p.in_channels : planes(); }
  bool separates_planes() const { return phases == p.stride[2] && separated() <= kMostIn; }
  std::int64_t pieces_across() const { return ceil_div(p.output[2], piece_pixels); }
  std::int64_t pieces_down() const { return ceil_div(p.output[1], piece_rows); }
  std::int64_t tasks() const { return p.batch * p.output[0] * pieces_down() * pieces_across(); }
  std::size_t workspace_bytes() const { return packed_bytes + stage_bytes * static_cast<std::size_t>(slots); }
};

// Implemented once per instruction set in image_filter_simd.cpp.
void run(const Layout& layout, const Operands<Device>& operands, std::byte* workspace);

}  // namespace vkconv::cpu::image_filter
