// What the plan (depthwise_cpu.cpp) hands to the code compiled once per instruction set (depthwise_simd.cpp).
#pragma once
#include "core/algorithm.h"
#include "core/geometry.h"
#include "core/orientation.h"
#include "cpu/device.h"

namespace vkconv::cpu::depthwise {

// Longest chain of sums before it is added to a total: bounds the rounding error of large kernels.
inline constexpr std::int64_t kSumTerms = 64;

// Weights as [tap][row_length] in the accumulator type. Behind the last channel a row of few, packed by one task,
// repeats: row[i] = w[i % out_channels], see flat_weight_vectors.
struct PackedWeights {
  const std::byte* data = nullptr;  // of the first tap
  Extent3 tap{};                    // elements from one tap to the next along each axis
};

// A part of the output: image n, depth od, and ranges of rows, columns and output channels.
struct Block {
  std::int64_t n = 0, od = 0;
  Range oh{}, ow{}, channels{};
};

// How an output block is computed.
//   direct: vectors of channels, straight from the input view.
//   staged: the same from a dense copy of the input in the accumulator type, its channels repeated by the multiplier.
//   flat:   vectors over (column, channel) pairs of a dense copy; for fewer channels than a vector holds.
enum class Mode : std::uint8_t { direct, staged, flat };

struct Call {
  const ConvProblem& p;
  Operands<Device> operands;
  PackedWeights weights;
  Mode mode;
  bool half_vectors;  // AVX2's kernels run it, whatever dispatch would choose
  bool stream;        // more than half of L3 holds: outputs go past the caches where their alignment allows
  bool align_inputs;  // vectors begin where the input is aligned, else where the output is
  bool narrow;        // tiles that only memory bounds read it in longer runs
};

inline constexpr std::int64_t kMaxLanes = 64;  // accumulators in a vector of any instruction set

// Flat tiles are at most so many vectors by so many rows, and read up to as many elements past either end of a line.
inline constexpr std::int64_t kFlatVectors = 6, kMaxFlatRows = 4;

// Vectors after which the weights of flat outputs repeat; as many as the widest tile has where they do not.
constexpr std::int64_t flat_weight_vectors(std::int64_t channels, std::int64_t lanes) {
  return lanes % channels == 0 ? 1 : 3 * lanes % channels == 0 ? 3 : kFlatVectors;
}

// Writes channels [begin, end) of the packed weights, and with the last of them what lies behind.
void pack_weights(const ConvProblem& p, const WeightView<std::byte*>& weight, const Range& channels,
                  std::int64_t row_length, std::byte* to);

// The stride between the rows that are computed two at a time, of kernels `width` wide with a stride between columns.
// Rows of 3x3 kernels at stride 2 share one line in five.
constexpr std::int64_t pair_row_stride(std::int64_t width, std::int64_t columns) { return width == 3 ? 1 : columns; }

// Whether rows of outputs are computed two at a time, where the registers of the instruction set suffice: the kernel
// rows of the one and of the other that read a line are one stride apart.
inline bool takes_row_pairs(const ConvProblem& p) {
  const std::int64_t width = p.kernel[2], rows = dense_stride(p, 1), columns = dense_stride(p, 2);
  const bool wide = width == 3 || width == 5 || width == 7 ? columns <= 2 : width == 4 && columns == 1;
  return wide && rows == pair_row_stride(width, columns) && p.kernel[1] > rows && p.taps() <= kSumTerms;
}

// The axis of the taps becomes W where it has several and the others have one, so that an input column is loaded once
// for them. Rows that fill no tile give their place to a longer axis. Kernels of several depths whose rows share few
// lines swap the two: depths are close together where strides are those of an image.
inline Orientation row_orientation(const ConvProblem& p, std::int64_t lanes) {
  constexpr std::int64_t kTileColumns = 4;  // of the narrowest tile
  // That save more than the distance between columns costs: where neighbours share inputs, and others.
  constexpr std::int64_t kSomeTaps = 3, kManyTaps = 5;
  const std::int64_t enough = p.kernel[1] > 1 && dense_stride(p, 1) == 1 ? kSomeTaps : kManyTaps;
  if (p.taps() >= enough && p.out_channels >= lanes)
    for (const auto& axes : {std::array{0, 2, 1}, std::array{2, 1, 0}}) {
      const auto taps = static_cast<std::size_t>(axes[2]);
      if (p.taps() == p.kernel[taps] && p.output[taps] >= kTileColumns) return {false, axes};
    }
  const Orientation rows = long_rows(p, kTileColumns), swapped{false, {1, 0, 2}};
  return rows == Orientation{} && !takes_row_pairs(p) && takes_row_pairs(swapped.apply(p)) ? swapped : rows;
}

void run_block(const Call& call, const Block& block, std::byte* scratch);
// Mode direct of the 16-bit types.
void run_halves(const Call& call, const Block& block);

}  // namespace vkconv::cpu::depthwise
