// One execution of Winograd: the loop nest over blocks of tiles, panels of weights and points.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "algorithms/winograd/winograd_blocking.h"
#include "core/algorithm.h"
#include "cpu/gemm_kernels.h"

namespace vkconv::cpu::winograd {

inline constexpr std::int64_t kMaxLanes = 64;  // of float, in the widest vectors there are
inline constexpr std::int64_t kMaxColumns = 2 * kMaxLanes;
// Weights of one tap that are staged at a time: kStagedChannels of two vectors of 64 bytes. A stack of 128 KiB, which
// musl gives a thread, holds them for every tap; of wider vectors they are fewer channels.
inline constexpr std::int64_t kStagedWeights = 32 * kStagedChannels;
static_assert(kStagedWeights >= kMaxColumns);

// Byte is std::byte or const std::byte.
template <class Byte>
Byte* at(Byte* base, std::int64_t elements, DType t) {
  return base + elements * static_cast<std::int64_t>(size_bytes(t));
}

// A block of tile positions and the outputs along the summed axis it is used for.
struct Slab {
  std::int64_t group = -1, tile_begin = 0, tiles = 0, depth_begin = 0, depth_end = 0;
  bool operator==(const Slab&) const = default;
};

// The output channels of one panel, and their bias (zeros without one).
struct OutputBlock {
  std::int64_t group, index, first, channels;  // `first` counts through all groups
  const float* bias;
};

// A tile of input: its first pixel (d, h, w) may lie on padding. `origin` is the offset of the image's pixel (0, 0, 0).
struct InputTile {
  std::int64_t origin, d, h, w;
  InputTile at(const KernelPart& part) const { return {origin, d, h + part.h, w + part.w}; }
};

// Of the points of a tile along each axis, those that lie on the input.
struct TileInside {
  Range slices, rows, columns;
  bool holds(const TileShape& s) const {
    return slices.size() == s.points_d() && rows.size() == s.points_h() && columns.size() == s.points_w();
  }
};

// The pixels of a tile in the array: channel 0 of the first one, which may lie on padding, and those on the input.
struct TilePixels {
  const std::byte* first;
  DType dtype;
  TileStrides stride;
  TileInside inside;
};

// Transforms `channels` channels, whole vectors, of a tile where it lies, one plane of points; padding is zeros.
void transform_in_place(const TileKernels& tile, const TileShape& shape, const TilePixels& x, int plane,
                        std::int64_t channels, float* v, std::int64_t point_stride);

// Successive outputs of a step whose tiles are rows of one product in reduction blocks that are multiplied together:
// the same taps read inside the input, each in the slot behind that of the output before. Of those inside, taps before
// the blocks' count as one, and so do those behind.
struct Run {
  std::int64_t depths;
  Range inside;
};

// What a thread keeps from one unit of work to the next.
struct Worker {
  float* input;    // transformed, [point][slot][tile][channel]; of deep tiles one plane of points
  float* sums;     // [output block][point][depth][tile][column]
  float* weights;  // its own panels, or one reduction block
  Slab slab;
  std::vector<std::int64_t> held_slices;  // by slot, -1: none
  std::vector<Range> taps;                // inside the input, of every summed-axis output of the step
  std::vector<Run> runs;                  // by reduction block, the first of those together, and its first output
  std::vector<const float*> slices;       // that they read, transformed: [output][tap]
  std::vector<bool> held_panels;          // by output block of slab.group, when weights are its own
};

// Transformed weights of the reduction blocks [begin, end) for some output blocks, from the first term of *begin on, at
// the points of one plane.
struct Panel {
  const float* data;
  std::int64_t point_stride, block_stride;
  const ReductionBlock *begin, *end;
};

// What comes into L2 while a slab is multiplied: the input of the slab behind it, and the lines that some output blocks
// of it go to, from output d along the summed axis on.
struct Fetched {
  bool input = false;
  Range blocks{};
  std::int64_t d = 0;
};

class Execution {
 public:
  // `operands` are in the geometry's axis order; all arguments outlive the object.
  Execution(const Geometry& g, const Blocking& b, const Operands<Device>& operands);
  void run(std::byte* workspace) const;

  // Panels of all groups, [group][output block], into `u`.
  void transform_weights(float* u) const;

