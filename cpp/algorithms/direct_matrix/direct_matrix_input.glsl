// How the input under a tile of outputs comes to shared memory, a stage after the other. Part of direct_matrix.comp.

const uint kLeadSteps = 4, kSplitSteps = 2, kNoSource = 0xffffffffu;
const int kOutside = -0x40000000;  // no depth tap reaches the input from here

// Where an octet of a stage comes from: bytes from the input's lowest address at the first depth tap and chunk, of the
// row where taps are channels.
struct Source {
  uint low, high;
  int depth, column;  // that the first taps read; the column where taps are channels
};

// Of the octets of a stage that this invocation brings to shared memory, of consecutive ones a thread one.
Source sources[kLoads];
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

Column column_at(Place at, int column, Divisor pitch) {
  return kStraddled ? column_of(column, pitch) : column_in(at.slice, column, pitch);
}

uint index_of(uint i) { return gl_LocalInvocationIndex + i * kThreads; }
bool has_slot(uint i) { return (i + 1) * kThreads <= brought || index_of(i) < brought; }

struct Octet {
  uint column, index;  // in `tile`, and in the column
};

// The i-th octet that this invocation brings: where invocations are whole columns, all have one place in theirs.
#define WHOLE_COLUMNS (kThreads % brought_octets == 0)
Octet octet_at(uint i) {
  if (!WHOLE_COLUMNS) return Octet(index_of(i) / brought_octets, index_of(i) % brought_octets);
  const uint index = gl_LocalInvocationIndex;
  return Octet(index / brought_octets + i * (kThreads / brought_octets), index % brought_octets);
}

uint first_slot;
void place_octets() { first_slot = octet_at(0).column * column_octets + octet_at(0).index; }
uint slot_of(uint i) {
  return WHOLE_COLUMNS ? first_slot + i * (kThreads / brought_octets * column_octets) : index_of(i);
}

Source source_of(Place at, Octet octet) {
  Source source = Source(kNoSource, kNoSource, kOutside, 0);
  const uint y = octet.index / kChunkOctets;
  const uint x = octet.column % phase_columns * stride_columns + octet.column / phase_columns;
  const int row = at.row * int(stride_rows) + int(y) - params.geometry.pad_lo[1];
  const int pad = params.geometry.pad_lo[2];
  const int first = at.column * int(stride_columns) - (kTapsAreChannels ? 0 : pad);
  const Column column = column_at(at, first + int(x), params.input_pitch);
  const int columns = kTapsAreChannels ? params.geometry.output_extent[2] : params.geometry.input_extent[2];
  if (y >= halo_rows || x >= halo_columns || octet.column >= phase_columns * stride_columns || row < 0 ||
      row >= params.geometry.input_extent[1] || column.slice < 0 || column.slice >= int(params.slices) ||
      column.x >= columns)
    return source;
  source.column = kTapsAreChannels ? column.x * params.geometry.stride[2] - pad : 0;
  const int image = kDepth ? int(divide(uint(column.slice), params.depths)) : column.slice;
  const int depth = kDepth ? column.slice - image * int(params.depths.value) : 0;
  source.depth = depth * params.geometry.stride[0] - params.geometry.pad_lo[0];
  const int64_t distance = params.input_origin + strides_of(image, params.input_stride[0], kFarInput) +
                          strides_of(source.depth, params.input_stride[1], kFarInput) +
                          strides_of(row, params.input_stride[2], kFarInput) +
                          at.group * params.group_in +
                          (kTapsAreChannels ? 0
                                            : strides_of(column.x, params.input_stride[3], kFarInput) +
                                                  octet.index % kChunkOctets * 8);
  const uint64_t bytes = uint64_t(distance) * ELEMENT_BYTES;
  source.low = uint(bytes);
  source.high = uint(bytes >> 32);
  return source;
}

// One of eight channels, zeros before.
void set_channel(inout uvec4 octet[kParts], uint c, uint bits) {
#ifdef VARIANT_F32
  octet[c / 4][c % 4] = bits;
#else
  octet[0][c / 2] |= bits << (c % 2 * 16);
#endif
}

