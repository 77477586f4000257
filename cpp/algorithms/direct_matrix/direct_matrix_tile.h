// How direct_matrix cuts a problem into workgroups: pure functions of the problem and the described device.
#pragma once
#include <optional>

#include "vulkan/matrix_unit.h"
#include "vulkan/side_by_side.h"

namespace vkconv::vulkan {

// The convolution that matrices compute.
struct MatrixProblem {
  ConvProblem p;
  bool taps_are_channels = false;  // a channel is one of the input's channels at one of the taps of a row
  int siblings = 1;                // problems like this that run at the same time
};

// What a workgroup computes; the constants of direct_matrix.comp.
struct MatrixTile {
  bool strip = false;  // one row of pixels, else shape.m columns of each row
  std::uint32_t subgroups_m = 1, subgroups_n = 1, fragments_m = 1, fragments_n = 1, chunk_octets = 2,
                subgroups_k = 1;  // that share sums, each with its part of a tap's channels
  std::uint32_t subgroups() const { return subgroups_m * subgroups_n * subgroups_k; }
  std::uint32_t fragments() const { return subgroups_m * fragments_m; }
  std::uint32_t rows() const { return strip ? 1 : fragments(); }
  std::uint32_t columns(const MatrixUnit& u) const { return strip ? fragments() * u.shape.m : u.shape.m; }
  std::uint32_t channels(const MatrixUnit& u) const { return subgroups_n * fragments_n * u.shape.n; }
  // Steps along k that a subgroup takes of one tap of a stage.
  std::int64_t tap_steps(const MatrixUnit& u) const { return chunk_octets * kOctet / u.shape.k / subgroups_k; }
  bool operator==(const MatrixTile&) const = default;
};

// A problem under one tile.
struct MatrixGrid {
  MatrixTile tile;
  SideBySide layout;
  std::int64_t tiles_x = 0, tiles_y = 0, tiles_o = 0, tiles = 0;  // along each, and all of them
  std::int64_t shares = 1, share_stages = 0, groups = 0;  // workgroups that share a sum, stages of each, all workgroups
  std::int64_t chunks = 0, runs = 0;                      // of input and output channels of a group
  std::int64_t stages = 0, steps = 0;            // of one sum: times shared memory is filled, matrix products along k
  std::int64_t stage_steps = 0, body_steps = 0;  // of a subgroup in a stage, and in the body of a loop
  std::int64_t block_steps = 0;                  // after which sums leave the accumulators; 0: at the end
  std::int64_t stage_octets = 0, shared_octets = 0, loads = 0;
  std::int64_t packed_blocks = 0;  // of each part
  std::size_t blocks_bytes = 0;    // of the packed weights; the scales of fp32 lie behind
  std::size_t packed_bytes = 0;    // of both
  std::size_t sums_bytes = 0;      // of shares in the workspace, behind the packed weights
  std::size_t sums_offset() const { return aligned_bytes(static_cast<std::int64_t>(packed_bytes)); }
  std::size_t workspace_bytes() const { return sums_offset() + sums_bytes; }
  double seconds = 0;
};

// Octets of shared memory that a workgroup takes: stages of the input and, after them, the outputs of a row of
// matrices, which are sums, or halves if they are rounded first.
std::int64_t shared_octets(const MatrixGrid& g, const MatrixUnit& unit, bool rounds_first);

MatrixGrid matrix_grid(const MatrixProblem& problem, const MatrixUnit& unit, const MatrixTile& tile,
                       std::int64_t shares, const Traits& traits);

// Loop iterations an invocation of an emulated kernel takes for problem p, at most; see kSoftwareLoopIterations.
std::int64_t emulated_iterations(const ConvProblem& p, const MatrixGrid& g, const MatrixUnit& unit);

// The grid with the least estimated time, or nothing when no tile's input fits shared memory. Siblings fill the device
// together, and one that shares no sums needs no workspace for itself alone.
std::optional<MatrixGrid> choose_matrix_grid(const MatrixProblem& problem, const MatrixUnit& unit,
                                             const Traits& traits);

}  // namespace vkconv::vulkan
