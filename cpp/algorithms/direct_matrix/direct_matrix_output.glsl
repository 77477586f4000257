// How a tile's sums become outputs: through shared memory, so that invocations hold neighbouring channels, then the
// epilogue; before it where that needs no neighbours, for halves pass in half the time. Part of direct_matrix.comp.

// Of a subgroup's row of matrices in shared memory an invocation finishes 16 bytes of channels in kPasses pixels. Some
// octets more than a row has, so that stores are spread over the banks: two of sums; of halves one, or as many as a row
// of one matrix of sums has.
const uint kRoundedOctets = kFragmentsN * kMatrixN / 8 + 1;
const uint kRowOctets = !kRoundsFirst ? kFragmentsN * kRowQuads + 2 : kRoundedOctets > kRowQuads ? kRoundedOctets : kRowQuads;
const uint kRowsOctets = kMatrixM * kRowOctets;
const uint kQuads = ELEMENT_BYTES == 2 ? 2 : 1, kPixelLanes = kFragmentsN * kRowQuads / kQuads;
const uint kPassPixels = kLanes / kPixelLanes < kMatrixM ? kLanes / kPixelLanes : kMatrixM;
const uint kPasses = (kMatrixM + kPassPixels - 1) / kPassPixels;

// Of eight neighbours four read their second quad first, so that a load of all takes from every bank once.
uint quad_of(uint q) { return kQuads == 1 || kPixelLanes < 4 ? q : q ^ (lane_index() >> 2 & 1); }

struct Finish {
  uint64_t array;
  uint channel, channels;  // first of the 16 bytes, and the end of its group
  vec4 scale;
};

Finish make_finish(Place at) {
  const uint o = at.channel + lane_index() % kPixelLanes * (4 * kQuads);
  Finish f;
  f.array = params.output_array;
  if (kShares) f.array += uint64_t(at.share * params.share_elements) * REAL_BYTES;
  f.channel = at.group * params.group_out + o;
  f.channels = (at.group + 1) * params.group_out;
#ifdef VARIANT_F32
  const uint channel = at.group * params.runs * (kFragmentsN * kMatrixN) + o;
  f.scale = uintBitsToFloat(Octets(params.scales_array + channel * 4).at[0]);
#endif
  return f;
}

struct Pixel {
  bool exists;
  int image, depth, column;
};

Pixel pixel_at(Place at, uint x) {
  const Column column = column_at(at, at.column + int(x), params.pitch);
  Pixel p;
  p.exists = column.slice < int(params.slices) && column.x < params.geometry.output_extent[2];
  p.image = kDepth ? int(divide(uint(column.slice), params.depths)) : column.slice;
  p.depth = kDepth ? column.slice - p.image * int(params.depths.value) : 0;
  p.column = column.x;
  return p;
}

int64_t offset_of(Pixel p, int row, int64_t stride[4]) {
  return strides_of(p.image, stride[0], kFarOutput) + strides_of(p.depth, stride[1], kFarOutput) +
         strides_of(row, stride[2], kFarOutput) + strides_of(p.column, stride[3], kFarOutput);
}

// An output column: elements to its first channel in the tile's first row.
struct OutputColumn {
  bool exists;
  int64_t result, addend;
};

OutputColumn output_column(Place at, uint x) {
  const Pixel p = pixel_at(at, x);
  OutputColumn c;
  c.exists = p.exists;
  c.result = offset_of(p, at.row, params.output_stride);
  c.addend = kHasAddend ? offset_of(p, at.row, params.epilogue.addend_stride) : 0;
  return c;
}

uint matrix_row(uint pass) { return lane_index() / kPixelLanes + pass * kPassPixels; }
uint row_pixel(uint fragment, uint pass) { return (kStrip ? fragment * kMatrixM : 0) + matrix_row(pass); }

// NaN, which padding may have made of infinities; of fp32 also an infinity, which scales may have made.
// Shares are judged when they have been added.
const bool kPaddedOrSplit = kParts > 1 || kPadded, kSuspects = !kShares && kPaddedOrSplit;
bool is_suspect(float v) { return kSuspects && (isnan(v) || (kParts > 1 && isinf(v))); }
bool is_suspect(vec4 v) { return kSuspects && (any(isnan(v)) || (kParts > 1 && any(isinf(v)))); }

