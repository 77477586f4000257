#include "algorithms/implicit_gemm/dense.h"

#include <algorithm>

#include "core/checked.h"
#include "cpu/bf16_dot.h"
#include "cpu/gemm_kernels.h"
#include "cpu/staging.h"

namespace vkconv::cpu {
namespace {

constexpr std::int64_t kChunkPixels = 512;  // at this many, packing a panel for one chunk costs about 1 %
constexpr std::int64_t kMinChunkPixels = 64;
constexpr double kMinTaskFlops = 2e6;           // about 10 us; far above the cost of starting a task
constexpr std::int64_t kTasksAThread = 4;       // so that threads finish together
constexpr std::size_t kStageBytes = 256 << 10;  // widened input that leaves room for the panel in L2

void set_chunk(DenseLayout& s, std::int64_t pixels) {
  const std::int64_t width = s.p.output[2];
  s.chunk_rows = std::clamp<std::int64_t>(pixels / width, 1, s.rows);
  const std::int64_t pieces = std::clamp<std::int64_t>(width / pixels, 1, s.row_tiles);
  s.chunk_tiles = ceil_div(s.row_tiles, pieces);
  if (s.chunk_rows > 1) s.chunk_rows = ceil_div(s.rows, ceil_div(s.rows, s.chunk_rows));
  if (s.staged) s.stage_bytes = staging_bytes(s.p, s.chunk_rows, std::min(width, s.chunk_tiles * s.tile.max_rows));
}

std::int64_t chunk_pixels(const DenseLayout& s) {
  return std::min(s.p.output[2], s.chunk_tiles * s.tile.max_rows) * s.chunk_rows;
}

// Panels a task: all of them when the task widens its input, else as few as are worth a task.
void set_panels(DenseLayout& s, std::int64_t wanted_tasks) {
  const double flops = 2.0 * static_cast<double>(chunk_pixels(s) * s.columns) * static_cast<double>(s.terms);
  const std::int64_t chunks = s.row_chunks() * s.tile_chunks();
  const auto enough = static_cast<std::int64_t>(std::min(1e9, kMinTaskFlops / flops)) + 1;
  const std::int64_t most = s.staged ? ceil_div(s.all_panels() * chunks, wanted_tasks) : enough;
  s.task_panels = std::clamp<std::int64_t>(std::max(most, enough), 1, s.all_panels());
}

}  // namespace

TileShape tile_shape(DType t) {
  if (t == DType::f64) return {gemm_kernels<double>().max_rows, gemm_kernels<double>().lanes};
  return {gemm_kernels<float>().max_rows, gemm_kernels<float>().lanes};
}

DenseLayout dense_layout(const ConvProblem& problem, const Context<Device>& context, TileShape tile) {
  DenseLayout s;
  s.tile = tile;
  s.orientation = long_rows(problem, std::min<std::int64_t>(tile.max_rows, 7));
  s.p = s.orientation.apply(problem);
  const ConvProblem& p = s.p;
  s.columns = 2 * tile.lanes;
  s.panels = ceil_div(p.out_channels_per_group(), s.columns);
  s.terms = p.taps() * p.in_channels_per_group();
  for (std::int64_t k = 0; k < p.kernel[2]; ++k) s.tap_reach.push_back(outputs_inside(p, 2, k));
  s.row_tiles = ceil_div(p.output[2], tile.max_rows);
  s.rows = p.batch * p.output[0] * p.output[1];
  s.dot = p.dtype == DType::bf16 && p.precision != Precision::highest && context.traits.bf16_dot &&
          tile.lanes == kDotLanes && p.in_channels_per_group() % 2 == 0;
  s.staged = size_bytes(p.dtype) == 2 && !s.dot;
  const DType multiplied = s.dot ? p.dtype : accumulator(p.dtype);
  s.panel_bytes = static_cast<std::size_t>(
      round_up(checked_mul(s.terms * s.columns, static_cast<std::int64_t>(size_bytes(multiplied))), 256));
  s.slots = context.traits.threads;

  const std::int64_t wanted = context.traits.threads > 1 ? kTasksAThread * context.traits.threads : 1;
  const auto tasks = [&] { return s.row_chunks() * s.tile_chunks() * s.panel_chunks(); };
  std::int64_t pixels = kChunkPixels;
  set_chunk(s, pixels);
  set_panels(s, wanted);
  while (pixels > kMinChunkPixels && (tasks() < wanted || s.stage_bytes > kStageBytes)) {
    set_chunk(s, pixels /= 2);
    set_panels(s, wanted);
  }
  while (s.slots > 1 && s.workspace_bytes() > context.workspace_limit_bytes) --s.slots;
  while (pixels > 1 && s.workspace_bytes() > context.workspace_limit_bytes) set_chunk(s, pixels /= 2);
  return s;
}

}  // namespace vkconv::cpu
