// Operands that lie in `tile` with the sum's index k from row to row and octets across it: A is read transposed, B as
// it lies. `stride` octets separate rows. Includers have included cooperative_matrix.glsl.

#ifdef VARIANT_EMULATED

struct TileB { uint slot, stride; };

float operand_at(uint slot, uint i) { return operands(tile[slot + i / 8][i % 8 / 2])[i % 2]; }

#define load_a_transposed(matrix, slot, stride) matrix = MatrixA(slot, stride)
#define load_b(matrix, slot, stride) matrix = TileB(slot, stride)

#define multiply_add_tiles(sum, a, b)                                                                     \
  for (uint k_ = 0; k_ < loop_count(kMatrixK); ++k_) {                                                    \
    const float x_ = operand_at(a.slot + k_ * a.stride, lane_index());                                    \
    for (uint q_ = 0; q_ < loop_count(kMatrixN / 8); ++q_) {                                              \
      const uvec4 octet_ = tile[b.slot + k_ * b.stride + q_];                                             \
      [[unroll]] for (uint n_ = 0; n_ < 8; ++n_)                                                          \
        sum.at[q_ * 8 + n_] = fma(x_, operands(octet_[n_ / 2])[n_ % 2], sum.at[q_ * 8 + n_]);             \
    }                                                                                                     \
  }

#else

#define TileB MatrixB
#define load_a_transposed(matrix, slot, stride) \
  coopMatLoad(matrix, tile, slot, stride, gl_CooperativeMatrixLayoutColumnMajor)
#define load_b(matrix, slot, stride) coopMatLoad(matrix, tile, slot, stride, gl_CooperativeMatrixLayoutRowMajor)
#define multiply_add_tiles(sum, a, b) multiply_add(sum, a, b)

#endif

// C in memory: `stride` floats separate rows, `index` and `stride` are multiples of 4.
layout(buffer_reference, scalar, buffer_reference_align = 16) writeonly restrict buffer NewSums { float at[]; };

#ifdef VARIANT_EMULATED
#define store_sums(matrix, sums, index, stride) \
  for (uint n_ = 0; n_ < kMatrixN; ++n_) sums.at[(index) + lane_index() * (stride) + n_] = matrix.at[n_]
#else
#define store_sums(matrix, sums, index, stride) \
  coopMatStore(matrix, sums.at, index, stride, gl_CooperativeMatrixLayoutRowMajor)
#endif
