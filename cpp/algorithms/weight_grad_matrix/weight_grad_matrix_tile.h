// How weight_grad_matrix cuts a problem: pure functions of the problem and the described device.
#pragma once
#include <optional>

#include "vulkan/matrix_unit.h"
#include "vulkan/side_by_side.h"

namespace vkconv::vulkan {

// What a workgroup computes; the constants of weight_grad_matrix.comp.
struct GradientTile {
  bool strip = false;  // a pixel tile is one row, else shape.k columns of `runs` rows
  std::uint32_t subgroups_m = 1, subgroups_n = 1, fragments_m = 1, fragments_n = 1, chunk_octets = 2, runs = 1,
                taps = 1;
  std::uint32_t subgroups() const { return subgroups_m * subgroups_n; }
  std::uint32_t matrices_n() const { return subgroups_n * fragments_n; }
  std::uint32_t rows(const MatrixUnit& u) const { return subgroups_m * fragments_m * u.shape.m; }
  std::uint32_t columns(const MatrixUnit& u) const { return matrices_n() * u.shape.n; }
  std::int64_t elements(const MatrixUnit& u) const { return std::int64_t{taps} * rows(u) * columns(u); }
  std::uint32_t pixel_rows() const { return strip ? 1 : runs; }
  std::uint32_t pixel_columns(const MatrixUnit& u) const { return strip ? runs * u.shape.k : u.shape.k; }
};

// A problem under one tile.
struct GradientGrid {
  GradientTile tile;
  bool turned = false;        // rows are depths, and depths rows, whose taps share the input of a tile
  std::int64_t together = 1;  // groups that are one: their channels fill matrices, and octets of memory
  SideBySide layout;
  std::int64_t pixel_rows = 0, pixel_tiles = 0;  // pixel tiles along the output's rows, and all
  std::int64_t tiles_m = 0, tiles_n = 0, tap_blocks = 0, channel_chunks = 0;  // of a group and depth tap
  std::int64_t tiles = 0;                                                     // of the whole gradient
  std::int64_t chunks = 0, chunk_tiles = 0;                                   // of pixel tiles
  std::int64_t lines = 0;  // of kMatrixK input pixels that a pixel tile multiplies
  std::int64_t input_octets = 0, grad_octets = 0, shared_octets = 0;
  std::int64_t input_loads = 0, grad_loads = 0;
  std::size_t tile_bytes = 0;  // of all chunks' sums of one tile
  double seconds = 0;
};

// Whether sums leave the matrices' accumulators after each pixel tile: those cut off instead of rounding to nearest,
// which fp32 results show and 16-bit ones do not.
inline bool flushes(const ConvProblem& p) { return p.output_dtype == DType::f32; }

// The problem with `together` of its groups as one, whose gradient has that of each group on its diagonal.
inline ConvProblem groups_together(ConvProblem p, std::int64_t together) {
  p.groups /= together;
  return p;
}

// The grid with the least estimated time, or nothing when no tile's input fits shared memory.
std::optional<GradientGrid> choose_gradient_grid(const ConvProblem& p, const MatrixUnit& unit, const Traits& traits);

}  // namespace vkconv::vulkan
