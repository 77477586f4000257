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
layout(constant_id = 18) const uint kInputUnit = 1;  // input channels that a load takes at once, see channel_units.glsl
layout(constant_id = 19) const bool kPadded = false;
// Steps after which sums move out of the accumulators: of fp32 also at the end of a run, of halves only there; 0: no sum
// is so long. See direct_matrix_totals.glsl.
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

layout(constant_id = 27) const bool kDepthTaps = true;  // some may be outside
layout(constant_id = 28) const bool kFarInput = false;  // it spans 2^32 bytes or more
layout(constant_id = 29) const bool kDepth = true;      // the output has more than one
layout(constant_id = 30) const uint kThreads = 128;     // kSubgroupsMN * kSubgroupsK * kLanes
layout(constant_id = 31) const bool kFarOutput = false;     // its elements, or the addend's, span 2^31 or more
layout(constant_id = 32) const bool kStoresEights = false;  // 16-bit outputs are aligned to eight elements
layout(constant_id = 33) const uint kBodySteps = 0;  // steps of a stage that the loop's body holds; 0: all
layout(constant_id = 34) const bool kShares = false;  // outputs are shares of sums, which direct_matrix_sum adds
layout(constant_id = 35) const bool kWholeChunks = false;  // of input channels
// Channels of a column of the input where the taps of a row are channels of the matrices; 0: those are the input's.
layout(constant_id = 36) const uint kColumnChannels = 0;
layout(constant_id = 37) const bool kStraddled = true;  // tiles hold columns of several slices
layout(constant_id = 38) const bool kTapsInLine = false;  // channels of neighbouring taps follow each other in memory
layout(constant_id = 39) const bool kOneStage = false;  // holds all of a sum
layout(constant_id = 40) const bool kSlices = true;     // there are several
layout(constant_id = 41) const uint kSubgroupsK = 1;    // add to the same sums, each a part of every tap's channels
layout(constant_id = 42) const bool kStoresWords = false;  // of 16-bit outputs, see direct_matrix_output.glsl
layout(constant_id = 43) const bool kRoundsFirst = false;  // kStoresEights, and the epilogue runs in registers
layout(local_size_x_id = 30) in;

const bool kTapsAreChannels = kColumnChannels != 0, kBrings = !kOneStage && !kTapsAreChannels;
#include "algorithms/direct_matrix/direct_matrix_sizes.glsl"
#include "vulkan/glsl/channel_units.glsl"

// Where this workgroup's part lies.
struct Place {
  int group;
  int column, row;  // first output column, slices side by side, and row
  int slice;        // unless several
  uint channel;     // first output channel, in the group
  uint share;
  uint subgroup_m, subgroup_n, subgroup_k;
};

#include "algorithms/direct_matrix/direct_matrix_input.glsl"

MatrixC sum[kFragmentsM][kFragmentsN];
#include "algorithms/direct_matrix/direct_matrix_totals.glsl"
uint steps_in_block = 0;
// Rows of matrices of the input on their way ahead of the products: of halves two, unless one of them multiplies for
// as long as its successor's loads take.
const uint kAhead = kParts == 1 && kFragmentsM > 1 && kFragmentsN < 5 ? 2 : 1;
MatrixA rows[kAhead][kParts];
uvec4 held[kParts][kFragmentsN][kHeldOctets];
Octets weights;  // of this invocation at the stage's first step

#include "algorithms/direct_matrix/direct_matrix_output.glsl"

// Of the first row of a subgroup's matrices under a step's tap, from the first of the tile.
uint step_slot(uint step) {
  const uint tap = step / kOwnStepsK, y = tap / tap_columns, x = tap - y * tap_columns;
  return column_slot(x * dilation_columns) + y * dilation_rows * kChunkOctets + step % kOwnStepsK * kOctetsK;
}

uint weight_octet(uint step, uint part, uint j) {
  return (step / kOwnStepsK * kStepsK + step % kOwnStepsK) * kStepOctets + (part * kFragmentsN + j) * kBlockOctets;
}

void fetch_weights(uint step) {
  [[unroll]] for (uint part = 0; part < kParts; ++part)
    [[unroll]] for (uint j = 0; j < kFragmentsN; ++j) fetch_b(held[part][j], weights, weight_octet(step, part, j));
}

// Row i of a subgroup's matrices whose first row of input lies at `slot`.
void load_row(out MatrixA a[kParts], uint slot, uint i) {
  const uint row_slots = kStrip ? kMatrixM * column_octets : stride_rows * kChunkOctets;
  UNROLL for (uint part = 0; part < kParts; ++part)
    load_a(a[part], slot + part * part_octets + i * row_slots, column_octets);
}