// Sums in shared memory, of subgroups along k together, without the scales, those of the input too where the
// accumulators kept them.
vec4 sums_at(Finish f, uint slot) {
  vec4 v = uintBitsToFloat(tile[slot]);
  [[unroll]] for (uint k = 1; k < kSubgroupsK; ++k)
    v += uintBitsToFloat(tile[slot + k * (kSubgroupsMN * kRowsOctets)]);
  return kParts > 1 ? (kBlockSteps == 0 ? v * next_inverse_scale : v) * f.scale : v;
}

void finish_quads(Finish f, OutputColumn column, int y, vec4 v[kQuads]) {
  const int64_t result = column.result + strides_of(y, params.output_stride[2], kFarOutput);
  const int64_t addend = kHasAddend ? column.addend + strides_of(y, params.epilogue.addend_stride[2], kFarOutput) : 0;
#if ELEMENT_BYTES == 2
  if (kStoresEights) {
    if (f.channel >= f.channels) return;
    uvec4 octet;
    [[unroll]] for (uint q = 0; q < kQuads; ++q) {
      const vec4 finished = finished4(addend, f.channel + quad_of(q) * 4, v[q], params.epilogue);
      const uvec2 half_octet = unpackUint2x32(round_element4(finished));
      octet[2 * q] = half_octet.x;
      octet[2 * q + 1] = half_octet.y;
    }
    if (quad_of(0) != 0) octet = octet.zwxy;
    NewOctets(f.array + uint64_t(result + f.channel) * ELEMENT_BYTES).at[0] = octet;
    return;
  }
#endif
  [[unroll]] for (uint q = 0; q < kQuads; ++q)
    if (f.channel + quad_of(q) * 4 < f.channels)
      finish4(f.array, result, addend, f.channel + quad_of(q) * 4, f.channels, v[q], params.epilogue);
}

// What an invocation finishes of pixel x, by the definition.
void repair_pixel(Place at, Finish f, uint x, int y) {
  const OutputColumn column = output_column(at, x);
  if (!column.exists) return;
  const Pixel p = pixel_at(at, x);
  const int64_t result = column.result + strides_of(y, params.output_stride[2], kFarOutput);
  const int64_t addend = kHasAddend ? column.addend + strides_of(y, params.epilogue.addend_stride[2], kFarOutput) : 0;
  for (uint channel = f.channel; channel < min(f.channel + 4 * kQuads, f.channels); ++channel) {
    const float sum = direct_sum(p.image, p.depth, at.row + y, p.column, int(channel));
    finish(f.array, result, addend, channel, sum, params.epilogue);
  }
}

#if ELEMENT_BYTES == 2
// Halves of an odd number of channels in the words that hold two of them, which ones depends on the pixel: those of a
// subgroup's row of matrices.
struct Words {
  uint slot;            // of its sums
  uint fragment;        // its rows among the tile's
  int y;                // below the tile's first
  uint channel;         // its first, of all groups
  int channels;         // that exist
  uint count, inverse;  // words of a pixel; 2^16 / count, rounded up
};

float sum_at(Words w, uint pixel, int c) { return uintBitsToFloat(tile[w.slot + pixel * kRowOctets + c / 4][c % 4]); }

// Finishes word i, by the definition if it repairs. False: its sums are suspect, and with an addend not stored.
bool store_word(Place at, Words w, uint i, bool repairs) {
  const uint pixel = i * w.inverse >> 16;
  if (pixel >= kMatrixM) return true;
  const uint x = (kStrip ? w.fragment * kMatrixM : 0) + pixel;
  const OutputColumn column = output_column(at, x);
  if (!column.exists) return true;
  const int64_t result = column.result + strides_of(w.y, params.output_stride[2], kFarOutput);
  const int64_t addend = kHasAddend ? column.addend + strides_of(w.y, params.epilogue.addend_stride[2], kFarOutput) : 0;
  const uint odd = (uint(params.output_array >> 1) + uint(result) + w.channel) & 1;
  const int c = int((i - pixel * w.count) * 2) - int(odd);
  const bool first = c >= 0 && c < w.channels, second = c + 1 < w.channels;
  bool whole = true;
  vec2 v = vec2(0);
  if (repairs) {
    const Pixel p = pixel_at(at, x);
    for (int j = 0; j < 2; ++j)
      if (j == 0 ? first : second) v[j] = direct_sum(p.image, p.depth, at.row + w.y, p.column, int(w.channel) + c + j);
  } else {
    if (first) v.x = sum_at(w, pixel, c);
    if (second) v.y = sum_at(w, pixel, c + 1);
    whole = !is_suspect(v.x) && !is_suspect(v.y);
    if (kHasAddend && !whole) return false;
  }
  const uint channel = uint(int(w.channel) + c);
  if (first && second)
    finish2(params.output_array, result, addend, channel, v, params.epilogue);
  else if (first || second)
    finish(params.output_array, result, addend, channel + (first ? 0 : 1), first ? v.x : v.y, params.epilogue);
  return whole;
}

