#version 460
// variants: f16 bf16 f32 f16_emulated bf16_emulated f32_emulated
//
// A workgroup computes kTileRows x kTileColumns output pixels of kSubgroupsN * kFragmentsN * kMatrixN channels. The
// input under the tile and its halo lies in shared memory for one chunk of channels and one depth tap at a time; every
// row and column tap multiplies it in place, by weights that go from memory to registers in the order they are packed.
#include "algorithms/direct_matrix/direct_matrix.glsl"

layout(constant_id = 10) const uint kSubgroupsM = 2;
layout(constant_id = 11) const uint kSubgroupsN = 2;
layout(constant_id = 12) const uint kFragmentsM = 4;  // a subgroup computes kFragmentsM x kFragmentsN matrices
layout(constant_id = 13) const uint kFragmentsN = 2;
layout(constant_id = 14) const bool kStrip = false;      // the tile is one row, else kMatrixM columns wide
layout(constant_id = 15) const uint kChunkOctets = 4;    // input channels in shared memory
layout(constant_id = 16) const uint kLoads = 4;          // octets of a stage an invocation loads
layout(constant_id = 17) const uint kSharedOctets = 1024;
layout(constant_id = 18) const bool kInputOctets = false;  // octets of input channels are aligned and whole
layout(constant_id = 19) const bool kPadded = false;
// Steps after which sums move out of the matrices' accumulators, which do not round to nearest; 0: at the end.
layout(constant_id = 20) const uint kBlockSteps = 0;
// Rows and columns; zero leaves them to Params.
layout(constant_id = 21) const uint kTapRows = 0;
layout(constant_id = 22) const uint kTapColumns = 0;
layout(constant_id = 23) const uint kStrideRows = 0;
layout(constant_id = 24) const uint kStrideColumns = 0;
layout(constant_id = 25) const uint kDilationRows = 0;
layout(constant_id = 26) const uint kDilationColumns = 0;

shared uvec4 tile[kSharedOctets];
#include "vulkan/glsl/cooperative_matrix.glsl"

layout(constant_id = 27) const bool kDepthTaps = true;  // more than one, or one that may be outside
layout(constant_id = 28) const bool kFarInput = false;  // its elements span more than 2^32
layout(constant_id = 29) const bool kDepth = true;      // the output has more than one
layout(constant_id = 30) const uint kThreads = 128;     // kSubgroupsM * kSubgroupsN * kLanes
layout(constant_id = 31) const bool kFarOutput = false;     // its elements, or the addend's, span 2^31 or more
layout(constant_id = 32) const bool kStoresEights = false;  // 16-bit outputs are aligned to eight elements
layout(constant_id = 33) const uint kBodySteps = 0;  // steps of a stage that the loop's body holds; 0: all
layout(constant_id = 34) const bool kShares = false;  // outputs are shares of sums, which direct_matrix_sum adds
layout(local_size_x_id = 30) in;

const uint kTilePixels = kSubgroupsM * kFragmentsM * kMatrixM;
const uint kTileRows = kStrip ? 1 : kSubgroupsM * kFragmentsM;
const uint kTileColumns = kStrip ? kTilePixels : kMatrixM;
const uint kStepsK = kChunkOctets / kOctetsK;  // of a tap
const uint kStepOctets = kParts * kFragmentsN * kBlockOctets;
const uint kHeldOctets = kLaneOctets > 1 ? kLaneOctets : 1;
const uint kNoSlot = 0xffffffffu, kLeadSteps = 4;
const int kOutside = -0x40000000;  // no depth tap reaches the input from here

uint tap_rows() { return kTapRows != 0 ? kTapRows : uint(params.geometry.kernel[1]); }
uint tap_columns() { return kTapColumns != 0 ? kTapColumns : uint(params.geometry.kernel[2]); }
uint stride_rows() { return kStrideRows != 0 ? kStrideRows : uint(params.geometry.stride[1]); }
uint stride_columns() { return kStrideColumns != 0 ? kStrideColumns : uint(params.geometry.stride[2]); }
uint dilation_rows() { return kDilationRows != 0 ? kDilationRows : uint(params.geometry.dilation[1]); }
uint dilation_columns() { return kDilationColumns != 0 ? kDilationColumns : uint(params.geometry.dilation[2]); }

// Where this workgroup's part lies.
struct Place {
  int group;
  int column, row;  // first output column, slices side by side, and row
  uint channel;     // first output channel, in the group
  uint share;
  uint subgroup_m, subgroup_n;
};

#include "algorithms/direct_matrix/direct_matrix_input.glsl"

MatrixC sum[kFragmentsM][kFragmentsN], total[kFragmentsM][kFragmentsN];
uvec4 held[kParts][kFragmentsN][kHeldOctets];
Octets weights;  // of this invocation at the stage's first step

#include "algorithms/direct_matrix/direct_matrix_output.glsl"

// Of the first row of a subgroup's matrices under a step's tap, from the first of the tile.
uint step_slot(uint step) {
  const uint tap = step / kStepsK, y = tap / tap_columns(), x = tap - y * tap_columns();
  return column_slot(x * dilation_columns()) + y * dilation_rows() * kChunkOctets + step % kStepsK * kOctetsK;
}

uint weight_octet(uint step, uint part, uint j) {
  return step * kStepOctets + (part * kFragmentsN + j) * kBlockOctets;
}

void fetch_weights(uint step) {
  [[unroll]] for (uint part = 0; part < kParts; ++part)
    [[unroll]] for (uint j = 0; j < kFragmentsN; ++j) fetch_b(held[part][j], weights, weight_octet(step, part, j));
}

