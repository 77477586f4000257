// How the input under a tile of outputs comes to shared memory, a stage after the other. Part of direct_matrix.comp.

const uint kLeadSteps = 4, kNoSource = 0xffffffffu;
const int kOutside = -0x40000000;  // no depth tap reaches the input from here

// The octets of a stage that this invocation brings to shared memory, of consecutive slots a thread one: bytes from the
// input's lowest address at the first depth tap and chunk, and the depth there.
uint sources[kLoads], sources_high[kLoads];
int depths[kLoads];
uvec4 fetched[kLoads][kParts];

// What shared memory holds at one time: a chunk of input channels at a depth tap.
struct Stage {
  uint64_t address;  // of the input's lowest element
  uint depth, chunk;
  int channels;  // of the group from here on; none: zeros
  uint base;     // in `tile`
};

// Elements, of which the low 32 bits count unless they span more.
int64_t strides_of(int count, int64_t stride, bool far) { return far ? count * stride : int64_t(count * int(stride)); }

uint slot_of(uint i) { return gl_LocalInvocationIndex + i * kThreads; }
bool has_slot(uint i) { return (i + 1) * kThreads <= part_octets || slot_of(i) < part_octets; }
uint octet_of(uint i) { return slot_of(i) % column_octets % kChunkOctets; }

void plan_load(Place at, uint i) {
  depths[i] = kOutside;
  sources[i] = sources_high[i] = kNoSource;
  uint slot = slot_of(i);
  const uint y = take_digit(slot, column_octets) / kChunkOctets;
  const uint x = slot % phase_columns * stride_columns + slot / phase_columns;
  const int row = at.row * int(stride_rows) + int(y) - params.geometry.pad_lo[1];
  const Column column =
      column_of(at.column * int(stride_columns) + int(x) - params.geometry.pad_lo[2], params.input_pitch);
  if (y >= halo_rows || x >= halo_columns || slot >= phase_columns * stride_columns || row < 0 || row >= params.geometry.input_extent[1] || column.slice < 0 ||
      column.slice >= int(params.slices) || column.x >= params.geometry.input_extent[2])
    return;
  const int image = kDepth ? int(divide(uint(column.slice), params.depths)) : column.slice;
  const int depth = kDepth ? column.slice - image * int(params.depths.value) : 0;
  depths[i] = depth * params.geometry.stride[0] - params.geometry.pad_lo[0];
  const int64_t distance = params.input_origin + strides_of(image, params.input_stride[0], kFarInput) +
                          strides_of(depths[i], params.input_stride[1], kFarInput) +
                          strides_of(row, params.input_stride[2], kFarInput) +
                          strides_of(column.x, params.input_stride[3], kFarInput) + at.group * params.group_in + octet_of(i) * 8;
  const uint64_t source = uint64_t(distance) * ELEMENT_BYTES;
  sources[i] = uint(source);
  sources_high[i] = uint(source >> 32);
}

// Eight channels from an address, of which the first `channels` exist.
void load_octet(uint i, uint64_t address, int channels) {
  if (kInputOctets) {
    [[unroll]] for (uint part = 0; part < kParts; ++part) fetched[i][part] = Octets(address).at[part];
    return;
  }
  for (int c = 0; c < min(channels, 8); ++c) {
    ElementAt element_at = ElementAt(address + c * ELEMENT_BYTES);
#ifdef VARIANT_F32
    fetched[i][c / 4][c % 4] = floatBitsToUint(element_at.value);
#else
    fetched[i][0][c / 2] |= uint(element_at.value) << (c % 2 * 16);
#endif
  }
}

void fetch(Stage stage, uint i) {
  const int depth = depths[i] + int(stage.depth) * params.geometry.dilation[0];
  const bool inside = kDepthTaps ? uint(depth) < uint(params.geometry.input_extent[0])
                                 : (kFarInput ? sources_high[i] : sources[i]) != kNoSource;
  const uint64_t source = kFarInput ? packUint2x32(uvec2(sources[i], sources_high[i])) : uint64_t(sources[i]);
  const int channels = kWholeChunks ? stage.channels : stage.channels - int(octet_of(i) * 8);
  [[unroll]] for (uint part = 0; part < kParts; ++part) fetched[i][part] = uvec4(0);
  if (inside && channels > 0) load_octet(i, stage.address + source, channels);
}