// The words of a row of matrices, or those of this invocation by the definition. False: some of its sums are suspect.
bool store_words(Place at, uint slot, uint fragment, int y, bool repairs) {
  Words w;
  w.slot = slot;
  w.fragment = fragment;
  w.y = y;
  w.channel = at.group * params.group_out + at.channel;
  w.channels = min(int(params.group_out) - int(at.channel), int(kFragmentsN * kMatrixN));
  if (w.channels <= 0) return true;
  w.count = uint(w.channels) / 2 + 1;
  w.inverse = 65535 / w.count + 1;
  bool whole = true;
  [[dont_unroll]] for (uint i = lane_index(); i < kMatrixM * w.count; i += kLanes)
    if (!store_word(at, w, i, repairs)) {
      whole = kHasAddend;
      if (kHasAddend) store_word(at, w, i, true);
    }
  return whole;
}

// Adds the bias to all sums, a matrix of it at a time, whose rows are the same.
void add_bias(Place at, uint scratch) {
  for (uint j = 0; j < kFragmentsN; ++j) {
    const uint o = at.channel + j * kMatrixN + lane_index() % kRowQuads * 4;
    vec4 quad = vec4(0);
    if (o < params.group_out) quad = load_given4(params.epilogue.bias, at.group * params.group_out + o);
    for (uint i = lane_index(); i < kMatrixM * kRowQuads; i += kLanes) tile[scratch + i] = floatBitsToUint(quad);
    subgroup_barrier();
    MatrixC bias;
    load_c(bias, scratch, kRowQuads);
    UNROLL for (uint i = 0; i < loop_count(kFragmentsM); ++i)
      UNROLL for (uint n = 0; n < loop_count(kFragmentsN); ++n)
        if (n == j) { add_scaled(sum[i][n], 1.0, bias); }
    subgroup_barrier();
  }
}

void activate_sums() {
  if (kActivation == 0) return;
  UNROLL for (uint i = 0; i < loop_count(kFragmentsM); ++i)
    UNROLL for (uint j = 0; j < loop_count(kFragmentsN); ++j) {
      for_each_element(sum[i][j], x, activate(x, params.epilogue));
    }
}

#ifdef VARIANT_BF16
const uint kInfinity = 0x7f80;
#else
const uint kInfinity = 0x7c00;
#endif

// Whether one of eight halves is infinite or NaN: the ones of its exponent carry into its sign.
bool has_infinity(uvec4 octet) {
  const uint infinities = kInfinity << 16 | kInfinity, lowest = 0x80008000u - infinities;
  const uvec4 carried = (octet & infinities) + lowest;
  return ((carried.x | carried.y | carried.z | carried.w) & 0x80008000u) != 0;
}

void store_octet(Finish f, OutputColumn column, int y, uvec4 octet) {
  const int64_t result = column.result + strides_of(y, params.output_stride[2], kFarOutput);
  if (f.channel < f.channels) NewOctets(f.array + uint64_t(result + f.channel) * ELEMENT_BYTES).at[0] = octet;
}
#endif

// Between sums in shared memory and who finishes them.
void sums_barrier() {
  if (kSubgroupsK > 1) {
    barrier();
  } else {
    subgroup_barrier();
  }
}

// One row of matrices of each subgroup to shared memory.
void share_row(uint row, uint scratch) {
  UNROLL for (uint i = 0; i < loop_count(kFragmentsM); ++i)
    if (i == row)
      UNROLL for (uint j = 0; j < loop_count(kFragmentsN); ++j) {
#if ELEMENT_BYTES == 2
        if (kRoundsFirst) {
          store_rounded(sum[i][j], scratch + j * (kMatrixN / 8), kRowOctets);
          continue;
        }
#endif
        store_c(sum[i][j], scratch + j * kRowQuads, kRowOctets);
      }
}

