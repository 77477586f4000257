// Where sums go from the matrices' accumulators, which cut off instead of rounding to nearest: after each block of steps
// to totals, whose additions round. Part of direct_matrix.comp.

#ifdef VARIANT_F32
MatrixC total[kFragmentsM][kFragmentsN];

void clear_total(uint i, uint j) { clear(total[i][j]); }

void end_block_of(uint i, uint j, float scale) {
  add_scaled(total[i][j], scale, sum[i][j]);
  clear(sum[i][j]);
}

void collect(uint i, uint j) { sum[i][j] = total[i][j]; }
#else
// Of halves a total is its upper 16 bits, two to a word, which take half the registers; what they leave stays in the
// accumulators.
const uint kSumPairs = kMatrixM * kMatrixN / kLanes / 2;
uint total[kFragmentsM][kFragmentsN][kSumPairs];

vec2 upper_halves(uint pair) { return uintBitsToFloat(uvec2(pair << 16, pair & 0xffff0000u)); }
#define SUM_PAIR(i, j, w) vec2(element_of(sum[i][j], 2 * (w)), element_of(sum[i][j], 2 * (w) + 1))

void set_pair(uint i, uint j, uint w, vec2 v) {
  element_of(sum[i][j], 2 * w) = v.x;
  element_of(sum[i][j], 2 * w + 1) = v.y;
}

void clear_total(uint i, uint j) {
  UNROLL for (uint w = 0; w < loop_count(kSumPairs); ++w) total[i][j][w] = 0;
}

// Where nothing is left, of an infinity too, the difference is not taken.
void end_block_of(uint i, uint j, float scale) {
  UNROLL for (uint w = 0; w < loop_count(kSumPairs); ++w) {
    const vec2 v = upper_halves(total[i][j][w]) + SUM_PAIR(i, j, w);
    const uvec2 bits = floatBitsToUint(v), upper = bits & 0xffff0000u;
    total[i][j][w] = upper.x >> 16 | upper.y;
    set_pair(i, j, w, mix(v - uintBitsToFloat(upper), vec2(0.0), equal(bits, upper)));
  }
}

void collect(uint i, uint j) {
  UNROLL for (uint w = 0; w < loop_count(kSumPairs); ++w)
    set_pair(i, j, w, upper_halves(total[i][j][w]) + SUM_PAIR(i, j, w));
}
#endif

#define EACH_SUM                                             \
  UNROLL for (uint i = 0; i < loop_count(kFragmentsM); ++i)  \
    UNROLL for (uint j = 0; j < loop_count(kFragmentsN); ++j)

void clear_sums() {
  EACH_SUM {
    clear(sum[i][j]);
    if (kBlockSteps != 0) clear_total(i, j);
  }
}

void end_block(float scale) {
  EACH_SUM end_block_of(i, j, scale);
}

// All of a sum to where its last block lies.
void collect_sums() {
  if (kBlockSteps != 0) EACH_SUM collect(i, j);
}