// Eight channels from an address, of which the first `channels` exist. (What a loop of `channels` turns stores in
// `fetched` an H200's driver, 580, has been seen to lose.)
void load_octet(uint i, uint64_t address, int channels) {
  if (kInputUnit == 8) {
    [[unroll]] for (uint part = 0; part < kParts; ++part) fetched[i][part] = Octets(address).at[part];
    return;
  }
  LOAD_UNITS(fetched[i], address, kWholeChunks ? 8 : channels, kInputUnit);
}

// Whether a source exists at the depth tap of a stage, and the address.
bool find_source(Source source, Stage stage, out uint64_t address) {
  const int depth = source.depth + int(stage.depth) * params.geometry.dilation[0];
  address = stage.address + (kFarInput ? packUint2x32(uvec2(source.low, source.high)) : uint64_t(source.low));
  return kDepthTaps ? uint(depth) < uint(params.geometry.input_extent[0])
                    : (kFarInput ? source.high : source.low) != kNoSource;
}

void fetch(Stage stage, uint i) {
  uint64_t address;
  const int channels = kWholeChunks ? stage.channels : stage.channels - int(octet_at(i).index % kChunkOctets * 8);
  [[unroll]] for (uint part = 0; part < kParts; ++part) fetched[i][part] = uvec4(0);
  if (find_source(sources[i], stage, address) && channels > 0) load_octet(i, address, channels);
}

void fetch_all(Stage stage) { UNROLL for (uint i = 0; i < load_count; ++i) fetch(stage, i); }

float next_scale = 1, next_inverse_scale = 1;  // of the stage that shared memory received last

#ifdef VARIANT_F32
// The largest order of a stage, for this stage and the next.
shared uint stage_top[2];

uint parity_of(Stage stage) { return stage.base == 0 ? 0 : 1; }

void start_scales() {
  if (gl_LocalInvocationIndex == 0) stage_top[0] = stage_top[1] = 0;
  barrier();
}

uint top_of(uvec4 octet[2]) {
  uint top = 0;
  [[unroll]] for (uint part = 0; part < 2; ++part)
    [[unroll]] for (uint c = 0; c < 4; ++c) top = max(top, finite_order(octet[part][c]));
  return top;
}

void note_top(Stage stage) {
  uint top = 0;
  UNROLL for (uint i = 0; i < load_count; ++i) top = max(top, top_of(fetched[i]));
  note_maximum(stage_top[parity_of(stage)], top);
}

// The scale of a stage, once its largest magnitude is known.
void take_scale(Stage stage) {
  const uint exponent = scale_exponent(stage_top[parity_of(stage)]);
  next_scale = scale(exponent);
  next_inverse_scale = inverse_scale(exponent);
  if (gl_LocalInvocationIndex == 0) stage_top[1 - parity_of(stage)] = 0;
}

// An octet scaled to the range of halves and split in two.
void share_split(Stage stage, uint i, uvec4 octet[2]) {
  uvec4 high, low;
  split_octet(octet, next_scale, high, low);
  if (!has_slot(i)) return;
  tile[stage.base + slot_of(i)] = high;
  tile[stage.base + part_octets + slot_of(i)] = low;
}

void share_all(Stage stage) {
  note_top(stage);
  barrier();
  take_scale(stage);
  UNROLL for (uint i = 0; i < load_count; ++i) share_split(stage, i, fetched[i]);
}

// The next stage is fetched spread over the steps of this one, and split beside the products of the last of them, once
// all invocations know its scale.
void bring(Stage stage, uint step, uint steps) {
  const uint lead = min(kLeadSteps, steps - 1);
  UNROLL for (uint i = 0; i < load_count; ++i)
    if (step == i * (steps - lead) / load_count) fetch(stage, i);
  const uint splitting = min(kSplitSteps, max(steps, 2) - 1), first = steps - splitting;
  if (step + 1 == max(first, 1)) note_top(stage);
  if (step < first) return;
  if (step == first) {
    barrier();
    take_scale(stage);
  }
  UNROLL for (uint i = 0; i < load_count; ++i)
    if (step == first + i * splitting / load_count) share_split(stage, i, fetched[i]);
}
#else
void start_scales() {}

void share(Stage stage, uint i) {
  if (has_slot(i)) tile[stage.base + slot_of(i)] = fetched[i][0];
}

