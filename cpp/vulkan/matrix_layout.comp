#version 460
// variants: f16 bf16
//
// Takes the matrix B of `source` apart into what each invocation holds, puts it together again from there, or rounds a
// matrix C. One subgroup runs it. See matrix_layout.h.
#include "vulkan/glsl/types.glsl"

layout(constant_id = 10) const uint kStep = 0;
const uint kTakesApart = 0, kAssembles = 1, kRounds = 2;

struct Params {
  uint64_t source, target;
};
#include "vulkan/glsl/dispatch.glsl"

const uint kMostBlockOctets = 64;
shared uvec4 tile[kMostBlockOctets];
#include "vulkan/glsl/cooperative_matrix.glsl"

layout(local_size_x_id = 8) in;

void main() {
  Octets source = Octets(params.source);
  NewOctets target = NewOctets(params.target);
  const uint lane = lane_index() * kLaneOctets;
  if (kStep == kRounds) {
    MatrixC sums;
    coopMatLoad(sums, source.at, 0, kRowQuads, gl_CooperativeMatrixLayoutRowMajor);
    coopMatStore(rounded(sums), target.at, 0, kOctetsK, gl_CooperativeMatrixLayoutRowMajor);
    return;
  }
  MatrixB b;
  if (kStep == kAssembles) {
    uvec4 held[kLaneOctets];
    fetch_b(held, source, lane);
    make_b(b, held, source, lane);
    coopMatStore(b, target.at, 0, kOctetsK, gl_CooperativeMatrixLayoutColumnMajor);
    return;
  }
  coopMatLoad(b, source.at, 0, kOctetsK, gl_CooperativeMatrixLayoutColumnMajor);
  if (b.length() != kLaneOctets * 8) return;
  [[unroll]] for (uint q = 0; q < kLaneOctets; ++q) target.at[lane + q] = octet_of_b(b, q);
}
