#version 460
// variants: f16 bf16 f32 f16_emulated bf16_emulated f32_emulated
//
// A workgroup sums one tile of the gradient over one chunk of pixel tiles. Of a pixel tile shared memory holds the
// output gradients, and the input under them with its halo: every tap multiplies both in place, kMatrixK pixels of a
// row at a time. Pixels are the rows of both operands there, so that taps are offsets. A row of the input serves the
// gradients of as many rows as there are row taps, which wait in registers.
#include "algorithms/weight_grad_matrix/weight_grad_matrix.glsl"

layout(constant_id = 16) const bool kStrip = false;  // a pixel tile is one row, else kMatrixK columns wide
layout(constant_id = 17) const uint kRuns = 4;       // of kMatrixK pixels in a pixel tile
layout(constant_id = 18) const uint kInputLoads = 4;  // octets of a pixel tile's input an invocation loads
layout(constant_id = 19) const uint kGradLoads = 4;
layout(constant_id = 20) const uint kSharedOctets = 1024;
// Channels that a load takes at once, see channel_units.glsl; 8: octets are aligned and whole.
layout(constant_id = 21) const uint kInputUnit = 1;
layout(constant_id = 22) const uint kGradUnit = 1;
// Rows and columns; zero leaves them to Params.
layout(constant_id = 23) const uint kStrideRows = 0;
layout(constant_id = 24) const uint kStrideColumns = 0;
layout(constant_id = 25) const uint kDilationRows = 0;
layout(constant_id = 26) const uint kDilationColumns = 0;
layout(constant_id = 27) const uint kTapColumns = 0;
layout(constant_id = 28) const bool kDepth = true;  // the output has more than one
layout(constant_id = 29) const bool kFar = false;   // the input or the output gradients span 2^31 elements or more
// After each pixel tile sums move out of the matrices' accumulators, which do not round to nearest.
layout(constant_id = 30) const bool kFlushes = false;
layout(constant_id = 31) const bool kSlices = true;     // there are several
layout(constant_id = 32) const bool kStraddled = true;  // a pixel tile holds columns of several
layout(constant_id = 33) const bool kWholeTiles = false;  // of one row of pixels: no column is outside

shared uvec4 tile[kSharedOctets];
#include "vulkan/glsl/cooperative_matrix.glsl"
#include "vulkan/glsl/channel_units.glsl"
#include "vulkan/glsl/side_by_side.glsl"
#include "vulkan/glsl/transposed_matrix.glsl"
#ifdef VARIANT_F32
#include "algorithms/direct_matrix/split.glsl"
const uint kParts = 2;
#else
const uint kParts = 1;
#endif

const uint kTileRows = kStrip ? 1 : kRuns, kTileColumns = kStrip ? kRuns * kMatrixK : kMatrixK;
const uint kOctetsN = kMatrixN / 8;

uint stride_rows() { return kStrideRows != 0 ? kStrideRows : uint(params.geometry.stride[1]); }
uint stride_columns() { return kStrideColumns != 0 ? kStrideColumns : uint(params.geometry.stride[2]); }
uint dilation_rows() { return kDilationRows != 0 ? kDilationRows : uint(params.geometry.dilation[1]); }
uint dilation_columns() { return kDilationColumns != 0 ? kDilationColumns : uint(params.geometry.dilation[2]); }
uint tap_columns() { return kTapColumns != 0 ? kTapColumns : uint(params.geometry.kernel[2]); }

#include "algorithms/weight_grad_matrix/weight_grad_matrix_stage.glsl"

// Sums that leave their accumulators are computed one column of matrices after the other: accumulators of one column
// serve all.
const uint kSumsN = kFlushes ? 1 : kFragmentsN;
MatrixC sum[kTileTaps][kFragmentsM][kSumsN], total[kTileTaps][kFragmentsM][kFragmentsN];
#define EACH_SUM(columns)                                              \
  UNROLL for (uint t = 0; t < loop_count(kTileTaps); ++t)              \
    UNROLL for (uint i = 0; i < loop_count(kFragmentsM); ++i)          \
      UNROLL for (uint j = 0; j < loop_count(columns); ++j)

uint grad_slot;                  // of a subgroup's first row of the gradient
uint column_slots[kFragmentsN];  // of its columns: under their taps

// Where a subgroup's operands lie in the part of shared memory that holds a pixel tile.
void place_subgroup(Tile at) {
  grad_slot = kParts * input_octets() + subgroup_index() / kSubgroupsN * (kFragmentsM * kMatrixM / 8);
  const uint matrices = kChunkOctets / kOctetsN;
  UNROLL for (uint j = 0; j < loop_count(kFragmentsN); ++j) {
    const uint column = at.n * kMatricesN + subgroup_index() % kSubgroupsN * kFragmentsN + j;
    // Columns past the last tap are computed from it and not used.
    const uint tap = min(column / matrices, tap_columns() - 1);
    column_slots[j] = input_slot(tap * dilation_columns(), 0, column % matrices * kOctetsN);
  }
}

void load_gradients(out MatrixA a[kParts][kFragmentsM], uint base, uint run) {
  const uint first = base + grad_slot + run * (kStrip ? kMatrixK * grad_column() : kGradOctets);
  UNROLL for (uint part = 0; part < kParts; ++part)
    UNROLL for (uint i = 0; i < loop_count(kFragmentsM); ++i) {
      load_a_transposed(a[part][i], first + part * grad_octets() + i * (kMatrixM / 8), grad_column());
    }
}