void share_all(Stage stage) {
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
#endif

// Eight of the channels that are each one of the input's at a column tap. What is outside reads the nearest that is
// inside: loads without a branch go out together.
uvec4[kParts] gather_octet(Source source, Stage stage, uint first) {
  uvec4 octet[kParts];
  [[unroll]] for (uint part = 0; part < kParts; ++part) octet[part] = uvec4(0);
  const int columns = params.geometry.input_extent[2], begin = source.column * int(kColumnChannels) + int(first);
  uint64_t address;
  const bool found = find_source(source, stage, address);
  if (!found) address = params.input_array;
  UNROLL for (uint c = 0; c < 8; ++c) {
    const int tap = int((first + c) / kColumnChannels), column = source.column + tap * params.geometry.dilation[2];
    const int inside = clamp(column, 0, columns - 1);
    int64_t offset =
        strides_of(inside, params.input_stride[3], kFarInput) + int(first + c) - tap * int(kColumnChannels);
    bool exists = column == inside;
    if (kTapsInLine) {
      const int position = begin + int(c), nearest = clamp(position, 0, columns * int(kColumnChannels) - 1);
      offset = nearest;
      exists = position == nearest;
    }
    const uint bits = bits_at(address + uint64_t(offset * ELEMENT_BYTES));
    set_channel(octet, c, found && exists && first + c < params.group_in ? bits : 0);
  }
  return octet;
}

// The i-th octet that this invocation gathers. Neighbouring ones take neighbouring columns, whose few channels share
// cache lines.
Octet gathered_octet(uint i) { return Octet(index_of(i) % phase_columns, index_of(i) / phase_columns); }

// A stage where taps are channels, in a real loop, since the code for one octet is long, of two at a time, whose loads
// wait together. Of fp32 an octet waits as it is in the slots of its parts until the stage's scale is known.
void gather(Place at, Stage stage) {
  const uint together = 2;
  uint top = 0;
  [[dont_unroll]] for (uint first = 0; first < load_count; first += together) {
    uvec4 octets[together][kParts];
    UNROLL for (uint j = 0; j < together; ++j) {
      const Octet octet = gathered_octet(first + j);
      const uint channel = (stage.chunk * kChunkOctets + octet.index % kChunkOctets) * 8;
      octets[j] = gather_octet(source_of(at, octet), stage, channel);
    }
    UNROLL for (uint j = 0; j < together; ++j) {
      const Octet octet = gathered_octet(first + j);
      const uint slot = stage.base + octet.column * column_octets + octet.index;
      if (!has_slot(first + j)) continue;
      [[unroll]] for (uint part = 0; part < kParts; ++part) tile[slot + part * part_octets] = octets[j][part];
#ifdef VARIANT_F32
      top = max(top, top_of(octets[j]));
#endif
    }
  }
#ifdef VARIANT_F32
  note_maximum(stage_top[parity_of(stage)], top);
  barrier();
  take_scale(stage);
  [[dont_unroll]] for (uint i = 0; i < load_count; ++i) {
    const uint slot = stage.base + slot_of(has_slot(i) ? i : 0);
    share_split(stage, i, uvec4[2](tile[slot], tile[slot + part_octets]));
  }
#endif
}

Stage stage_at(uint depth, uint chunk, uint base) {
  Stage stage;
  stage.depth = depth;
  stage.chunk = chunk;
  stage.base = base;
  stage.channels = int(params.group_in - chunk * (kChunkOctets * 8));
  const int64_t input_depth = int64_t(depth) * params.geometry.dilation[0];
  const uint channel = kTapsAreChannels ? 0 : chunk * (kChunkOctets * 8);
  stage.address = params.input_lowest + uint64_t(input_depth * params.input_stride[1] + channel) * ELEMENT_BYTES;
  return stage;
}

// The next stage. After the last comes one of zeros: cheaper than a branch in every step.
Stage stage_after(Stage stage, bool exists) {
  const bool same_depth = stage.chunk + 1 < params.chunks;
  Stage next = stage_at(same_depth ? stage.depth : stage.depth + 1, same_depth ? stage.chunk + 1 : 0,
                        kOneStage ? stage.base : stage_octets - stage.base);
  if (!exists) next.channels = 0;
  return next;
}