float next_inverse_scale = 1;  // of the stage that shared memory received last

#ifdef VARIANT_F32
// The largest finite magnitude of a stage as bits, for this stage and the next.
shared uint stage_top[2];

uint parity_of(Stage stage) { return stage.base == 0 ? 0 : 1; }

void start_scales() {
  if (gl_LocalInvocationIndex == 0) stage_top[0] = stage_top[1] = 0;
  barrier();
}

void note_top(Stage stage) {
  uint top = 0;
  UNROLL for (uint i = 0; i < load_count; ++i)
    [[unroll]] for (uint part = 0; part < 2; ++part)
      [[unroll]] for (uint c = 0; c < 4; ++c) top = max(top, finite_magnitude(fetched[i][part][c]));
  note_maximum(stage_top[parity_of(stage)], top);
}

// All octets of a stage, scaled to the range of halves and split in two, once their largest magnitude is known.
void share_all(Stage stage) {
  const uint exponent = scale_exponent(stage_top[parity_of(stage)]);
  next_inverse_scale = inverse_scale(exponent);
  if (gl_LocalInvocationIndex == 0) stage_top[1 - parity_of(stage)] = 0;
  UNROLL for (uint i = 0; i < load_count; ++i) {
    uvec4 high, low;
    split_octet(fetched[i], scale(exponent), high, low);
    if (!has_slot(i)) continue;
    tile[stage.base + slot_of(i)] = high;
    tile[stage.base + part_octets + slot_of(i)] = low;
  }
}

void share_first(Stage stage) {
  note_top(stage);
  barrier();
  share_all(stage);
}

// The next stage is fetched spread over the steps of this one.
void bring(Stage stage, uint step, uint steps) {
  const uint lead = min(kLeadSteps, steps - 1);
  UNROLL for (uint i = 0; i < load_count; ++i)
    if (step == i * (steps - lead) / load_count) fetch(stage, i);
}

void finish_bringing(Stage stage, uint step, uint steps) {
  if (step + 2 == max(steps, 2)) note_top(stage);
  if (step + 1 < steps) return;
  barrier();
  share_all(stage);
}
#else
void start_scales() {}

void share(Stage stage, uint i) {
  if (has_slot(i)) tile[stage.base + slot_of(i)] = fetched[i][0];
}

void share_first(Stage stage) {
  UNROLL for (uint i = 0; i < load_count; ++i) share(stage, i);
}

// The next stage comes in spread over the steps of this one; its octets take registers for kLeadSteps of them.
void bring(Stage stage, uint step, uint steps) {
  const uint lead = min(kLeadSteps, steps - 1);
  UNROLL for (uint i = 0; i < load_count; ++i) {
    const uint first = i * (steps - lead) / load_count;
    if (step == first) fetch(stage, i);
    if (step == first + lead) share(stage, i);
  }
}

void finish_bringing(Stage stage, uint step, uint steps) {}
#endif

Stage stage_at(uint depth, uint chunk, uint base) {
  Stage stage;
  stage.depth = depth;
  stage.chunk = chunk;
  stage.base = base;
  stage.channels = int(params.group_in - chunk * (kChunkOctets * 8));
  const int64_t input_depth = int64_t(depth) * params.geometry.dilation[0];
  stage.address = params.input_lowest +
                  uint64_t(input_depth * params.input_stride[1] + chunk * (kChunkOctets * 8)) * ELEMENT_BYTES;
  return stage;
}

// The next stage. After the last comes one of zeros: cheaper than a branch in every step.
Stage stage_after(Stage stage, bool exists) {
  const bool same_depth = stage.chunk + 1 < params.chunks;
  Stage next = stage_at(same_depth ? stage.depth : stage.depth + 1, same_depth ? stage.chunk + 1 : 0,
                        stage_octets - stage.base);
  if (!exists) next.channels = 0;
  return next;
}
