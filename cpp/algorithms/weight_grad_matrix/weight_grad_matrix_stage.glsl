// How a pixel tile comes to shared memory: the input with its halo, then the output gradients. Part of
// weight_grad_matrix.comp.

// Columns of pixels that a strided tap reads together lie together: input column x is number x / stride of phase
// x % stride. A column takes an odd number of octets, which spreads the rows of a matrix over the banks, and of several
// phases of halves each four more than a multiple of eight, which spreads neighbouring columns as they come in.
const uint kGradOctets = kSubgroupsM * kFragmentsM * kMatrixM / 8;  // of output channels
uint halo_rows() { return (kTileRows - 1) * stride_rows() + (kTileTaps - 1) * dilation_rows() + 1; }
uint halo_columns() { return (kTileColumns - 1) * stride_columns() + (tap_columns() - 1) * dilation_columns() + 1; }
uint phase_columns() { return (halo_columns() + stride_columns() - 1) / stride_columns(); }
uint input_column() { return halo_rows() * kChunkOctets | 1; }
uint grad_column() { return kTileRows * kGradOctets | 1; }
uint phase_octets() {
  const uint octets = phase_columns() * input_column();
  return stride_columns() == 1 || kParts > 1 ? octets : (octets + 7) / 8 * 8 + 4;
}
uint input_octets() { return stride_columns() * phase_octets(); }
uint grad_octets() { return kTileColumns * grad_column(); }
uint input_slot(uint x, uint y, uint octet) {
  return x % stride_columns() * phase_octets() + x / stride_columns() * input_column() + y * kChunkOctets + octet;
}

// Where the tile's operands lie.
struct Arrays {
  uint64_t input_first, grad_first;        // the tile's first channels in the first pixel; in the row of its first tap
  int64_t input_row_bytes, grad_row_bytes;  // from an output row to the next
  int input_row;                            // that the first tap of output row 0 reads
  int input_rows, grad_rows;                // of the arrays
  int input_channels, grad_channels;        // from the tile's first to the group's end
  int input_depth;                          // that the depth tap reads at output depth 0
} arrays;

void place_arrays(Tile at) {
  const int group_in = params.geometry.in_channels / params.geometry.groups;
  const int group_out = params.geometry.out_channels / params.geometry.groups;
  const int channel = int(at.channel_chunk * kChunkOctets * 8), out_channel = int(at.m * kGradOctets * 8);
  arrays.input_row = int(at.row_tap * dilation_rows()) - params.geometry.pad_lo[1];
  const int64_t first = int(at.group) * group_in + channel + arrays.input_row * params.input_stride[2];
  arrays.input_first = params.input_array + uint64_t(first * ELEMENT_BYTES);
  arrays.grad_first = params.grad_array + uint64_t(int(at.group) * group_out + out_channel) * ELEMENT_BYTES;
  arrays.input_row_bytes = int(stride_rows()) * params.input_stride[2] * ELEMENT_BYTES;
  arrays.grad_row_bytes = params.grad_stride[2] * ELEMENT_BYTES;
  arrays.input_rows = params.geometry.input_extent[1];
  arrays.grad_rows = params.geometry.output_extent[1];
  arrays.input_channels = group_in - channel;
  arrays.grad_channels = group_out - out_channel;
  arrays.input_depth = int(at.depth_tap) * params.geometry.dilation[0] - params.geometry.pad_lo[0];
}

struct Stage {
  int column, row;  // first output pixel of the pixel tile
  uint base;        // in `tile`
};

Stage stage_at(uint index) {
  const uint row = take_digit(index, params.pixel_rows);
  return Stage(int(index * kTileColumns), int(row * kTileRows), 0);
}

// Pixel tiles follow each other down a strip of columns, then in the next strip.
Stage stage_after(Stage stage) {
  const uint base = kParts * (input_octets() + grad_octets()) - stage.base;
  const int row = stage.row + int(kTileRows);
  if (row < arrays.grad_rows) return Stage(stage.column, row, base);
  return Stage(stage.column + int(kTileColumns), 0, base);
}

// The octets of a pixel tile that this invocation brings to shared memory, those of the input first: the row in the
// pixel tile or its halo and the place in `tile`, 16 bits each, and the elements from the tile's first in memory.
const uint kLoads = kInputLoads + kGradLoads, kNoSlot = 0xffffu, kOutside = 0x80000000u;
uint places[kLoads], offsets[kLoads], offsets_high[kLoads];
uvec4 fetched[kLoads][kParts];
const uint kLateSteps = 4;  // of a pixel tile: from here on the next is fetched behind the first step's products

uint octet_of(uint i, uint first, uint octets) { return (gl_LocalInvocationIndex + (i - first) * kThreads) % octets; }
bool is_input(uint i) { return i < kInputLoads; }

