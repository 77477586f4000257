// How the output of a depthwise problem is cut: blocks that keep their input in L2, and tasks for the threads.
#pragma once
#include "algorithms/depthwise/depthwise.h"
#include "algorithms/depthwise/depthwise_phases.h"

namespace vkconv::cpu::depthwise {

// Work is counted in rows of outputs (of the largest phase) of one channel share and one column block. Their order is
// image, channel share, column block, band of rows, depth, row: neighbours share input lines. A task goes through its
// rows once for each channel block, and through a block once for each phase.
struct Blocking {
  Mode mode = Mode::direct;
  std::int64_t channel_shares = 1, channel_blocks = 1, column_blocks = 1;
  std::int64_t band = 1;  // output rows of a block
  std::int64_t tasks = 1;
  bool stream = false;                 // input and output do not fit half of L3, whose rest is the next reader's
  bool align_inputs = false;           // where vectors cannot be aligned in both arrays
  bool narrow = false;                 // tiles, where memory is slower than they are: see row_tile_columns
  std::int64_t weight_row_length = 0;  // elements of packed weights
  std::size_t weight_bytes = 0;        // packed weights
  std::size_t scratch_bytes = 0;       // of one task

  std::size_t workspace_bytes() const { return weight_bytes + static_cast<std::size_t>(tasks) * scratch_bytes; }
};

// The machine with the vectors that a problem is computed with. Pixels that fill half of one are computed with halves,
// which read them in place: whole vectors take several pixels, which are copied and cross cache lines.
Device::Traits with_vectors_of(const ConvProblem& p, Device::Traits traits);

// The fastest blocking whose workspace is within the limit, or the smallest there is.
Blocking choose_blocking(const Phases& phases, const Device::Traits& traits, std::size_t workspace_limit_bytes);

// Of the largest phase.
std::int64_t total_rows(const ConvProblem& p, const Blocking& blocking);

// The block that holds row `index` of the largest phase, from that row on and at most `rows` rows long, of a channel
// block.
Block block_at(const ConvProblem& p, const Blocking& blocking, std::int64_t index, std::int64_t rows,
               std::int64_t channel_block);

// What phase `p` has of it; its rows may be none.
Block part_of_phase(const ConvProblem& p, Block block);

}  // namespace vkconv::cpu::depthwise
