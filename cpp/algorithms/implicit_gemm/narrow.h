// The narrow kernel of implicit_gemm: few output channels, where a vector of them would be mostly empty. The lanes of a
// vector are terms of the sum instead, runs of input that lie side by side, and the sums of a tile of pixels are
// added across lanes at its end. Bound: the FMA units for kernels above 1x1, else reading the input.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "algorithms/implicit_gemm/narrow_tiles.h"
#include "core/algorithm.h"
#include "core/geometry.h"
#include "core/orientation.h"
#include "core/pixel_row.h"
#include "cpu/device.h"

namespace vkconv::cpu {

// Outputs along W that meet the same taps along W.
struct TapSpan {
  Range outputs, taps;
};

struct NarrowLayout {
  ConvProblem p;  // with its axes in the order of `orientation`
  Orientation orientation;
  ConvProblem original;  // with its own axes
  // Of a pointwise problem, for arrays whose pixels are evenly apart: p is one row of all of them.
  std::shared_ptr<const NarrowLayout> one_row;
  std::int64_t lanes = 4, terms = 0;
  std::vector<TapSpan> spans;
  std::int64_t rows = 0;  // batch * OD * OH
  // A task's part of the output: rows, and a strip of pixels along W, whose input the next row reads again out of L2.
  std::int64_t chunk_rows = 1, strip = 1;
  std::size_t packed_bytes = 0;  // weights [group][out][terms]

  std::int64_t strips() const { return ceil_div(p.output[2], strip); }
  std::int64_t tasks() const { return ceil_div(rows, chunk_rows) * strips(); }
  std::size_t workspace_bytes() const { return packed_bytes; }
};

// Vector operations a pixel and group takes in the narrow kernel, its sums across lanes included.
double narrow_vector_operations(const ConvProblem& p, std::int64_t lanes);

NarrowLayout narrow_layout(const ConvProblem& p, const Context<Device>& context, std::int64_t lanes);

// Implemented once per instruction set in narrow_simd.cpp.
void run_narrow(const NarrowLayout& layout, const Operands<Device>& operands, std::byte* workspace);
void pack_narrow(const NarrowLayout& layout, const WeightView<std::byte*>& weight, std::byte* packed);

}  // namespace vkconv::cpu