int64_t offset_of(int image, int depth, int row, int column, int64_t stride[4]) {
  if (kFar) return image * stride[0] + depth * stride[1] + row * stride[2] + column * stride[3];
  return image * int(stride[0]) + depth * int(stride[1]) + row * int(stride[2]) + column * int(stride[3]);
}

void set_offset(uint i, int64_t offset) {
  offsets[i] = uint(offset);
  offsets_high[i] = uint(offset >> 32);
}

int image_of(int slice) { return kDepth ? int(divide(uint(slice), params.depths)) : slice; }

// Pixel tiles follow each other along one row of pixels. The addresses of `arrays` go along, and offsets count from a
// tile's first column: tiles without columns outside share them.
const bool kOneRow = kStrip && !kSlices;
int offset_column(int column, int first) { return kOneRow ? column - first : column; }

Column column_at(int slice, int column, Divisor pitch) {
  return kStraddled ? column_of(column, pitch) : column_in(slice, column, pitch);
}

void plan_input(int slice, int first_column, uint i) {
  uint item = gl_LocalInvocationIndex + i * kThreads;
  const uint octet = take_digit(item, kChunkOctets), x = take_digit(item, halo_columns()), y = item;
  const int first = first_column * int(stride_columns()) - params.geometry.pad_lo[2];
  const Column column = column_at(slice, first + int(x), params.input_pitch);
  const int image = image_of(max(column.slice, 0));
  const int out_depth = kDepth ? column.slice - image * int(params.depths.value) : 0;
  const int depth = out_depth * params.geometry.stride[0] + arrays.input_depth;
  const bool inside = uint(column.slice) < params.slices && column.x < params.geometry.input_extent[2] &&
                      uint(depth) < uint(params.geometry.input_extent[0]) && int(octet * 8) < arrays.input_channels;
  places[i] = (y < halo_rows() ? y << 16 | input_slot(x, y, octet) : kNoSlot | kOutside) | (inside ? 0 : kOutside);
  const int x_offset = offset_column(column.x, first_column * int(stride_columns()));
  set_offset(i, offset_of(image, depth, int(y), x_offset, params.input_stride) + int(octet * 8));
}

void plan_grad(int slice, int first_column, uint i) {
  uint item = gl_LocalInvocationIndex + (i - kInputLoads) * kThreads;
  const uint octet = take_digit(item, kGradOctets), x = take_digit(item, kTileColumns), y = item;
  const Column column = column_at(slice, first_column + int(x), params.pitch);
  const int image = image_of(column.slice), depth = kDepth ? column.slice - image * int(params.depths.value) : 0;
  const bool inside = uint(column.slice) < params.slices && column.x < params.geometry.output_extent[2] &&
                      int(octet * 8) < arrays.grad_channels;
  const uint slot = kParts * input_octets() + x * grad_column() + y * kGradOctets + octet;
  places[i] = (y < kTileRows ? y << 16 | slot : kNoSlot | kOutside) | (inside ? 0 : kOutside);
  const int x_offset = offset_column(column.x, first_column);
  set_offset(i, offset_of(image, depth, int(y), x_offset, params.grad_stride) + int(octet * 8));
}

// For all pixel tiles of a strip.
void plan_loads(int first_column) {
  const int slice = kSlices && !kStraddled ? int(divide(uint(first_column), params.pitch)) : 0;
  UNROLL for (uint i = 0; i < kInputLoads + loop_count(kGradLoads); ++i)
    if (is_input(i))
      plan_input(slice, first_column, i);
    else
      plan_grad(slice, first_column, i);
}

void advance(int columns) {
  arrays.input_first += uint64_t(columns * int(stride_columns()) * params.input_stride[3] * ELEMENT_BYTES);
  arrays.grad_first += uint64_t(columns * params.grad_stride[3] * ELEMENT_BYTES);
}

// Whether the pixel tile that begins at `column` has no columns outside.
bool columns_exist(int column) {
  const int first = column * int(stride_columns()) - params.geometry.pad_lo[2];
  return kWholeTiles || column + int(kTileColumns) <= params.geometry.output_extent[2] && first >= 0 &&
                            first + int(halo_columns()) <= params.geometry.input_extent[2];
}

// For the pixel tile after `stage`, in another strip or further along the row.
void plan_next(Stage stage, Stage following) {
  if (kOneRow) advance(int(kTileColumns));
  if (!kOneRow || !columns_exist(stage.column) || !columns_exist(following.column)) plan_loads(following.column);
}

// Eight channels at an address, of which the first `channels` exist.
void load_octet(uint i, uint64_t address, int channels, uint unit) {
  if (unit == 8) {
    [[unroll]] for (uint part = 0; part < kParts; ++part) fetched[i][part] = Octets(address).at[part];
    return;
  }
  LOAD_UNITS(fetched[i], address, channels, unit);
}

