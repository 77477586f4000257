#version 460
// variants: f32 f16 bf16 f64
//
// A subgroup computes kPixels output pixels for kLanes * kColumns output channels. No value is loaded by two lanes:
// lane l loads the input of pixels l, l + kLanes, ... and the weights of its own output channels, and inputs pass to
// the other lanes by shuffles. A device that loads lane by lane but computes all lanes at once does 2 * kPixels / kLanes +
// 4 * kColumns loads for 4 * kPixels * kColumns multiply-adds. Such a device runs both sides of every branch, and a
// parameter costs it as much as any load: parameters of inner loops are copied first.
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "vulkan/glsl/epilogue.glsl"
#include "vulkan/glsl/geometry.glsl"

layout(constant_id = 5) const uint kLanes = 8;     // of a subgroup, which is a workgroup
layout(constant_id = 6) const uint kPixels = 32;   // a multiple of kLanes
layout(constant_id = 7) const uint kColumns = 4;   // output channels a lane, even
layout(constant_id = 8) const bool kInputFours = false;  // input aligned to four channels
layout(constant_id = 9) const bool kPadded = false;      // some tap of some output reads padding
layout(constant_id = 10) const bool kInsertedZeros = false;

layout(local_size_x_id = 5) in;

const uint kWidth = kLanes * kColumns, kLoads = kPixels / kLanes;

struct Params {
  uint64_t input_array, panels, output_array;
  int64_t input_stride[4], output_stride[4];  // N D H W
  EpilogueParams epilogue;
  Geometry geometry;
  uint pixels;        // of all images
  uint tiles_n;       // panels of a group's output channels
  uint chunks, chunk_quads;  // of a group's input channels; fours of input channels of a chunk
  uint group_count;   // workgroups
};
#include "vulkan/glsl/dispatch.glsl"

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer PairAt { uint64_t value; };

struct Pixel {
  bool exists;
  int64_t image;       // offset of the image in the input
  int position[3];     // of tap 0 in the dilated input
  uvec2 output_offset, addend_offset;  // of 64 bits, in words that a shuffle moves
};

// Copies of what inner loops read.
Geometry geometry;
int64_t input_stride[3];  // D H W

Pixel pixel_at(uint m) {
  Pixel p;
  p.exists = m < params.pixels;
  int64_t output_offset = 0, addend_offset = 0;
  [[unroll]] for (int axis = 2; axis >= 0; --axis) {
    const int i = int(take_digit(m, uint(geometry.output_extent[axis])));
    p.position[axis] = i * geometry.stride[axis] - geometry.pad_lo[axis];
    output_offset += i * params.output_stride[1 + axis];
    if (kHasAddend) addend_offset += i * params.epilogue.addend_stride[1 + axis];
  }
  p.image = m * params.input_stride[0];
  output_offset += m * params.output_stride[0];
  if (kHasAddend) addend_offset += m * params.epilogue.addend_stride[0];
  p.output_offset = unpackUint2x32(uint64_t(output_offset));
  p.addend_offset = unpackUint2x32(uint64_t(addend_offset));
  return p;
}

// Whether the tap at these positions from tap 0 lies in the input, and the offset of its first channel.
bool find_input(Pixel p, int tap[3], out int64_t offset) {
  bool inside = p.exists;
  offset = p.image;
  [[unroll]] for (int axis = 0; axis < 3; ++axis) {
    int i = p.position[axis] + tap[axis];
    if (kInsertedZeros) {
      const int step = geometry.input_dilation[axis], quotient = i / step;
      inside = inside && i >= 0 && quotient * step == i;
      i = quotient;
    }
    inside = inside && uint(i) < uint(geometry.input_extent[axis]);
    offset += i * input_stride[axis];
  }
  return inside;
}

struct Place {
  uint first_pixel, tile_n, group, group_in, group_out;
};

// Sums of a block and of all blocks. Never indexed by a variable, which would keep them out of registers.
real sum[kPixels][kColumns], total[kPixels][kColumns];
real finished[kPixels * kColumns];
Pixel pixels[kLoads];
real4 inputs[kLoads];  // four channels of this lane's pixels

real4 load_input(int64_t offset, uint channel, uint channels) {
  if (kInputFours) return load4(params.input_array, offset + channel);
  real4 v = real4(0);
  [[unroll]] for (uint j = 0; j < 4; ++j)
    if (channel + j < channels) v[j] = load(params.input_array, offset + channel + j);
  return v;
}

