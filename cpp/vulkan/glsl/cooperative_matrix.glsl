// Matrices as wide as a subgroup: A (m x k) and B (k x n) of 16-bit operands, C (m x n) of fp32 sums. Operands travel in
// octets, eight of them in a uvec4: along k, which is how `tile`, a shared array the including file declares before
// it calls these functions, holds them. In the emulated variants a matrix is an array, or where it lies in
// memory; everything else about a kernel is the same, so that its indices are tested on devices without cooperative
// matrices.
#extension GL_EXT_control_flow_attributes : require

layout(constant_id = 5) const uint kMatrixM = 16;
layout(constant_id = 6) const uint kMatrixN = 16;
layout(constant_id = 7) const uint kMatrixK = 16;
layout(constant_id = 8) const uint kLanes = 32;       // invocations of a subgroup; kMatrixM when emulated
layout(constant_id = 9) const uint kLaneOctets = 1;   // octets of B an invocation holds; 0: B is packed column by column

const uint kOctetsK = kMatrixK / 8;
const uint kBlockOctets = kMatrixN * kOctetsK;  // of one B in memory
const uint kRowQuads = kMatrixN / 4;            // of one row of C

layout(buffer_reference, scalar, buffer_reference_align = 16) readonly restrict buffer Octets { uvec4 at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) writeonly buffer NewOctets { uvec4 at[]; };

#ifdef VARIANT_EMULATED

#define UNROLL
const uint kMostColumns = 16;
// An invocation is a row of every C. Operands stay where they are: A in `tile`, its rows `stride` octets apart, B in
// memory, column by column.
struct MatrixA { uint slot, stride; };
struct MatrixB { uint64_t address; };
struct MatrixC { float at[kMostColumns]; };

uint subgroup_index() { return gl_LocalInvocationIndex / kLanes; }
uint lane_index() { return gl_LocalInvocationIndex % kLanes; }
void subgroup_barrier() { barrier(); }
#define note_maximum(shared_maximum, value) atomicMax(shared_maximum, value)

// A count that the compiler does not know, so that emulated loops stay loops: unrolled they compile for seconds.
uint loop_count(uint count) { return count + (groups_x >> 31); }

vec2 operands(uint pair) {
#ifdef VARIANT_BF16
  return uintBitsToFloat(uvec2(pair << 16, pair & 0xffff0000u));
#else
  return unpackHalf2x16(pair);
#endif
}

float add_products(float sum, uvec4 a, uvec4 b) {
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    const vec2 x = operands(a[i]), y = operands(b[i]);
    sum = fma(x.y, y.y, fma(x.x, y.x, sum));
  }
  return sum;
}

#define load_a(matrix, slot, stride) matrix = MatrixA(slot, stride)
#define fetch_b(held, octets, index)
#define make_b(matrix, held, octets, index) matrix = MatrixB(uint64_t(octets) + (index) * 16)

#define multiply_add(sum, a, b)                                                                           \
  for (uint n_ = 0; n_ < loop_count(kMatrixN); ++n_)                                                      \
    [[unroll]] for (uint q_ = 0; q_ < kOctetsK; ++q_)                                                     \
      sum.at[n_] = add_products(sum.at[n_], tile[a.slot + lane_index() * a.stride + q_],                  \
                                Octets(b.address).at[n_ * kOctetsK + q_])

#define element_of(matrix, index) matrix.at[index]
#define clear(matrix) \
  for (uint n_ = 0; n_ < kMostColumns; ++n_) matrix.at[n_] = 0.0

#define add_scaled(total, scale, sum) \
  for (uint n_ = 0; n_ < kMostColumns; ++n_) total.at[n_] += (scale) * sum.at[n_]

#define store_c(matrix, slot, stride)                                                                     \
  for (uint q_ = 0; q_ < kRowQuads; ++q_)                                                                 \
    tile[(slot) + lane_index() * (stride) + q_] = floatBitsToUint(                                        \
        vec4(matrix.at[q_ * 4], matrix.at[q_ * 4 + 1], matrix.at[q_ * 4 + 2], matrix.at[q_ * 4 + 3]))

#define load_c(matrix, slot, stride)                                                                      \
  for (uint n_ = 0; n_ < loop_count(kMatrixN); ++n_)                                                      \
    matrix.at[n_] = uintBitsToFloat(tile[(slot) + lane_index() * (stride) + n_ / 4][n_ % 4])

#define store_rounded(sums, slot, stride)                                                                 \
  for (uint n_ = 0; n_ < loop_count(kMatrixN); n_ += 2)                                                   \
    tile[(slot) + lane_index() * (stride) + n_ / 8][n_ / 2 % 4] = round_pair(vec2(sums.at[n_], sums.at[n_ + 1]))

#define for_each_element(matrix, element, expression)                                                     \
  for (uint n_ = 0; n_ < loop_count(kMatrixN); ++n_) {                                                    \
    const float element = matrix.at[n_];                                                                  \
    matrix.at[n_] = expression;                                                                           \
  }