// Finishes what an invocation finds at `slot`. False: it is suspect. Then it is stored all the same, for a branch would
// wait for it, but not where the addend may lie.
bool finish_pass(Finish f, OutputColumn column, int y, uint slot) {
#if ELEMENT_BYTES == 2
  if (kRoundsFirst) {
    const uvec4 octet = tile[slot];
    store_octet(f, column, y, octet);
    return !kSuspects || !has_infinity(octet);
  }
#endif
  vec4 v[kQuads];
  bool suspect = false;
  [[unroll]] for (uint q = 0; q < kQuads; ++q) {
    v[q] = sums_at(f, slot + quad_of(q));
    suspect = suspect || is_suspect(v[q]);
  }
  if (!kHasAddend || !suspect) finish_quads(f, column, y, v);
  return !suspect;
}

// Sums as they are wanted: all terms together, and finished if they are rounded first.
void end_sums(Place at, uint scratch) {
  collect_sums();
#if ELEMENT_BYTES == 2
  if (kRoundsFirst) {
    if (kHasBias) add_bias(at, scratch);
    activate_sums();
  }
#endif
}

// The outputs of an invocation in rows of matrices where it has met suspect sums. This comes when all else is done:
// before, it would take registers from sums that wait.
void repair_rows(Place at, Finish f, uint broken) {
  [[dont_unroll]] for (uint row = 0; broken != 0; ++row, broken >>= 1) {
    if ((broken & 1) == 0) continue;
    const uint fragment = at.subgroup_m * kFragmentsM + row;
    const int y = kStrip ? 0 : int(fragment);
#if ELEMENT_BYTES == 2
    if (kStoresWords) {
      store_words(at, 0, fragment, y, true);
      continue;
    }
#endif
    [[dont_unroll]] for (uint pass = 0; pass < kPasses; ++pass)
      if (pass % kSubgroupsK == at.subgroup_k && matrix_row(pass) < kMatrixM)
        repair_pixel(at, f, row_pixel(fragment, pass), y);
  }
}

// Through shared memory, a row of matrices of each subgroup at a time. The outer loop is a real one: finishing is long.
void store_outputs(Place at) {
  const uint scratch = subgroup_index() * kRowsOctets, sums = subgroup_index() % kSubgroupsMN * kRowsOctets;
  const uint lane_octets = kRoundsFirst ? 1 : kQuads;
  const uint first = sums + lane_index() / kPixelLanes * kRowOctets + lane_index() % kPixelLanes * lane_octets;
  const bool works = lane_index() / kPixelLanes < kPassPixels;
  const Finish f = make_finish(at);
  OutputColumn columns[kPasses];
  if (!kStrip)
    UNROLL for (uint pass = 0; pass < loop_count(kPasses); ++pass)
      columns[pass] = output_column(at, row_pixel(0, pass));
  barrier();
  end_sums(at, scratch);
  uint broken = 0;  // rows, or with an addend, passes of this row
  [[dont_unroll]] for (uint row = 0; row < kFragmentsM; ++row) {
    share_row(row, scratch);
    sums_barrier();
    const uint fragment = at.subgroup_m * kFragmentsM + row;
    const int y = kStrip ? 0 : int(fragment);
    const bool in_image = at.row + y < params.geometry.output_extent[1], row_exists = works && in_image;
#if ELEMENT_BYTES == 2
    if (kStoresWords) {
      if (in_image && !store_words(at, sums, fragment, y, false)) broken |= 1u << row;
      sums_barrier();
      continue;
    }
#endif
    UNROLL for (uint pass = 0; pass < loop_count(kPasses); ++pass) {
      if (kStrip) columns[pass] = output_column(at, row_pixel(fragment, pass));
      const bool own = pass % kSubgroupsK == at.subgroup_k;
      if (!own || !row_exists || matrix_row(pass) >= kMatrixM || !columns[pass].exists) continue;
      if (!finish_pass(f, columns[pass], y, first + pass * kPassPixels * kRowOctets))
        broken |= 1u << (kHasAddend ? pass : row);
    }
    if (kHasAddend)
      for (uint pass = 0; broken != 0; ++pass, broken >>= 1)
        if ((broken & 1) != 0) repair_pixel(at, f, row_pixel(fragment, pass), y);
    sums_barrier();
  }
  if (kSuspects && !kHasAddend) repair_rows(at, f, broken);
}