// Two neighbouring weights.
void load_weights(uint64_t address, out real w[2]) {
#ifdef VARIANT_F64
  w[0] = load_real(address, 0), w[1] = load_real(address, 1);
#else
  const vec2 pair = uintBitsToFloat(unpackUint2x32(PairAt(address).value));
  w[0] = pair.x, w[1] = pair.y;
#endif
}

// Output channel of a lane's j-th sum, in its panel.
uint column_of(uint lane, uint j) { return j / 2 * 2 * kLanes + 2 * lane + j % 2; }

void end_block() {
  [[unroll]] for (uint m = 0; m < kPixels; ++m)
    [[unroll]] for (uint j = 0; j < kColumns; ++j) total[m][j] += sum[m][j], sum[m][j] = real(0);
}

// Four input channels of all pixels times the weights at `address`.
void multiply(uint64_t address) {
  [[unroll]] for (uint l = 0; l < 4; ++l) {
    real w[kColumns];
    [[unroll]] for (uint j = 0; j < kColumns; j += 2) {
      real pair[2];
      load_weights(address + (l * kWidth + column_of(0, j)) * REAL_BYTES, pair);
      w[j] = pair[0], w[j + 1] = pair[1];
    }
    [[unroll]] for (uint m = 0; m < kPixels; ++m) {
      const real x = subgroupShuffle(inputs[m / kLanes][l], m % kLanes);
      [[unroll]] for (uint j = 0; j < kColumns; ++j) sum[m][j] = fma(x, w[j], sum[m][j]);
    }
  }
}

// One tap of a chunk: a branch, which would run on both sides, is avoided by loops of one level more.
void sum_tap(Place at, uint chunk, uint chunk_quads, int tap[3], uint64_t weights) {
  int64_t offsets[kLoads];
  bool inside[kLoads];
  [[unroll]] for (uint g = 0; g < kLoads; ++g) {
    inside[g] = find_input(pixels[g], tap, offsets[g]);
    offsets[g] += at.group * at.group_in;
  }
  const uint first = chunk * chunk_quads * 4, last = min(first + chunk_quads * 4, at.group_in);
  for (uint c = first; c < last; c += 4) {
    [[unroll]] for (uint g = 0; g < kLoads; ++g) {
      inputs[g] = real4(0);
      if (inside[g]) inputs[g] = load_input(offsets[g], c, at.group_in);
    }
    multiply(weights);
    weights += 4 * kWidth * REAL_BYTES;
  }
}

// Blocks are a chunk of channels and a row of the kernel.
void sum_taps(Place at) {
  const int taps_d = geometry.kernel[0], taps_h = geometry.kernel[1], taps_w = geometry.kernel[2];
  const uint chunk_quads = params.chunk_quads, tap_bytes = chunk_quads * 4 * kWidth * REAL_BYTES;
  uint64_t weights = params.panels + 2 * gl_SubgroupInvocationID * REAL_BYTES +
                     (at.group * params.tiles_n + at.tile_n) * uint64_t(params.chunks) * uint(taps_d * taps_h * taps_w) *
                         tap_bytes;
  const uint chunks = params.chunks;
  for (uint chunk = 0; chunk < chunks; ++chunk)
    for (int d = 0; d < taps_d; ++d)
      for (int h = 0; h < taps_h; ++h) {
        for (int w = 0; w < taps_w; ++w) {
          const int tap[3] = {d * geometry.dilation[0], h * geometry.dilation[1], w * geometry.dilation[2]};
          sum_tap(at, chunk, chunk_quads, tap, weights);
          weights += tap_bytes;
        }
        end_block();
      }
}

const uint kTogether = 8;  // channels of a sum by the definition in an iteration, of which there are few

