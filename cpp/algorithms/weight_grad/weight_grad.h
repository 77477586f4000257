// What the plan (weight_grad_cpu.cpp) hands to the code compiled once per instruction set (weight_grad_simd.cpp).
//
// The gradient of one tap is a matrix product whose long axis is the output pixels: dw[k] = x_k^T dy. Its sums are
// cut at fixed places, whatever runs them: a block is at most kBlockPixels pixels a tap and is summed in registers, a
// chunk is a run of blocks, and the sums of chunks are added in order.
#pragma once
#include <algorithm>

#include "core/algorithm.h"
#include "core/geometry.h"
#include "cpu/device.h"

namespace vkconv::cpu::weight_grad {

inline constexpr std::int64_t kBlockPixels = 64;   // pixels summed in registers
inline constexpr std::int64_t kBlocksPerSum = 64;  // block sums in one running sum
inline constexpr std::int64_t kVectors = 2;        // of a register tile
inline constexpr std::int64_t kMaxTileRows = 14;
inline constexpr std::int64_t kMaxGroupRows = 4, kMaxGroupTaps = 7;  // of a tile of groups

// Neighbouring taps in a tile of groups: as many as leave its sums in the registers.
constexpr std::int64_t most_group_taps(std::int64_t rows) { return rows == 1 ? kMaxGroupTaps : rows == 2 ? 5 : 3; }

inline constexpr std::int64_t kLaneVectors = 4;  // most of a tile that multiplies lane by lane
inline constexpr std::int64_t kMaxLaneTaps = 7;  // of such a tile
inline constexpr std::int64_t kMaxLaneRows = 3;  // kernel rows of such a tile

// The tiles that multiply lane by lane.
struct LaneTiles {
  bool halves;  // operands
  std::int64_t vector_bytes;

  // Taps of a row are tiles of nearly as many.
  static constexpr std::int64_t parts(std::int64_t taps) { return ceil_div(taps, kMaxLaneTaps); }
  // Most kernel rows of a tile of `taps` taps: as many as leave the sums of a vector in the registers. An output
  // gradient is loaded once for all of them, and a sum waits less for itself.
  constexpr std::int64_t rows(std::int64_t taps) const {
    return vector_bytes < 32 ? 1 : std::clamp<std::int64_t>(9 / taps, 1, kMaxLaneRows);
  }
  // The same of outputs some positions apart: with few registers, sums of one vector wait for the loads of strided
  // rows.
  constexpr std::int64_t rows(std::int64_t taps, std::int64_t stride) const {
    return stride == 1 || (stride == 2 && vector_bytes >= 64) ? rows(taps) : 1;
  }
  // Most vectors. A sum can be added to only every few cycles, so that few sums leave multipliers idle; halves are
  // converted at every load, of which tiles of more pixels have fewer.
  constexpr std::int64_t vectors(std::int64_t rows, std::int64_t taps) const {
    if (rows > 1) return vector_bytes < 64 ? 1 : 2;
    return taps <= (halves ? 2 : 3) ? kLaneVectors : 2;
  }
};

// Which channels lie along a vector; the others are broadcast, one row of a register tile each.
//   out_vectors, in_vectors: output or input channels of a group.
//   lanes: channels of a depthwise problem; lane c multiplies dy[c] by x[c].
//   groups: input channels of several groups, and of several neighbouring pixels when all groups fill no vector. A row
//           is an output channel of the group, and a permutation gives every lane the one of its own group and pixel.
enum class Form : std::uint8_t { out_vectors, in_vectors, lanes, groups };

// Whether the channels of an input pixel are a patch, what all taps read for an output (weight_grad_patches-inl.h):
//   by_row: kernel row by kernel row, a product each; the patches of a row overlap in a copy of it. out_vectors.
//   composed: all kernel rows, in a copy of every patch.
enum class PatchForm : std::uint8_t { none, by_row, composed };

// A problem as it is solved: itself, or the pointwise one of its patches.
struct Posed {
  ConvProblem p;
  ConvProblem source;  // whose taps the patches hold; p if there are none
  PatchForm patches = PatchForm::none;
  double cost = 0;      // multiply-adds of vectors that the time of an output pixel and group would do; 0 is unknown
  bool traded = false;  // the operands traded places, so that weights of neighbouring output channels lie side by side
};

// Everything that follows from the problem and the instruction set, and not from the number of threads.
struct Shape {
  Form form = Form::in_vectors;
  bool storable = false;  // one block gives all the sums, in whole vectors: see store()
  PatchForm patches = PatchForm::none;
  bool staged = false;      // operands are copied block by block: widened, padded to whole vectors, dense or apart
  std::int64_t lanes = 1;   // accumulators in a vector
  std::int64_t groups = 1;  // separate products
  std::int64_t rows = 1;    // of one product
  std::int64_t vector_channels = 1, vectors = 1;
  std::int64_t vector_step = 1;                    // channels from one vector to the next
  std::int64_t pixels = 1;                         // groups: in a vector
  std::int64_t lines = 1;                          // output rows (n, od, oh)
  std::int64_t lines_per_block = 1, segments = 1;  // a block is several lines, or a segment of one
  std::int64_t blocks = 1, chunks = 1;
  std::int64_t row_groups = 1;             // lanes: of the kernel rows of a depth tap, a tile each
  std::int64_t phases = 1;                 // lanes: every so many outputs of a line read positions a dilation apart
  std::int64_t patch = 0, patch_rows = 0;  // elements of a patch, and of the copied rows of a line

  Range group_rows(std::int64_t group, std::int64_t kernel_rows) const {
    return nth_part(kernel_rows, group, row_groups);
  }

  // Channel of the first lane of a vector. The last vector ends at the last channel and may overlap its neighbour.
  std::int64_t channel_of(std::int64_t vector) const {
    return std::max<std::int64_t>(0, std::min(vector * vector_step, vector_channels - lanes));
  }
};

// A part of the weight: of one group, taps x rows x vectors. Its sums are stored [tap][row][vector][lane].
struct Unit {
  std::int64_t group = 0;
  Range taps{}, rows{}, vectors{};
};

struct Job {
  const ConvProblem& p;
  const ConvProblem& source;  // as of Posed
  const Operands<Device>& operands;
  const Shape& shape;
  bool from_memory;  // the operands
};

// A line of outputs.
struct OutputLine {
  std::int64_t n, d, h;
};

// Channels of a group's pixels that a unit reads.
struct UnitChannels {
  Range x, dy;
};
UnitChannels unit_channels(const ConvProblem& p, const Shape& shape, const Unit& unit);

// Elements from pixel to pixel of a copy of so many channels: an odd number of cache lines, so that pixels lie in
// different sets of a cache.
std::int64_t copy_pitch(const ConvProblem& p, const Shape& shape, std::int64_t channels);

// Bytes of scratch that accumulate() needs for units of these sizes, beside their sums.
std::size_t scratch_bytes(const ConvProblem& p, const Shape& shape, const Unit& largest);

// sums = the sums of `unit` over one chunk of pixels. `part` has the size of sums.
void accumulate(const Job& job, const Unit& unit, std::int64_t chunk, std::byte* sums, std::byte* part,
                std::byte* scratch);

// Rounds `count` sums to 16 bits.
void round_sums(const float* sums, std::int64_t count, DType dtype, std::byte* to);

// The sums of `unit` of a storable shape, straight into the weight, whose vectors' channels lie side by side.
void store(const Job& job, const Unit& unit, std::byte* scratch);

}  // namespace vkconv::cpu::weight_grad