void fetch(Stage stage) {
  const int input_row = stage.row * int(stride_rows()) + arrays.input_row;
  const uint64_t input_address = arrays.input_first + uint64_t(stage.row * arrays.input_row_bytes);
  const uint64_t grad_address = arrays.grad_first + uint64_t(stage.row * arrays.grad_row_bytes);
  UNROLL for (uint i = 0; i < kInputLoads + loop_count(kGradLoads); ++i) {
    [[unroll]] for (uint part = 0; part < kParts; ++part) fetched[i][part] = uvec4(0);
    const int row = (is_input(i) ? input_row : stage.row) + int(places[i] >> 16 & 0x7fffu);
    if ((places[i] & kOutside) != 0 || uint(row) >= uint(is_input(i) ? arrays.input_rows : arrays.grad_rows)) continue;
    const int64_t offset = kFar ? int64_t(packUint2x32(uvec2(offsets[i], offsets_high[i]))) : int64_t(int(offsets[i]));
    const uint64_t address = (is_input(i) ? input_address : grad_address) + uint64_t(offset * ELEMENT_BYTES);
    if (is_input(i))
      load_octet(i, address, arrays.input_channels - int(octet_of(i, 0, kChunkOctets)) * 8, kInputUnit);
    else
      load_octet(i, address, arrays.grad_channels - int(octet_of(i, kInputLoads, kGradOctets)) * 8, kGradUnit);
  }
}

float next_scale = 1;  // that the sums of the pixel tile shared last are multiplied by

#ifdef VARIANT_F32
// A wait among the products would make the driver leave matrices in memory.
const bool kSpreads = false;
float scales[2];  // of the input and of the output gradients on their way
// The largest orders of a pixel tile, for this stage and the next: of the input and of the output
// gradients.
shared uint stage_top[2][2];

void start_scales() {
  if (gl_LocalInvocationIndex < 4) stage_top[gl_LocalInvocationIndex / 2][gl_LocalInvocationIndex % 2] = 0;
  barrier();
}

void note_top(uint parity, uint operand, uint first, uint end) {
  uint top = 0;
  UNROLL for (uint i = first; i < end; ++i)
    [[unroll]] for (uint part = 0; part < 2; ++part)
      [[unroll]] for (uint c = 0; c < 4; ++c) top = max(top, finite_order(fetched[i][part][c]));
  note_maximum(stage_top[parity][operand], top);
}

// The scales of the octets on their way. Both inverses together are a normal number: where they would not be, products
// are so small that less than the operands' full range does. Every invocation calls this.
void choose_scales(uint parity) {
  const uint least_exponents = 156;
  note_top(parity, 0, 0, loop_count(kInputLoads));
  note_top(parity, 1, kInputLoads, kInputLoads + loop_count(kGradLoads));
  barrier();
  const uint input_exponent = scale_exponent(stage_top[parity][0]);
  const uint least = least_exponents - min(input_exponent, least_exponents);
  const uint grad_exponent = max(scale_exponent(stage_top[parity][1]), least);
  scales[0] = scale(input_exponent);
  scales[1] = scale(grad_exponent);
  next_scale = inverse_scale(input_exponent) * inverse_scale(grad_exponent);
  if (gl_LocalInvocationIndex < 2) stage_top[1 - parity][gl_LocalInvocationIndex] = 0;
}

// An octet to shared memory, scaled to the range of halves and split in two.
void share(Stage stage, uint i) {
  uvec4 high, low;
  split_octet(fetched[i], scales[is_input(i) ? 0 : 1], high, low);
  const uint slot = places[i] & 0xffffu;
  if (slot == kNoSlot) return;
  tile[stage.base + slot] = high;
  tile[stage.base + slot + (is_input(i) ? input_octets() : grad_octets())] = low;
}
#else
const bool kSpreads = true;
void start_scales() {}
void choose_scales(uint parity) {}

void share(Stage stage, uint i) {
  const uint slot = places[i] & 0xffffu;
  if (slot != kNoSlot) tile[stage.base + slot] = fetched[i][0];
}
#endif

// Of the octets on their way those that are in shared memory after a step of `steps`: none for the first half, in which
// they arrive.
uint shared_loads(uint step, uint steps) {
  const uint middle = steps / 2;
  if (step + 1 == steps) return kLoads;
  return step < middle ? 0 : kLoads * (step - middle) / (steps - middle);
}

// What a step does for the next pixel tile.
void bring(Stage stage, uint step, uint steps) {
  const uint first = step == 0 ? 0 : shared_loads(step - 1, steps), end = shared_loads(step, steps);
  UNROLL for (uint i = 0; i < kInputLoads + loop_count(kGradLoads); ++i)
    if (i >= first && i < end) share(stage, i);
}

void bring_all(Stage stage, uint parity) {
  choose_scales(parity);
  bring(stage, 0, 1);
}