// Of fp32 the small products first.
void add_products(uint t, uint j, MatrixA a[kParts][kFragmentsM], TileB b[kParts]) {
  UNROLL for (uint i = 0; i < loop_count(kFragmentsM); ++i) {
#ifdef VARIANT_F32
    multiply_add_tiles(sum[t][i][j], a[1][i], b[0]);
    multiply_add_tiles(sum[t][i][j], a[0][i], b[1]);
#endif
    multiply_add_tiles(sum[t][i][j], a[0][i], b[0]);
  }
}

// The products of input row y, kMatrixK columns from `line` runs on, under kSumsN columns of matrices: with the
// gradients, held from row to row, of every row that reads it under one of the taps.
void multiply_row(uint base, uint line, uint y, uint first, inout MatrixA a[kRuns][kParts][kFragmentsM]) {
  if (first == 0 && y % stride_rows() == 0 && y / stride_rows() < kTileRows)
    load_gradients(a[line + y / stride_rows()], base, line + y / stride_rows());
  UNROLL for (uint j = 0; j < loop_count(kSumsN); ++j) {
    TileB b[kParts];
    UNROLL for (uint part = 0; part < kParts; ++part) {
      load_b(b[part],
             base + column_slots[first + j] + part * input_octets() + line * kMatrixK * input_column() + y * kChunkOctets,
             input_column());
    }
    UNROLL for (uint t = 0; t < loop_count(kTileTaps); ++t) {
      const uint above = t * dilation_rows(), row = (y - above) / stride_rows();
      if (y >= above && (y - above) % stride_rows() == 0 && row < kTileRows) add_products(t, j, a[line + row], b);
    }
  }
}

// Sums of a column of matrices that leave their accumulators.
void flush(uint column, float scale) {
  EACH_SUM(1) {
    add_scaled(total[t][i][column], scale, sum[t][i][j]);
    clear(sum[t][i][j]);
  }
}

// The products of the pixel tile at `base`, input row after input row; meanwhile the next comes in.
void multiply(uint base, float scale, Stage following, bool wanted, uint parity) {
  const uint lines = kStrip ? kRuns : 1, rows = lines * halo_rows(), fetching = rows < kLateSteps ? 0 : 1;
  MatrixA a[kRuns][kParts][kFragmentsM];
  if (!kSpreads && wanted) fetch(following);
  UNROLL for (uint first = 0; first < loop_count(kFragmentsN); first += kSumsN) {
    UNROLL for (uint line = 0; line < loop_count(lines); ++line)
      UNROLL for (uint y = 0; y < halo_rows(); ++y) {
        const uint step = first / kSumsN * rows + line * halo_rows() + y, steps = kFragmentsN / kSumsN * rows;
        if (kSpreads && step == fetching && wanted) fetch(following);
        multiply_row(base, line, y, first, a);
        if (kSpreads) bring(following, step, steps);
      }
    if (kFlushes) flush(first, scale);
  }
  if (!kSpreads) bring_all(following, parity);
}

// A stage is one pixel tile.
void multiply_stages(uint first, uint count) {
  Stage stage = stage_at(first);
  if (kOneRow) advance(stage.column);
  plan_loads(stage.column);
  fetch(stage);
  start_scales();
  bring_all(stage, 0);
  for (uint s = 0; s < count; ++s) {
    const Stage following = stage_after(stage);
    const float scale = next_scale;
    barrier();
    const bool wanted = s + 1 < count;
    if (wanted && following.column != stage.column) plan_next(stage, following);
    multiply(stage.base, scale, following, wanted, (s + 1) % 2);
    stage = following;
  }
}

void store_tile(uint64_t sums_address) {
  NewSums sums = NewSums(sums_address);
  const uint columns = kMatricesN * kMatrixN, rows = kSubgroupsM * kFragmentsM * kMatrixM;
  const uint row = subgroup_index() / kSubgroupsN * (kFragmentsM * kMatrixM);
  const uint column = subgroup_index() % kSubgroupsN * (kFragmentsN * kMatrixN);
  EACH_SUM(kFragmentsN) {
    const uint index = (t * rows + row + i * kMatrixM) * columns + column + j * kMatrixN;
    if (kFlushes) {
      store_sums(total[t][i][j], sums, index, columns);
    } else {
      store_sums(sum[t][i][j], sums, index, columns);
    }
  }
}

void main() {
  const uint index = linear_group();
  if (index >= params.tile_count * params.chunks) return;
  const uint chunk = index / params.tile_count;
  const Tile at = tile_at(params.first_tile + index % params.tile_count);
  place_arrays(at);
  place_subgroup(at);
  EACH_SUM(kSumsN) { clear(sum[t][i][j]); }
  if (kFlushes) EACH_SUM(kFragmentsN) { clear(total[t][i][j]); }
  const uint first = chunk * params.chunk_tiles;
  multiply_stages(first, min(params.chunk_tiles, params.pixel_tiles - first));
  const uint tile_bytes = kTileTaps * kSubgroupsM * kFragmentsM * kMatrixM * kMatricesN * kMatrixN * 4;
  store_tile(params.workspace + uint64_t(index) * tile_bytes);
}
