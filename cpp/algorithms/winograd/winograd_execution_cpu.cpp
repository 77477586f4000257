#include "algorithms/winograd/winograd_execution.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "core/checked.h"
#include "cpu/memory.h"
#include "cpu/thread_pool.h"

namespace vkconv::cpu::winograd {
namespace {

// Memory of the calling thread, kept between calls so that it stays in this core's cache.
float* thread_scratch(std::size_t bytes) {
  thread_local Buffer buffer;
  return reinterpret_cast<float*>(buffer.reserve(bytes));
}

// Calls f(task) on up to `threads` threads until all tasks are taken; `worker` gives f what a thread keeps.
template <class Worker>
void share_tasks(std::int64_t threads, std::int64_t tasks, Worker&& worker) {
  std::atomic<std::int64_t> next{0};
  thread_pool().run(std::min(threads, tasks), [&](std::int64_t) { worker([&] { return next++; }); });
}

}  // namespace

Execution::Execution(const Geometry& g, const Blocking& b, const Operands<Device>& operands)
    : g_(g), b_(b), a_(operands), k_(kernels()), tile_(k_.tiles[g.shape_index]),
      panels_(panel_layout(g, k_.columns())) {}

void Execution::run(std::byte* workspace) const {
  float* input = reinterpret_cast<float*>(workspace);
  float* weights = b_.split == Split::by_outputs ? input + b_.input_floats() : input;
  const float* ready = nullptr;
  if (b_.source == WeightSource::prepared) ready = reinterpret_cast<const float*>(a_.prepared->data.pointer());
  if (b_.source == WeightSource::shared) {
    transform_weights(weights);
    ready = weights;
  }
  if (b_.split == Split::by_tiles)
    run_by_tiles(ready);
  else
    run_by_outputs(input, ready);
}

void Execution::transform_weights(float* u) const {
  thread_pool().run(panels_.groups * panels_.output_blocks, [&](std::int64_t task) {
    const std::int64_t group = task / panels_.output_blocks, block = task % panels_.output_blocks;
    const ReductionBlock all{0, g_.problem.kernel[0], 0, g_.in_channels};
    transform_panel(group, block, all, u + task * panels_.panel_floats, panels_.point_stride);
  });
}

void Execution::run_by_tiles(const float* weights) const {
  const std::int64_t blocks = ceil_div(g_.positions, b_.tiles), chunks = ceil_div(g_.depths, b_.depths_per_unit);
  const std::int64_t units = panels_.groups * blocks * chunks;
  share_tasks(b_.threads, units, [&](auto next) {
    float* input = thread_scratch(b_.scratch_bytes);
    float* sums = input + b_.input_floats();
    float* own = sums + b_.depths_per_step * b_.sum_floats;
    std::int64_t own_group = -1;
    for (std::int64_t unit = next(); unit < units; unit = next()) {
      Slab slab;
      slab.group = unit / (blocks * chunks);
      slab.tile_begin = unit / chunks % blocks * b_.tiles;
      slab.tiles = std::min(b_.tiles, g_.positions - slab.tile_begin);
      slab.depth_begin = unit % chunks * b_.depths_per_unit;
      slab.depth_end = std::min(g_.depths, slab.depth_begin + b_.depths_per_unit);
      slab.input = input;
      if (b_.source == WeightSource::own && own_group != slab.group) transform_group(own_group = slab.group, own);
      const float* panels = b_.source == WeightSource::own ? own
                            : weights                      ? weights + slab.group * panels_.group_floats()
                                                           : nullptr;
      run_slab(slab, panels, own, sums);
    }
  });
}

void Execution::run_slab(const Slab& slab, const float* panels, float* chunk, float* sums) const {
  std::vector<std::int64_t> held(static_cast<std::size_t>(b_.slots), -1);
  for (std::int64_t d = slab.depth_begin; d < slab.depth_end; d += b_.depths_per_step) {
    for (const std::int64_t slice : needed_slices(d, std::min(d + b_.depths_per_step, slab.depth_end)))
      if (std::exchange(held[static_cast<std::size_t>(slot(slice))], slice) != slice)
        transform_slice(slab, slice, 0, slab.tiles);
    for (std::int64_t block = 0; block < panels_.output_blocks; ++block) step(slab, block, d, panels, chunk, sums);
  }
}

void Execution::run_by_outputs(float* input, const float* weights) const {
  for (std::int64_t group = 0; group < panels_.groups; ++group)
    for (std::int64_t tile = 0; tile < g_.positions; tile += b_.tiles)
      for (std::int64_t d = 0; d < g_.depths; d += b_.depths_per_unit) {
        const Slab slab{group, tile, std::min(b_.tiles, g_.positions - tile),
                        d,     std::min(g_.depths, d + b_.depths_per_unit), input};
        transform_shared(slab);
        multiply_shared(slab, weights ? weights + group * panels_.group_floats() : nullptr);
      }
}

void Execution::transform_shared(const Slab& slab) const {
  const auto slices = needed_slices(slab.depth_begin, slab.depth_end);
  const std::int64_t count = static_cast<std::int64_t>(slices.size());
  if (count == 0) return;
  const std::int64_t parts = std::min(slab.tiles, ceil_div(4 * b_.threads, count));
  thread_pool().run(count * parts, [&](std::int64_t task) {
    const std::int64_t part = task % parts;
    transform_slice(slab, slices[static_cast<std::size_t>(task / parts)], slab.tiles * part / parts,
                    slab.tiles * (part + 1) / parts);
  });
}

void Execution::multiply_shared(const Slab& slab, const float* panels) const {
  share_tasks(b_.threads, panels_.output_blocks, [&](auto next) {
    float* sums = thread_scratch(b_.scratch_bytes);
    float* chunk = sums + b_.depths_per_step * b_.sum_floats;
    for (std::int64_t block = next(); block < panels_.output_blocks; block = next())
      for (std::int64_t d = slab.depth_begin; d < slab.depth_end; d += b_.depths_per_step)
        step(slab, block, d, panels, chunk, sums);
  });
}

std::vector<std::int64_t> Execution::needed_slices(std::int64_t depth_begin, std::int64_t depth_end) const {
  if (g_.folded) return {0};
  std::vector<std::int64_t> slices;
  for (std::int64_t d = depth_begin; d < depth_end; ++d)
    for (auto [tap, end] = g_.taps(d); tap < end; ++tap) slices.push_back(g_.slice(d, tap));
  std::sort(slices.begin(), slices.end());
  slices.erase(std::unique(slices.begin(), slices.end()), slices.end());
  return slices;
}

void Execution::step(const Slab& slab, std::int64_t output_block, std::int64_t d, const float* panels, float* chunk,
                     float* sums) const {
  const std::int64_t depths = std::min(b_.depths_per_step, slab.depth_end - d);
  const ReductionBlock *begin = g_.reduction.data(), *end = begin + g_.reduction.size();
  if (panels) {
    const Panel panel{panels + output_block * panels_.panel_floats, panels_.point_stride, begin, end};
    multiply(slab, panel, d, depths, sums);
  } else {
    for (const ReductionBlock* r = begin; r != end; ++r) {
      const Panel panel{chunk, odd_lines(r->terms() * b_.columns), r, r + 1};
      transform_panel(slab.group, output_block, *r, chunk, panel.point_stride);
      multiply(slab, panel, d, depths, sums);
    }
  }
  for (std::int64_t e = 0; e < depths; ++e) store_tiles(slab, output_block, d + e, sums + e * b_.sum_floats);
}

void Execution::multiply(const Slab& slab, const Panel& panel, std::int64_t d, std::int64_t depths,
                         float* sums) const {
  for (std::int64_t point = 0; point < g_.shape.points(); ++point)
    for (std::int64_t e = 0; e < depths; ++e)
      multiply_point(slab, panel, d + e, point, sums + e * b_.sum_floats + point * b_.sum_point_stride);
}

void Execution::multiply_point(const Slab& slab, const Panel& panel, std::int64_t d, std::int64_t point,
                               float* sums) const {
  const Range inside = g_.taps(d);
  if (inside.size() == 0) return static_cast<void>(std::fill_n(sums, slab.tiles * b_.columns, 0.0f));
  const float* input = slab.input + point * b_.input_point_stride;
  const float* weights = panel.data + point * panel.point_stride;
  const std::int64_t first_term = panel.begin->tap_begin * g_.in_channels + panel.begin->channel_begin;
  const std::int64_t row_blocks = ceil_div(slab.tiles, k_.max_rows);
  std::array<GemmSlice<float>, kBlockTerms> slices;
  for (std::int64_t row_block = 0; row_block < row_blocks; ++row_block) {
    const std::int64_t row = slab.tiles * row_block / row_blocks;
    GemmTile<float> tile{slices.data(), 0, 0, b_.tile_pitch, sums + row * b_.columns, b_.columns};
    for (const ReductionBlock* r = panel.begin; r != panel.end; ++r) {
      const std::int64_t begin = std::max(r->tap_begin, inside.begin), end = std::min(r->tap_end, inside.end);
      if (begin >= end) continue;
      tile.slice_count = end - begin;
      tile.kc = r->channels();
      for (std::int64_t tap = begin; tap < end; ++tap)
        slices[static_cast<std::size_t>(tap - begin)] = {
            input + slot(g_.slice(d, tap)) * b_.slot_floats + row * b_.tile_pitch + r->channel_begin,
            weights + (tap * g_.in_channels + r->channel_begin - first_term) * b_.columns};
      const bool first = r->channel_begin == 0 && r->tap_begin <= inside.begin;
      k_.gemm(tile, slab.tiles * (row_block + 1) / row_blocks - row, !first);
    }
  }
}

}  // namespace vkconv::cpu::winograd