#else

#pragma use_vulkan_memory_model
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#ifdef VARIANT_BF16
#extension GL_EXT_bfloat16 : require
#define operand_type bfloat16_t
#define operand_pair bf16vec2
bf16vec2 unpack_pair(uint bits) {
  const u16vec2 halves = unpack16(bits);
  return bf16vec2(uintBitsToBFloat16EXT(halves.x), uintBitsToBFloat16EXT(halves.y));
}
uint pack_pair(bfloat16_t x, bfloat16_t y) { return pack32(u16vec2(bfloat16BitsToUintEXT(x), bfloat16BitsToUintEXT(y))); }
#else
#define operand_type float16_t
#define operand_pair f16vec2
f16vec2 unpack_pair(uint bits) { return unpackFloat2x16(bits); }
uint pack_pair(float16_t x, float16_t y) { return packFloat2x16(f16vec2(x, y)); }
#endif

#define UNROLL [[unroll]]
#define loop_count(count) (count)
#define MatrixA coopmat<operand_type, gl_ScopeSubgroup, kMatrixM, kMatrixK, gl_MatrixUseA>
#define MatrixB coopmat<operand_type, gl_ScopeSubgroup, kMatrixK, kMatrixN, gl_MatrixUseB>
#define MatrixC coopmat<float, gl_ScopeSubgroup, kMatrixM, kMatrixN, gl_MatrixUseAccumulator>

uint subgroup_index() { return gl_SubgroupID; }
uint lane_index() { return gl_SubgroupInvocationID; }
// Orders shared memory alone: subgroupBarrier() would wait for stores to buffers too.
void subgroup_barrier() {
  controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
}
// Raises a number in shared memory to the largest `value` of all invocations.
#define note_maximum(shared_maximum, value)                         \
  {                                                                 \
    const uint maximum_ = subgroupMax(value);                       \
    if (subgroupElect()) atomicMax(shared_maximum, maximum_);       \
  }

#define load_a(matrix, slot, stride) coopMatLoad(matrix, tile, slot, stride, gl_CooperativeMatrixLayoutRowMajor)
// B of a step ahead waits in registers: fetch_b starts the loads, make_b needs them. `octets` points to the invocation's
// own octets of the first block, or to the block where B is packed column by column.
#define fetch_b(held, octets, index) \
  [[unroll]] for (uint q_ = 0; q_ < kLaneOctets; ++q_) held[q_] = octets.at[(index) + q_]
#define make_b(matrix, held, octets, index)                                                         \
  if (kLaneOctets == 0)                                                                             \
    coopMatLoad(matrix, octets.at, index, kOctetsK, gl_CooperativeMatrixLayoutColumnMajor);         \
  else                                                                                              \
    [[unroll]] for (uint w_ = 0; w_ < kLaneOctets * 4; ++w_) {                                      \
      const operand_pair pair_ = unpack_pair(held[w_ / 4][w_ % 4]);                                 \
      matrix[2 * w_] = pair_.x;                                                                     \
      matrix[2 * w_ + 1] = pair_.y;                                                                 \
    }
// The q-th octet an invocation holds.
uvec4 octet_of_b(MatrixB matrix, uint q) {
  uvec4 octet;
  [[unroll]] for (uint w = 0; w < 4; ++w) octet[w] = pack_pair(matrix[q * 8 + w * 2], matrix[q * 8 + w * 2 + 1]);
  return octet;
}
#define multiply_add(sum, a, b) sum = coopMatMulAdd(a, b, sum)
#define element_of(matrix, index) matrix[index]
#define clear(matrix) matrix = MatrixC(0.0)
#define add_scaled(total, scale, sum) total += (scale) * sum
#define store_c(matrix, slot, stride) coopMatStore(matrix, tile, slot, stride, gl_CooperativeMatrixLayoutRowMajor)
#define load_c(matrix, slot, stride) coopMatLoad(matrix, tile, slot, stride, gl_CooperativeMatrixLayoutRowMajor)
#if ELEMENT_BYTES == 2
// Sums as operands, where a matrix A's elements lie in registers as those of C do: see matrix_layout.h.
MatrixA rounded(MatrixC sums) {
  MatrixA a;
  [[unroll]] for (uint e = 0; e < sums.length(); e += 2) {
    const operand_pair pair = unpack_pair(round_pair(vec2(sums[e], sums[e + 1])));
    a[e] = pair.x;
    a[e + 1] = pair.y;
  }
  return a;
}
#endif
#define store_rounded(sums, slot, stride) \
  coopMatStore(rounded(sums), tile, slot, stride, gl_CooperativeMatrixLayoutRowMajor)
#define for_each_element(matrix, element, expression)        \
  [[unroll]] for (uint e_ = 0; e_ < matrix.length(); ++e_) { \
    const float element = matrix[e_];                        \
    matrix[e_] = expression;                                 \
  }

#endif
