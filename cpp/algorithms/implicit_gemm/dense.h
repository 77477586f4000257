// The dense kernel of implicit_gemm: how the output is cut into tiles and tasks. The output is a matrix of pixels by
// channels; a tile is some neighbours along W by one panel of channels.
#pragma once
#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "core/algorithm.h"
#include "core/geometry.h"
#include "core/orientation.h"
#include "core/pixel_row.h"
#include "cpu/bf16_unit.h"
#include "cpu/device.h"
#include "cpu/gemm_kernels.h"

namespace vkconv::cpu {

// In one call of the micro-kernel: panels, and rows times panels.
inline constexpr std::int64_t kMostTogether = 4, kMostRowsTogether = 56;
inline constexpr std::int64_t kMostRows = kMostTogether * kMostTileRows;  // times panels, of tiles that high

struct DenseLayout {
  ConvProblem p;  // with its axes in the order of `orientation`
  Orientation orientation;
  ConvProblem original;  // with its own axes
  // What the input's rows are of: p, but of few channels for tiles, where every pixel of p is one of a copy, with all
  // that its output reads of a row of taps: p has no taps along W.
  ConvProblem read;
  bool taps_are_channels = false;
  // Of a pointwise problem, for arrays whose pixels are evenly apart: p is one row of all of them.
  std::shared_ptr<const DenseLayout> one_row;
  RegisterTile tile;
  std::int64_t columns = 0;                      // of a panel: two vectors or three
  std::int64_t most_columns = 0;                 // of the last one, which takes a vector that would be alone
  std::int64_t panels = 0;                       // a group; the last one may have fewer
  std::int64_t in = 0;                           // values of a tap: channels, zeros that fill pairs or tiles, parts
  std::int64_t terms = 0;                        // rows of a panel
  std::vector<Range> tap_reach;                  // along W: the outputs whose tap kw is inside the input
  std::int64_t row_tiles = 0;                    // tiles along W
  std::int64_t rows = 0;                         // batch * OD * OH
  std::int64_t chunk_rows = 1, chunk_tiles = 1;  // a task's part of the output: whole rows, or some tiles of one row
  std::int64_t task_panels = 1;                  // and its panels
  Bf16Unit unit = Bf16Unit::none;                // other than none: multiplies bf16, or parts in it
  int parts = 1;                                 // operands as so many parts in bf16
  // Of parts: the same tasks on operands as they are, for outputs of what has no parts. Its scratch is beside this
  // one's.
  std::shared_ptr<const DenseLayout> undivided;
  bool copied = false;                           // the input rows of a task are copied into scratch first
  bool fetched = false;                          // rows of the input are fetched ahead of the tiles
  bool shared_weights = false;                   // weights of a call are packed once, not by every task that uses them
  std::int64_t most_together = 1;                // panels that meet a tile together: a pair, or what L1 holds
  std::size_t panel_bytes = 0, stage_bytes = 0;  // of a packed panel; scratch of one task
  int slots = 1;

  std::int64_t vectors() const { return columns / tile.lanes; }  // of a panel
  // Of a panel: its first channel in its group, and how many it and those behind it have, `count` together.
  std::int64_t first_channel(std::int64_t panel) const { return panel % panels * columns; }
  std::int64_t channels(std::int64_t panel, std::int64_t count = 1) const {
    const bool last = panel % panels + count >= panels;
    return last ? p.out_channels_per_group() - first_channel(panel) : count * columns;
  }
  // Panels of a group that have all vectors, and no more; with `cut` the last of those need not be whole.
  std::int64_t wide_panels(bool cut) const {
    if (most_columns > columns) return panels - 1;
    return (p.out_channels_per_group() + (cut ? tile.lanes - 1 : 0)) / columns;
  }
  // Panels from this one on that go together: one, or such ones of one group.
  std::int64_t panels_together(std::int64_t panel, bool cut) const {
    return std::clamp<std::int64_t>(wide_panels(cut) - panel % panels, 1, most_together);
  }
  // Tiles in one call for so many panels.
  std::int64_t tiles_together(std::int64_t count) const {
    return std::max<std::int64_t>(1, kMostRowsTogether / (count * tile.most_rows(vectors())));
  }
  std::int64_t panel_stride(std::size_t element_bytes) const {
    return static_cast<std::int64_t>(panel_bytes / element_bytes);
  }
  std::int64_t tile_width() const { return ceil_div(p.output[2], row_tiles); }  // most pixels of a tile
  Range tile_pixels(Range tiles) const {                                        // along W
    return {p.output[2] * tiles.begin / row_tiles, p.output[2] * tiles.end / row_tiles};
  }
  std::int64_t all_panels() const { return panels * p.groups; }
  std::int64_t row_chunks() const { return ceil_div(rows, chunk_rows); }
  std::int64_t tile_chunks() const { return ceil_div(row_tiles, chunk_tiles); }
  std::int64_t panel_chunks() const { return ceil_div(all_panels(), task_panels); }
  std::int64_t chunks() const { return row_chunks() * tile_chunks(); }
  std::size_t packed_bytes() const { return panel_bytes * static_cast<std::size_t>(all_panels()); }
  std::size_t shared_bytes() const { return shared_weights ? packed_bytes() : 0; }
  // In a task's scratch.
  std::size_t panels_begin() const { return stage_bytes + (undivided ? undivided->slot_bytes() : 0); }
  std::size_t slot_bytes() const {
    return panels_begin() + (shared_weights ? 0 : panel_bytes * static_cast<std::size_t>(most_together));
  }
  std::size_t own_workspace_bytes() const { return shared_bytes() + slot_bytes() * static_cast<std::size_t>(slots); }
  std::size_t workspace_bytes() const {
    return std::max(own_workspace_bytes(), one_row ? one_row->own_workspace_bytes() : 0);
  }
  // Columns of a panel as packed, and where its mark is: whether all its weights are finite, or have parts.
  std::int64_t packed_columns(std::int64_t panel) const { return round_up(channels(panel), tile.lanes); }
  std::int64_t mark(std::int64_t panel) const { return terms * packed_columns(panel); }
};

// Chooses the cut. It shrinks the chunks and the slots until the workspace is within the limit, as far as that goes.
// Operands of more than one part are of one group.
DenseLayout dense_layout(const ConvProblem& p, const Context<Device>& context, RegisterTile tile, int parts = 1);

double dense_seconds(const ConvProblem& p, const Context<Device>& context, int parts = 1);

// Implemented once per instruction set in dense_simd.cpp.
void run_dense(const DenseLayout& layout, const Operands<Device>& operands, std::byte* workspace);
void pack_dense(const DenseLayout& layout, const WeightView<std::byte*>& weight, std::byte* packed);

}  // namespace vkconv::cpu