void end_block(float scale) {
  UNROLL for (uint i = 0; i < loop_count(kFragmentsM); ++i)
    UNROLL for (uint j = 0; j < loop_count(kFragmentsN); ++j) {
      add_scaled(total[i][j], scale, sum[i][j]);
      clear(sum[i][j]);
    }
}

// Row i of a subgroup's matrices at a step.
void load_row(out MatrixA a[kParts], uint base, uint step, uint i) {
  const uint row_slots = kStrip ? kMatrixM * column_octets() : stride_rows() * kChunkOctets;
  UNROLL for (uint part = 0; part < kParts; ++part) {
    load_a(a[part], base + part * part_octets() + step_slot(step) + i * row_slots, column_octets());
  }
}

// The products of one row of matrices; of fp32 the small ones first.
void multiply_row(uint i, MatrixA a[kParts], MatrixB b[kParts][kFragmentsN]) {
  UNROLL for (uint j = 0; j < loop_count(kFragmentsN); ++j) {
#ifdef VARIANT_F32
    multiply_add(sum[i][j], a[1], b[0][j]);
    multiply_add(sum[i][j], a[0], b[1][j]);
#endif
    multiply_add(sum[i][j], a[0], b[0][j]);
  }
}

// Adds the products of one run of a stage's steps, all in one body, while `following` comes in with the first run.
// Weights are on their way to registers one step ahead, the input one row of matrices.
void multiply_run(uint base, uint first, uint count, float scale, Stage following) {
  MatrixA a[kParts];
  load_row(a, base, first, 0);
  UNROLL for (uint s = 0; s < count; ++s) {
    MatrixB b[kParts][kFragmentsN];
    UNROLL for (uint part = 0; part < kParts; ++part)
      UNROLL for (uint j = 0; j < loop_count(kFragmentsN); ++j) {
        make_b(b[part][j], held[part][j], weights, weight_octet(s, part, j));
      }
    fetch_weights(s + 1);
    if (first == 0) bring(following, s, count);
    UNROLL for (uint i = 0; i < loop_count(kFragmentsM); ++i) {
      const bool row_ends = i + 1 == kFragmentsM;
      MatrixA ahead[kParts];
      if (!row_ends || s + 1 < count)
        load_row(ahead, base, first + (row_ends ? s + 1 : s), row_ends ? 0 : i + 1);
      multiply_row(i, a, b);
      UNROLL for (uint part = 0; part < kParts; ++part) a[part] = ahead[part];
    }
    if (kBlockSteps != 0 && (s % kBlockSteps == kBlockSteps - 1 || s + 1 == count)) end_block(scale);
  }
  weights = Octets(uint64_t(weights) + uint64_t(count * kStepOctets) * 16);
}

// Adds the products of the stage at `base`. A body of more steps than the compiler unrolls would leave the matrices in
// memory.
void multiply_stage(uint base, float scale, Stage following) {
  const uint steps = tap_rows() * tap_columns() * kStepsK;
  if (kBodySteps == 0) {
    multiply_run(base, 0, steps, scale, following);
  } else {
    [[dont_unroll]] for (uint first = 0; first < steps; first += kBodySteps)
      multiply_run(base, first, kBodySteps, scale, following);
  }
}

void multiply(Place at) {
  const uint base = kStrip ? at.subgroup_m * kFragmentsM * kMatrixM * column_octets()
                           : at.subgroup_m * kFragmentsM * stride_rows() * kChunkOctets;
  uint stages = uint(params.geometry.kernel[0]) * params.chunks, first = 0;
  if (kShares) {
    first = at.share * params.share_stages;
    stages = min(stages - first, params.share_stages);
  }
  Stage stage = stage_at(first / params.chunks, first % params.chunks, 0);
  fetch_weights(0);
  UNROLL for (uint i = 0; i < load_count(); ++i) fetch(stage, i);
  start_scales();
  share_stage(stage, 0);
  for (uint s = 0; s < stages; ++s) {
    const Stage following = stage_after(stage);
    const float scale = next_inverse_scale;
    barrier();
    multiply_stage(stage.base + base, scale, following);
    if (kParts > 1) share_stage(following, (s + 1) % 2);
    stage = following;
  }
}

void main() {
  uint index = linear_group();
  if (index >= params.groups) return;
  const uint tile_o = take_digit(index, params.tiles_o), tile_x = take_digit(index, params.tiles_x);
  const uint tile_y = take_digit(index, params.tiles_y);
  Place at;
  at.share = kShares ? take_digit(index, params.shares) : 0;
  at.group = int(index);
  at.column = int(tile_x * kTileColumns);
  at.row = int(tile_y * kTileRows);
  at.subgroup_m = subgroup_index() / kSubgroupsN;
  at.subgroup_n = subgroup_index() % kSubgroupsN;
  const uint run = tile_o * kSubgroupsN + at.subgroup_n;
  at.channel = run * (kFragmentsN * kMatrixN);
  UNROLL for (uint i = 0; i < load_count(); ++i) plan_load(at, i);
  UNROLL for (uint i = 0; i < loop_count(kFragmentsM); ++i)
    UNROLL for (uint j = 0; j < loop_count(kFragmentsN); ++j) {
      clear(sum[i][j]);
      if (kBlockSteps != 0) { clear(total[i][j]); }
    }
  const uint stage_steps = tap_rows() * tap_columns() * kStepsK;
  const uint stages = uint(params.geometry.kernel[0]) * params.chunks;
  const uint64_t first_octet = (uint64_t(at.group * params.runs + run) * stages + at.share * params.share_stages) *
                               (stage_steps * kStepOctets);
  weights = Octets(params.packed_array + (first_octet + lane_index() * kLaneOctets) * 16);
  multiply(at);
  store_outputs(at);
}