 private:
  // winograd_execution_cpu.cpp
  void run_units(const float* weights) const;
  void enter(Worker& worker, const Slab& slab) const;
  void hold_slices(Worker& worker, std::int64_t depth_begin, std::int64_t depth_end) const;
  void hold_panels(Worker& worker, Range blocks) const;
  std::vector<ReductionBlock> panel_pieces() const;
  void step(Worker& worker, Range blocks, std::int64_t d, const float* weights, bool first) const;
  void multiply(const Worker& worker, const Panel& panel, std::int64_t blocks, float* sums, const Fetched& f) const;
  void multiply_point(const Worker& worker, const Panel& panel, const float* weights, std::int64_t blocks,
                      const float* next, std::int64_t point, float* sums) const;
  void add_slices(const ReductionBlock& r, std::int64_t point, const float* input, const float* weights,
                  GemmTerms<float>& terms, GemmSlice<float>* slices) const;

  // winograd_tiles_cpu.cpp
  void transform_panel(std::int64_t group, std::int64_t output_block, const ReductionBlock& r, Range planes,
                       bool stream, float* u, std::int64_t point_stride) const;
  void fetch(const Worker& worker, const Fetched& f, std::int64_t point) const;
  void transform_slice(const Slab& slab, std::int64_t slice, int plane, float* v) const;
  void transform_vectors(const InputTile& tile, int plane, std::int64_t channels, float* v) const;
  void transform_copy(const InputTile& tile, int plane, Range channels, float* v) const;
  bool inside(const InputTile& tile, Range channels) const;
  const std::byte* first_pixel(const InputTile& tile) const;
  Range points_inside(int axis, std::int64_t first) const;
  TileInside points_inside(const InputTile& tile) const;
  void store_tiles(const Slab& slab, std::int64_t output_block, std::int64_t d, const float* sums) const;
  struct Position {
    std::int64_t n, d, h, w;  // first output of the tile; d is 0 where the summed axis is not folded
  };
  Position position(std::int64_t index) const;
  OutputBlock output_block(std::int64_t group, std::int64_t index, const float* bias) const;
  void prefetch_input(std::int64_t group, const Position& at) const;
  Extent3 tile_outputs(const Position& at) const;
  Position after(Position p) const;
  void transform_tile(std::int64_t group, const Position& at, std::int64_t slice, int plane, float* v) const;
  std::int64_t offset(const View<std::byte*>& v, const OutputBlock& block, const Position& at, std::int64_t d) const;
  template <int kLevel>
  void prefetch_outputs(const OutputBlock& block, const Position& at, std::int64_t d) const;
  void store_tile(const OutputBlock& block, const Position& at, std::int64_t d, const float* sums) const;
  WeightBlock weight_block(std::int64_t group, std::int64_t output_block, Range taps, std::int64_t channel,
                           std::int64_t channel_end) const;

  // winograd_direct_cpu.cpp
  void sum_directly(const OutputBlock& block, const Position& at, std::int64_t d, float* y) const;
  void sum_channels(const WeightBlock& block, const KernelPart& part, const float* taps, const Position& at,
                    std::int64_t input_offset, float* y) const;
  Range all_planes() const { return {0, g_.shape.points_d()}; }
  ReductionBlock all_terms() const { return {0, g_.summed_taps(), 0, g_.channels()}; }
  // A ring, in which the slices of a slab's first step follow each other.
  std::int64_t slot(const Slab& slab, std::int64_t slice) const {
    return g_.folded ? 0 : (slice - g_.slice(slab.depth_begin, 0)) % b_.slots;
  }
  // Of the taps of blocks that are multiplied together.
  Run run_of_depths(const Worker& worker, Range taps, std::size_t first) const;
  // The end of the blocks that are multiplied together from `r` on: weights that are transformed in passing are there
  // one block at a time.
  const ReductionBlock* chains_end(const ReductionBlock* r, const ReductionBlock* end) const {
    return r + std::min(together_, end - r);
  }
  template <class W>
  auto* runs_of(W& worker, const ReductionBlock* r) const {
    return worker.runs.data() + static_cast<std::size_t>(r - g_.reduction.data()) * worker.taps.size();
  }

  int panel_vectors() const { return static_cast<int>(b_.columns / k_.lanes); }

  const Geometry& g_;
  const Blocking& b_;
  const Operands<Device>& a_;
  const Kernels& k_;
  const GemmKernels<float>& gemm_;
  const TileKernels& tile_;
  PanelLayout panels_;
  std::ptrdiff_t together_;       // blocks that are multiplied side by side
  TileStrides step_;              // between the pixels of an input tile
  Range covered_[3];              // outputs that read more than padding, along the tiled axes
  std::optional<Bounds> bounds_;  // of the outputs, when the activation does no more; none, when it does nothing
  bool stream_;                   // outputs go past the caches
  bool in_registers_;             // whole tiles are finished by the transform
};

}  // namespace vkconv::cpu::winograd
