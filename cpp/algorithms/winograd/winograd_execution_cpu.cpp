#include "algorithms/winograd/winograd_execution.h"

#include <algorithm>
#include <utility>

#include "core/checked.h"
#include "cpu/job.h"
#include "cpu/streaming.h"
#include "cpu/task_shares.h"
#include "cpu/thread_pool.h"
#include "cpu/thread_scratch.h"
#include "hwy/cache_control.h"

namespace vkconv::cpu::winograd {
namespace {

constexpr std::int64_t kPiecesAThread = 4;  // so that threads finish together

}  // namespace

Execution::Execution(const Geometry& g, const Blocking& b, const Operands<Device>& operands)
    : g_(g),
      b_(b),
      a_(operands),
      k_(kernels()),
      gemm_(gemm_kernels<float>()),
      tile_(k_.tiles[g.shape_index]),
      panels_(panel_layout(g, b.columns)),
      together_(b.source == WeightSource::fused
                    ? 1
                    : gemm_.chains_together(panel_vectors(), panels_.floats() * std::int64_t{sizeof(float)})),
      step_{g.problem.stride[0] * a_.input.stride[1], g.problem.stride[1] * a_.input.stride[2],
            g.problem.stride[2] * a_.input.stride[3]},
      covered_{g.shape.deep() ? g.outputs_with_input(0) : Range{0, g.problem.output[0]}, g.outputs_with_input(1),
               g.outputs_with_input(2)},
      bounds_(g.problem.epilogue.activation == Activation::identity ? std::nullopt : bounds_of(g.problem.epilogue)),
      stream_(b.stream && a_.output.data != a_.addend.data &&
              whole_vectors(a_.output, DType::f32, {0, g.out_channels}, k_.lanes * sizeof(float))),
      in_registers_(!stream_ && only_bounds(g.problem.epilogue)) {}

void Execution::run(std::byte* workspace) const {
  if (b_.source == WeightSource::prepared) return run_units(reinterpret_cast<const float*>(a_.prepared->data));
  if (b_.source != WeightSource::shared) return run_units(nullptr);
  transform_weights(reinterpret_cast<float*>(workspace));
  run_units(reinterpret_cast<const float*>(workspace));
}

// A panel in so many pieces of a tap's channels that every thread has some: chains, or parts of them.
std::vector<ReductionBlock> Execution::panel_pieces() const {
  const auto chains = static_cast<std::int64_t>(g_.reduction.size()), panels = panels_.groups * panels_.output_blocks;
  if (chains * panels >= kPiecesAThread * thread_pool().size()) return g_.reduction;
  std::vector<ReductionBlock> pieces;
  for (const ReductionBlock& r : g_.reduction)
    for (std::int64_t tap = r.tap_begin; tap < r.tap_end; ++tap)
      for (std::int64_t c = r.channel_begin; c < r.channel_end; c += kStagedChannels)
        pieces.push_back({tap, tap + 1, c, std::min(c + kStagedChannels, r.channel_end)});
  return pieces;
}

// Another thread may read a panel than writes it, and a line of memory that one core wrote comes late out of its cache
// to another: panels go past the caches.
void Execution::transform_weights(float* u) const {
  const std::vector<ReductionBlock> pieces = panel_pieces();
  const auto count = static_cast<std::int64_t>(pieces.size());
  const bool stream = streams_panels(k_.lanes);
  thread_pool().run(panels_.groups * panels_.output_blocks * count, [&](std::int64_t task) {
    const ReductionBlock& r = pieces[static_cast<std::size_t>(task % count)];
    const std::int64_t panel = task / count;
    transform_panel(panel / panels_.output_blocks, panel % panels_.output_blocks, r, all_planes(), stream,
                    u + panel * panels_.panel_floats + g_.first_term(r) * b_.columns, panels_.point_stride);
    if (stream) hwy::FlushStream();
  });
}

// Units are numbered group, tiles, depths, outputs, the last fastest: a thread that takes several outputs of one slab
// finds its input transformed.
void Execution::run_units(const float* weights) const {
  const std::int64_t blocks = ceil_div(g_.positions, b_.tiles), chunks = ceil_div(g_.depths, b_.depths_per_unit);
  const std::int64_t slabs = panels_.groups * blocks * chunks, units = slabs * b_.output_splits;
  const std::int64_t threads = std::min(b_.threads, units);
  TaskShares shares(threads, units);
  thread_pool().run(threads, [&](std::int64_t thread) {
    const ThreadScratch scratch(b_.scratch_bytes);
    Worker worker;
    worker.input = reinterpret_cast<float*>(scratch.data());
    worker.sums = worker.input + b_.input_floats;
    worker.weights = worker.sums + b_.all_sum_floats();
    shares.drain(thread, [&](std::int64_t unit) {
      const std::int64_t split = unit % b_.output_splits, index = unit / b_.output_splits;
      Slab slab;
      slab.group = index / (blocks * chunks);
      slab.tile_begin = index / chunks % blocks * b_.tiles;
      slab.tiles = std::min(b_.tiles, g_.positions - slab.tile_begin);
      slab.depth_begin = index % chunks * b_.depths_per_unit;
      slab.depth_end = std::min(g_.depths, slab.depth_begin + b_.depths_per_unit);
      enter(worker, slab);
      const float* group_weights = weights ? weights + slab.group * panels_.group_floats() : nullptr;
      const Range blocks = nth_part(panels_.output_blocks, split, b_.output_splits);
      for (std::int64_t d = slab.depth_begin; d < slab.depth_end; d += b_.depths_per_step) {
        check_job();
        hold_slices(worker, d, std::min(d + b_.depths_per_step, slab.depth_end));
        for (std::int64_t block = blocks.begin; block < blocks.end; block += b_.blocks_per_step)
          step(worker, {block, std::min(block + b_.blocks_per_step, blocks.end)}, d, group_weights,
               block == blocks.begin && d == slab.depth_begin);
      }
    });
    if (stream_) hwy::FlushStream();
  });
}

void Execution::enter(Worker& worker, const Slab& slab) const {
  if (worker.slab.group != slab.group)
    worker.held_panels.assign(static_cast<std::size_t>(panels_.output_blocks), false);
  if (worker.slab != slab) worker.held_slices.assign(static_cast<std::size_t>(b_.slots), -1);
  worker.slab = slab;
}

// Transforms the slices that the outputs [depth_begin, depth_end) read and that are not in their slots yet; those of
// deep tiles follow plane by plane.
void Execution::hold_slices(Worker& worker, std::int64_t depth_begin, std::int64_t depth_end) const {
  worker.taps.clear();
  worker.slices.assign(static_cast<std::size_t>((depth_end - depth_begin) * g_.problem.kernel[0]), nullptr);
  for (std::int64_t d = depth_begin; d < depth_end; ++d) {
    const Range inside = worker.taps.emplace_back(g_.taps(d));
    for (std::int64_t tap = inside.begin; tap < inside.end; ++tap) {
      const std::int64_t slice = g_.folded ? 0 : g_.slice(d, tap), i = slot(worker.slab, slice);
      float* v = worker.input + i * worker.slab.tiles * b_.tile_pitch;
      worker.slices[static_cast<std::size_t>((d - depth_begin) * g_.problem.kernel[0] + tap)] = v;
      if (!g_.shape.deep() && std::exchange(worker.held_slices[static_cast<std::size_t>(i)], slice) != slice)
        transform_slice(worker.slab, slice, 0, v);
    }
  }
  worker.runs.resize(g_.reduction.size() * worker.taps.size());
  const ReductionBlock *r = g_.reduction.data(), *const last = r + g_.reduction.size();
  for (const ReductionBlock* end; r != last; r = end) {
    end = chains_end(r, last);
    Run* runs = runs_of(worker, r);
    for (std::size_t e = 0; e < worker.taps.size(); e += static_cast<std::size_t>(runs[e].depths))
      runs[e] = run_of_depths(worker, {r->tap_begin, end[-1].tap_end}, e);
  }
}

// Transforms the panels of some output blocks that the thread does not have yet.
void Execution::hold_panels(Worker& worker, Range blocks) const {
  for (std::int64_t block = blocks.begin; block < blocks.end; ++block) {
    if (worker.held_panels[static_cast<std::size_t>(block)]) continue;
    worker.held_panels[static_cast<std::size_t>(block)] = true;
    transform_panel(worker.slab.group, block, all_terms(), all_planes(), false,
                    worker.weights + block * panels_.panel_floats, panels_.point_stride);
  }
}

// The outputs of some output blocks for depths_per_step outputs along the summed axis. `first` of a slab.
void Execution::step(Worker& worker, Range blocks, std::int64_t d, const float* weights, bool first) const {
  const ReductionBlock *begin = g_.reduction.data(), *end = begin + g_.reduction.size();
  Fetched fetched;
  if (b_.fetches) fetched = {first && g_.problem.input[0] == 1, stream_ ? Range{} : blocks, d};
  if (b_.source == WeightSource::own) hold_panels(worker, blocks);
  for (int plane = 0; plane < g_.shape.points_d(); ++plane) {
    if (g_.shape.deep()) transform_slice(worker.slab, 0, plane, worker.input);
    const std::int64_t first_point = plane * g_.shape.plane_points();
    float* sums = worker.sums + first_point * b_.sum_point_stride;
    if (b_.source != WeightSource::fused) {
      const float* panel = (weights ? weights : worker.weights) + blocks.begin * panels_.panel_floats;
      multiply(worker,
               {panel + first_point * panels_.point_stride, panels_.point_stride, panels_.panel_floats, begin, end},
               blocks.size(), sums, plane == 0 ? fetched : Fetched{});
      continue;
    }
    for (std::int64_t block = blocks.begin; block < blocks.end; ++block, sums += b_.sum_floats)
      for (const ReductionBlock* r = begin; r != end; ++r) {
        const Panel panel{worker.weights, odd_lines(r->terms() * b_.columns), 0, r, r + 1};
        transform_panel(worker.slab.group, block, *r, {plane, plane + 1}, false, worker.weights, panel.point_stride);
        multiply(worker, panel, 1, sums, {});
      }
  }
  const float* sums = worker.sums;
  for (std::int64_t block = blocks.begin; block < blocks.end; ++block, sums += b_.sum_floats)
    for (std::int64_t e = 0; e < static_cast<std::int64_t>(worker.taps.size()); ++e)
      store_tiles(worker.slab, block, d + e, sums + e * worker.slab.tiles * b_.columns);
}

// Point by point: the tiles of one point stay in the core's own cache while all panels pass.
void Execution::multiply(const Worker& worker, const Panel& panel, std::int64_t blocks, float* sums,
                         const Fetched& f) const {
  const auto weights = [&](std::int64_t point, std::int64_t block) {
    return panel.data + block * panel.block_stride + point * panel.point_stride;
  };
  for (std::int64_t point = 0; point < g_.shape.plane_points(); ++point) {
    fetch(worker, f, point);
    for (std::int64_t block = 0, next; block < blocks; block = next) {
      next = std::min(block + kWidePanels, blocks);
      multiply_point(worker, panel, weights(point, block), next - block,
                     next < blocks ? weights(point, next) : weights(point + 1, 0), point,
                     sums + block * b_.sum_floats + point * b_.sum_point_stride);
    }
  }
}

// The channels of one summed tap: one slice, or one for each part when some of them vanish at the point. `input` and
// `weights` are at channel 0.
void Execution::add_slices(const ReductionBlock& r, std::int64_t point, const float* input, const float* weights,
                           GemmTerms<float>& terms, GemmSlice<float>* slices) const {
  const std::int64_t step = std::min(r.channels(), g_.in_channels);
  const bool all = g_.used_channels(r, point) == r.channels();
  terms.kc = all ? r.channels() : step;
  for (std::int64_t c = r.channel_begin; c < r.channel_end; c += terms.kc)
    if (all || !g_.vanishes(g_.part(c), point)) slices[terms.slice_count++] = {input + c, weights + c * b_.columns};
}

Run Execution::run_of_depths(const Worker& worker, Range taps, std::size_t first) const {
  const auto kernel = static_cast<std::size_t>(g_.problem.kernel[0]);
  const std::int64_t slot_floats = worker.slab.tiles * b_.tile_pitch;
  const auto inside = [&](std::size_t e) {
    const auto near = [&](std::int64_t tap) { return std::clamp(tap, taps.begin - 1, taps.end); };
    return Range{near(worker.taps[e].begin), near(worker.taps[e].end)};
  };
  Run run{1, inside(first)};
  const Range read = common(taps, run.inside);
  const auto follows = [&](std::size_t e) {
    const Range next = inside(e);
    if (next.begin != run.inside.begin || next.end != run.inside.end) return false;
    for (std::int64_t tap = read.begin; tap < read.end; ++tap) {
      const float* const* slice = worker.slices.data() + e * kernel + static_cast<std::size_t>(tap);
      if (*slice != *(slice - kernel) + slot_floats) return false;
    }
    return true;
  };
  for (std::size_t e = first + 1; e < worker.taps.size() && follows(e); ++e) ++run.depths;
  return run;
}

// Each piece of the blocks' panels stays in L1 while it meets the tiles of all depths; meanwhile comes the piece behind
// it, after the last one that of `next`, the panels multiplied after these.
void Execution::multiply_point(const Worker& worker, const Panel& panel, const float* weights, std::int64_t blocks,
                               const float* next, std::int64_t point, float* sums) const {
  const auto used = [&](const ReductionBlock& r) { return g_.used_channels(r, point) > 0; };
  const std::int64_t first_term = g_.first_term(*panel.begin);
  GemmSlice<float> slices[kMostChains][kMaxChainTerms];
  GemmTerms<float> chains[kMostChains];
  for (const ReductionBlock *r = panel.begin, *end; r != panel.end; r = end) {
    end = chains_end(r, panel.end);
    const ReductionBlock* const behind = std::find_if(end, panel.end, used);
    const Run* runs = runs_of(worker, r);
    GemmTile<float> tile{{}, b_.tile_pitch, sums, b_.columns};
    tile.panels = blocks;
    tile.panel_stride = panel.block_stride;
    tile.c_panel_stride = b_.sum_floats;
    tile.next = behind == panel.end ? next : weights + (g_.first_term(*behind) - first_term) * b_.columns;
    for (std::size_t e = 0; e < worker.taps.size(); e += static_cast<std::size_t>(runs[e].depths)) {
      const Run& run = runs[e];
      const float* const* slice = worker.slices.data() + e * static_cast<std::size_t>(g_.problem.kernel[0]);
      const std::int64_t rows = run.depths * worker.slab.tiles;
      int count = 0;
      bool accumulate = true;
      for (const ReductionBlock* block = r; block != end; ++block) {
        GemmTerms<float>& terms = chains[count];
        terms.slices = slices[count];
        terms.slice_count = 0;
        const Range taps = common({block->tap_begin, block->tap_end}, run.inside);
        for (std::int64_t tap = taps.begin; tap < taps.end; ++tap)
          add_slices(*block, point, slice[tap] + point * b_.input_point_stride,
                     weights + (tap * g_.channels() - first_term) * b_.columns, terms, slices[count]);
        // The first part has all taps of the shape: its block is never skipped.
        if (block->channel_begin == 0 && block->tap_begin <= run.inside.begin) accumulate = false;
        if (terms.slice_count > 0) ++count;
      }
      if (count > 0)
        gemm_.chains(tile, chains, count, rows, panel_vectors(), accumulate, nullptr);
      else if (!accumulate)
        for (std::int64_t i = 0; i < blocks; ++i) std::fill_n(tile.c + i * b_.sum_floats, rows * b_.columns, 0.0f);
      tile.c += rows * b_.columns;
    }
  }
}

}  // namespace vkconv::cpu::winograd
