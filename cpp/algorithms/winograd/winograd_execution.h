// One execution of Winograd: the loop nest over blocks of tiles, panels of weights and points.
#pragma once
#include <cstdint>

#include "algorithms/winograd/winograd_blocking.h"
#include "core/algorithm.h"

namespace vkconv::cpu::winograd {

// A block of tile positions whose input is transformed, and the outputs along the summed axis it is used for.
struct Slab {
  std::int64_t group, tile_begin, tiles, depth_begin, depth_end;
  float* input;  // [slot][point][tile][channel]
};

// Transformed weights of the reduction blocks [begin, end) for one output block, from the first term of *begin on.
struct Panel {
  const float* data;
  std::int64_t point_stride;
  const ReductionBlock *begin, *end;
};

class Execution {
 public:
  // `operands` are in the geometry's axis order; all arguments outlive the object.
  Execution(const Geometry& g, const Blocking& b, const Operands<Device>& operands);
  void run(std::byte* workspace) const;

  // Panels of all groups, [group][output block], into `u`.
  void transform_weights(float* u) const;

 private:
  // winograd_execution_cpu.cpp: `panels` are the transformed weights of the slab's group, null when they are fused.
  void run_by_tiles(const float* weights) const;
  void run_slab(const Slab& slab, const float* panels, float* chunk, float* sums) const;
  void run_by_outputs(float* input, const float* weights) const;
  void transform_shared(const Slab& slab) const;
  void multiply_shared(const Slab& slab, const float* panels) const;
  std::vector<std::int64_t> needed_slices(std::int64_t depth_begin, std::int64_t depth_end) const;
  void step(const Slab& slab, std::int64_t output_block, std::int64_t d, const float* panels, float* chunk,
            float* sums) const;
  void multiply(const Slab& slab, const Panel& panel, std::int64_t d, std::int64_t depths, float* sums) const;
  void multiply_point(const Slab& slab, const Panel& panel, std::int64_t d, std::int64_t point, float* sums) const;

  // winograd_tiles_cpu.cpp
  void transform_group(std::int64_t group, float* u) const;
  void transform_panel(std::int64_t group, std::int64_t output_block, const ReductionBlock& r, float* u,
                       std::int64_t point_stride) const;
  void transform_slice(const Slab& slab, std::int64_t slice, std::int64_t begin, std::int64_t end) const;
  void transform_tile(std::int64_t group, std::int64_t position, std::int64_t slice, float* v) const;
  void store_tiles(const Slab& slab, std::int64_t output_block, std::int64_t d, const float* sums) const;
  void store_tile(std::int64_t channel, std::int64_t channels, std::int64_t position, std::int64_t d,
                  const float* sums, const float* bias) const;

  struct Position {
    std::int64_t n, d, h, w;  // d: output along a folded summed axis, else 0; h, w: first output of the tile
  };
  Position position(std::int64_t index) const;
  std::int64_t slot(std::int64_t slice) const { return g_.folded ? 0 : slice % b_.slots; }

  const Geometry& g_;
  const Blocking& b_;
  const Operands<Device>& a_;
  const Kernels& k_;
  const TileKernels& tile_;
  PanelLayout panels_;
};

}  // namespace vkconv::cpu::winograd