// The first rows of a stage or a run.
void load_rows(uint slot) {
  UNROLL for (uint i = 0; i < kAhead; ++i) load_row(rows[i], slot, i);
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

// Steps in one body. A stage is one run unless its steps are more than the compiler unrolls, which would leave the
// matrices in memory.
struct Run {
  uint base, first, count;  // slot of the stage's input under the subgroup, and the run's steps
  uint next;                // slot of the first row of input behind it
  float scale;
};

// One step of a run. Weights are on their way to registers one step ahead, the input one row of matrices, and
// `following` comes in beside the products where the run is a whole stage.
void multiply_step(uint s, Run run, Stage following) {
  MatrixB b[kParts][kFragmentsN];
  UNROLL for (uint part = 0; part < kParts; ++part)
    UNROLL for (uint j = 0; j < loop_count(kFragmentsN); ++j) {
      make_b(b[part][j], held[part][j], weights, weight_octet(s, part, j));
    }
  fetch_weights(s + 1);
  if (kBrings && kBodySteps == 0) bring(following, s, run.count);
  UNROLL for (uint i = 0; i < loop_count(kFragmentsM); ++i) {
    const bool step_ends = i + kAhead >= kFragmentsM, run_ends = step_ends && s + 1 == run.count;
    if (!kOneStage && kBodySteps == 0 && run_ends && i + kAhead == kFragmentsM) barrier();
    const uint slot = run_ends ? run.next : run.base + step_slot(run.first + s + (step_ends ? 1 : 0));
    MatrixA ahead[kParts];
    load_row(ahead, slot, step_ends ? i + kAhead - kFragmentsM : i + kAhead);
    multiply_row(i, rows[0], b);
    UNROLL for (uint part = 0; part < kParts; ++part) {
      if (kAhead > 1) rows[0][part] = rows[kAhead - 1][part];
      rows[kAhead - 1][part] = ahead[part];
    }
  }
#ifdef VARIANT_F32
  if (kBlockSteps != 0 && (s % kBlockSteps == kBlockSteps - 1 || s + 1 == run.count)) end_block(run.scale);
#endif
}

// Blocks of halves are whole runs: code of a step, used or not, counts where the driver decides what to unroll.
void end_run(Run run) {
#ifndef VARIANT_F32
  if (kBlockSteps == 0) return;
  steps_in_block += run.count;
  if (steps_in_block < kBlockSteps) return;
  end_block(run.scale);
  steps_in_block = 0;
#endif
}

void multiply_run(Run run, Stage following) {
  UNROLL for (uint s = 0; s < run.count; ++s) multiply_step(s, run, following);
  end_run(run);
  weights = Octets(uint64_t(weights) + uint64_t(run.count * kSubgroupsK * kStepOctets) * 16);
}

// Adds the products of the stage at `base`, with whose end `following` lies in shared memory.
void multiply_stage(Place at, uint base, float scale, Stage following, uint following_base) {
  const uint steps = stage_steps / kSubgroupsK;
  if (kBodySteps == 0) {
    multiply_run(Run(base, 0, steps, following_base, scale), following);
    return;
  }
  if (kBrings) fetch_all(following);
  [[dont_unroll]] for (uint first = 0; first < steps; first += kBodySteps) {
    const uint next = first + kBodySteps < steps ? first + kBodySteps : 0;
    multiply_run(Run(base, first, kBodySteps, base + step_slot(next), scale), following);
  }
  if (kOneStage) return;
  // Without it an H100's driver (580) compiles one of 845 kernels of fp32 wrongly. It takes 3 % of the time.
  if (kTapsAreChannels) memoryBarrierShared();
  if (kBrings) {
    share_all(following);
  } else if (following.channels > 0) {
    gather(at, following);
  }
  barrier();
  load_rows(following_base);
}

void multiply(Place at) {
  const uint base = at.subgroup_k * kOwnStepsK * kOctetsK +
                    at.subgroup_m * kFragmentsM * (kStrip ? kMatrixM * column_octets : stride_rows * kChunkOctets);
  uint stages = uint(params.geometry.kernel[0]) * params.chunks, first = 0;
  if (kShares) {
    first = at.share * params.share_stages;
    stages = min(stages - first, params.share_stages);
  }
  Stage stage = stage_at(first / params.chunks, first % params.chunks, 0);
  if (!kTapsAreChannels) fetch_all(stage);
  start_scales();
  if (kTapsAreChannels) {
    gather(at, stage);
  } else {
    share_all(stage);
  }
  barrier();
  load_rows(stage.base + base);
  for (uint s = 0; s < (kOneStage ? 1 : stages); ++s) {
    const Stage following = stage_after(stage, s + 1 < stages);
    multiply_stage(at, stage.base + base, next_inverse_scale, following, following.base + base);
    stage = following;
  }
}

void main() {
  uint index = linear_group();
  if (index >= params.groups) return;
  read_sizes();
  const uint tile_o = take_digit(index, params.tiles_o), tile_x = take_digit(index, params.tiles_x);
  const uint tile_y = take_digit(index, params.tiles_y);
  Place at;
  at.share = kShares ? take_digit(index, params.shares) : 0;
  at.group = int(index);
  at.column = int(tile_x * kTileColumns);
  at.row = int(tile_y * kTileRows);
  at.slice = kSlices && !kStraddled ? int(divide(uint(at.column), params.pitch)) : 0;
  at.subgroup_m = subgroup_index() / kSubgroupsN % kSubgroupsM;
  at.subgroup_n = subgroup_index() % kSubgroupsN;
  at.subgroup_k = subgroup_index() / kSubgroupsMN;
  const uint run = tile_o * kSubgroupsN + at.subgroup_n;
  at.channel = run * (kFragmentsN * kMatrixN);
  const uint stages = uint(params.geometry.kernel[0]) * params.chunks;
  const uint64_t first_octet = (uint64_t(at.group * params.runs + run) * stages + at.share * params.share_stages) *
                               (stage_steps * kStepOctets) + at.subgroup_k * kOwnStepsK * kStepOctets;
  weights = Octets(params.packed_array + (first_octet + lane_index() * kLaneOctets) * 16);
  fetch_weights(0);
  place_octets();
  if (!kTapsAreChannels) UNROLL for (uint i = 0; i < load_count; ++i) sources[i] = source_of(at, octet_at(i));
  clear_sums();
  multiply(at);
  store_outputs(at);
}
