// How the work of one geometry is cut so that it stays in cache, within a memory limit. Blockings differ in speed
// only: every one gives the same bits.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>

#include "algorithms/winograd/winograd_geometry.h"
#include "cpu/device.h"
#include "cpu/gemm.h"

namespace vkconv::cpu::winograd {

// Where transformed weights come from. prepared: the user's object. shared: transformed first, by all threads, into
// the workspace. own: every thread transforms the panels it meets and keeps them. fused: one reduction block at a
// time, by the thread that multiplies with it, each time it does.
enum class WeightSource : std::uint8_t { prepared, shared, own, fused };

struct Blocking {
  WeightSource source = WeightSource::prepared;
  std::int64_t threads = 1;
  std::int64_t columns = 0;          // outputs a panel
  std::int64_t tiles = 0;            // positions a block
  std::int64_t depths_per_step = 1;  // outputs along the summed axis that share each panel
  std::int64_t depths_per_unit = 1;  // outputs along the summed axis one unit of work goes through
  std::int64_t blocks_per_step = 1;  // output blocks multiplied before their sums are transformed
  std::int64_t output_splits = 1;    // units that share a block of tiles, each with its own output blocks
  std::int64_t slots = 1;            // transformed slices alive at once
  bool stream = false;               // outputs go past the caches where their alignment allows
  bool fetches = false;              // the next input and the outputs' lines come while a block is multiplied

  // Strides of the transformed input [point][slot][tile][channel] and of the sums
  // [output block][point][depth][tile][column]: the tiles of successive depths follow each other without a gap.
  std::int64_t tile_pitch = 0, input_point_stride = 0;
  std::int64_t sum_point_stride = 0, sum_floats = 0;
  std::int64_t input_floats = 0;
  std::int64_t chunk_floats = 0;  // of the largest reduction block, transformed

  std::size_t workspace_bytes = 0;  // of all threads: shared weights
  std::size_t scratch_bytes = 0;    // of each thread
  double seconds = 0;

  std::int64_t all_sum_floats() const { return blocks_per_step * sum_floats; }
  std::size_t total_bytes() const { return workspace_bytes + scratch_bytes * static_cast<std::size_t>(threads); }
};

// Fills in strides and sizes of a blocking whose choices (source to output_splits) are made.
void lay_out(Blocking& b, const Geometry& g, const RegisterTile& tile);

// The fastest blocking by estimate within the limit; none when even the smallest needs more.
std::optional<Blocking> choose_blocking(const Geometry& g, const Traits& traits, RegisterTile tile, bool prepared,
                                        std::size_t limit_bytes);

}  // namespace vkconv::cpu::winograd