// The sum of one output by the definition, skipping padding: among the inputs above padding is zero, and 0 * infinity
// is NaN.
real sum_without_padding(Place at, Pixel p, uint column) {
  const uint taps = uint(geometry.kernel[0] * geometry.kernel[1] * geometry.kernel[2]);
  const uint chunk_channels = params.chunk_quads * 4;
  const uint64_t panel = (at.group * params.tiles_n + at.tile_n) * uint64_t(params.chunks);
  real s = real(0);
  for (uint tap = 0; tap < taps; ++tap) {
    uint rest = tap;
    int position[3];
    [[unroll]] for (int axis = 2; axis >= 0; --axis)
      position[axis] = int(take_digit(rest, uint(geometry.kernel[axis]))) * geometry.dilation[axis];
    int64_t offset;
    if (!find_input(p, position, offset)) continue;
    for (uint first = 0; first < at.group_in; first += kTogether)
      [[unroll]] for (uint j = 0; j < kTogether; ++j) {
        const uint four = (first + j) / 4 * 4, c = first + j;  // which are in one chunk
        const uint64_t row = ((panel + four / chunk_channels) * taps + tap) * chunk_channels + four % chunk_channels;
        if (c < at.group_in)
          s = fma(load(params.input_array, offset + at.group * at.group_in + c),
                  load_real(params.panels, int64_t((row + j % 4) * kWidth + column)), s);
      }
  }
  return s;
}

uint64_t shuffled(uvec2 words, uint lane) {
  return packUint2x32(uvec2(subgroupShuffle(words.x, lane), subgroupShuffle(words.y, lane)));
}

// Loops, not unrolled: compiled once. What is to be repaired is not stored: the addend may lie there.
void store_outputs(Place at) {
  [[unroll]] for (uint m = 0; m < kPixels; ++m)
    [[unroll]] for (uint j = 0; j < kColumns; ++j) finished[m * kColumns + j] = total[m][j];
  const uint64_t output_array = params.output_array;
  const uint end_pixel = params.pixels;
  [[unroll]] for (uint g = 0; g < kLoads; ++g)
    for (uint lane = 0; lane < kLanes; ++lane) {
      const uint m = g * kLanes + lane;
      const int64_t output_offset = int64_t(shuffled(pixels[g].output_offset, lane));
      const int64_t addend_offset = kHasAddend ? int64_t(shuffled(pixels[g].addend_offset, lane)) : 0;
      for (uint j = 0; j < kColumns; ++j) {
        const uint o = at.tile_n * kWidth + column_of(gl_SubgroupInvocationID, j);
        const bool repaired = kPadded && isnan(finished[m * kColumns + j]);
        if (at.first_pixel + m < end_pixel && o < at.group_out && !repaired)
          finish(output_array, output_offset, addend_offset, at.group * at.group_out + o, finished[m * kColumns + j],
                 params.epilogue);
      }
    }
}

// Sums that padding may have made NaN, once more. Without one the loop's body is run a single time, by no lane.
void repair_outputs(Place at) {
  bool any = false;
  [[unroll]] for (uint m = 0; m < kPixels; ++m)
    [[unroll]] for (uint j = 0; j < kColumns; ++j) any = any || isnan(total[m][j]);
  for (uint i = 0; i < (any ? kPixels * kColumns : 0); ++i) {
    const uint column = column_of(gl_SubgroupInvocationID, i % kColumns), o = at.tile_n * kWidth + column;
    const Pixel p = pixel_at(at.first_pixel + i / kColumns);
    if (!p.exists || o >= at.group_out || !isnan(finished[i])) continue;
    finish(params.output_array, int64_t(packUint2x32(p.output_offset)), int64_t(packUint2x32(p.addend_offset)),
           at.group * at.group_out + o, sum_without_padding(at, p, column), params.epilogue);
  }
}

void main() {
  uint index = linear_group();
  if (index >= params.group_count) return;
  Place at;
  at.tile_n = take_digit(index, params.tiles_n);
  at.group = take_digit(index, uint(params.geometry.groups));
  at.first_pixel = index * kPixels;
  at.group_in = uint(params.geometry.in_channels / params.geometry.groups);
  at.group_out = uint(params.geometry.out_channels / params.geometry.groups);
  geometry = params.geometry;
  [[unroll]] for (int axis = 0; axis < 3; ++axis) input_stride[axis] = params.input_stride[1 + axis];
  [[unroll]] for (uint g = 0; g < kLoads; ++g)
    pixels[g] = pixel_at(at.first_pixel + g * kLanes + gl_SubgroupInvocationID);
  [[unroll]] for (uint m = 0; m < kPixels; ++m)
    [[unroll]] for (uint j = 0; j < kColumns; ++j) sum[m][j] = total[m][j] = real(0);
  sum_taps(at);
  store_outputs(at);
  if (kPadded) repair_outputs(at);
}
