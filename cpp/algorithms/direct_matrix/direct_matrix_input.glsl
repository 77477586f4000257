// How the input under a tile of outputs comes to shared memory, a stage after the other. Part of direct_matrix.comp.

// The tile with its halo. Columns that a strided tap reads together lie together: column x is number x / stride of
// phase x % stride. A column takes an odd number of octets, which spreads the rows of a matrix over the banks.
uint halo_rows() { return (kTileRows - 1) * stride_rows() + (tap_rows() - 1) * dilation_rows() + 1; }
uint halo_columns() { return (kTileColumns - 1) * stride_columns() + (tap_columns() - 1) * dilation_columns() + 1; }
uint column_octets() { return halo_rows() * kChunkOctets | 1; }
uint phase_columns() { return (halo_columns() + stride_columns() - 1) / stride_columns(); }
uint part_octets() { return phase_columns() * stride_columns() * column_octets(); }
uint stage_octets() { return kParts * part_octets(); }
uint column_slot(uint x) {
  return (x % stride_columns() * phase_columns() + x / stride_columns()) * column_octets();
}

// Of kLoads those this tile needs.
uint load_count() {
  if (kTapRows != 0) return kLoads;
  return (halo_rows() * kChunkOctets * halo_columns() + kThreads - 1) / kThreads;
}

// The octets of a stage that this invocation brings to shared memory: elements from the input's lowest address at the
// first depth tap and chunk, the depth there, and the place in `tile`.
uint sources[kLoads], sources_high[kLoads], slots[kLoads];
int depths[kLoads];
uvec4 fetched[kLoads][kParts];

// What shared memory holds at one time: a chunk of input channels at a depth tap.
struct Stage {
  uint64_t address;  // of the input's lowest element
  uint depth, chunk;
  uint base;  // in `tile`
};

uint octet_of(uint i) { return (gl_LocalInvocationIndex + i * kThreads) % kChunkOctets; }

void plan_load(Place at, uint i) {
  uint item = gl_LocalInvocationIndex + i * kThreads;
  const uint octet = take_digit(item, kChunkOctets), y = take_digit(item, halo_rows()), x = item;
  depths[i] = kOutside;
  slots[i] = x < halo_columns() ? column_slot(x) + y * kChunkOctets + octet : kNoSlot;
  const int row = at.row * int(stride_rows()) + int(y) - params.geometry.pad_lo[1];
  const Column column =
      column_of(at.column * int(stride_columns()) + int(x) - params.geometry.pad_lo[2], params.input_pitch);
  if (x >= halo_columns() || row < 0 || row >= params.geometry.input_extent[1] || column.slice < 0 ||
      column.slice >= int(params.slices) || column.x >= params.geometry.input_extent[2])
    return;
  const int image = kDepth ? int(divide(uint(column.slice), params.depths)) : column.slice;
  const int depth = kDepth ? column.slice - image * int(params.depths.value) : 0;
  depths[i] = depth * params.geometry.stride[0] - params.geometry.pad_lo[0];
  const int64_t source = params.input_origin + image * params.input_stride[0] + depths[i] * params.input_stride[1] +
                         row * params.input_stride[2] + column.x * params.input_stride[3] +
                         at.group * (params.geometry.in_channels / params.geometry.groups) + octet * 8;
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
  const bool inside = kDepthTaps ? uint(depth) < uint(params.geometry.input_extent[0]) : depths[i] != kOutside;
  const uint first = (stage.chunk * kChunkOctets + octet_of(i)) * 8;
  const uint64_t source = kFarInput ? packUint2x32(uvec2(sources[i], sources_high[i])) : uint64_t(sources[i]);
  const int channels = params.geometry.in_channels / params.geometry.groups - int(first);
  [[unroll]] for (uint part = 0; part < kParts; ++part) fetched[i][part] = uvec4(0);
  if (inside && channels > 0) load_octet(i, stage.address + source * ELEMENT_BYTES, channels);
}

float next_inverse_scale = 1;  // of the stage that shared memory received last

#ifdef VARIANT_F32
// The largest finite magnitude of a stage as bits, for this stage and the next.
shared uint stage_top[2];

void start_scales() {
  if (gl_LocalInvocationIndex == 0) stage_top[0] = stage_top[1] = 0;
  barrier();
}

void note_top(uint parity) {
  uint top = 0;
  UNROLL for (uint i = 0; i < load_count(); ++i)
    [[unroll]] for (uint part = 0; part < 2; ++part)
      [[unroll]] for (uint c = 0; c < 4; ++c) top = max(top, finite_magnitude(fetched[i][part][c]));
  note_maximum(stage_top[parity], top);
}

// All octets of a stage, scaled to the range of halves and split in two. Every invocation calls this.
void share_stage(Stage stage, uint parity) {
  note_top(parity);
  barrier();
  const uint exponent = scale_exponent(stage_top[parity]);
  next_inverse_scale = inverse_scale(exponent);
  if (gl_LocalInvocationIndex == 0) stage_top[1 - parity] = 0;
  UNROLL for (uint i = 0; i < load_count(); ++i) {
    uvec4 high, low;
    split_octet(fetched[i], scale(exponent), high, low);
    if (slots[i] == kNoSlot) continue;
    tile[stage.base + slots[i]] = high;
    tile[stage.base + part_octets() + slots[i]] = low;
  }
}

// The next stage is fetched spread over the steps of this one.
void bring(Stage stage, uint step, uint steps) {
  UNROLL for (uint i = 0; i < load_count(); ++i)
    if (step == i * steps / load_count()) fetch(stage, i);
}
#else
void start_scales() {}

void share(Stage stage, uint i) {
  if (slots[i] != kNoSlot) tile[stage.base + slots[i]] = fetched[i][0];
}

void share_stage(Stage stage, uint parity) {
  UNROLL for (uint i = 0; i < load_count(); ++i) share(stage, i);
}

// The next stage comes in spread over the steps of this one; its octets take registers for kLeadSteps of them.
void bring(Stage stage, uint step, uint steps) {
  const uint lead = min(kLeadSteps, steps - 1);
  UNROLL for (uint i = 0; i < load_count(); ++i) {
    const uint first = i * (steps - lead) / load_count();
    if (step == first) fetch(stage, i);
    if (step == first + lead) share(stage, i);
  }
}
#endif

Stage stage_at(uint depth, uint chunk, uint base) {
  Stage stage;
  stage.depth = depth;
  stage.chunk = chunk;
  stage.base = base;
  const int64_t input_depth = int64_t(depth) * params.geometry.dilation[0];
  stage.address = params.input_lowest +
                  uint64_t(input_depth * params.input_stride[1] + chunk * (kChunkOctets * 8)) * ELEMENT_BYTES;
  return stage;
}

// The next stage; after the last, that one again: bringing it in once more is cheaper than a branch in every step.
Stage stage_after(Stage stage) {
  const uint base = stage_octets() - stage.base;
  if (stage.chunk + 1 < params.chunks) return stage_at(stage.depth, stage.chunk + 1, base);
  if (stage.depth + 1 < uint(params.geometry.kernel[0])) return stage_at(stage.depth + 1, 0, base);
  return stage_at(stage.depth, stage.chunk, base);
}
