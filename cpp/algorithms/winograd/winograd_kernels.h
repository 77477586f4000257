// What the instruction-set specific half of Winograd offers to its driver: small kernels on float arrays, found
// once a process by Highway's dispatch. `columns` is the width of a weight panel: one or two vectors of outputs.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/algorithm.h"
#include "cpu/bounds.h"
#include "cpu/device.h"
#include "cpu/gemm.h"

namespace vkconv::cpu::winograd {

// Rounding error of results, as a share of their root mean square: 1e-6 (of sums of some hundred terms), twice that,
// which is what the usual points 0, 1, -1, 2, -2 make of F4, and more.
enum class TileError { small, medium, large };

// A tile shape F(md x mh x mw, rd x rh x rw). Axes that are not transformed have m = r = 1. Along h and w the kernel
// may have more taps than r and a stride: see KernelPart.
struct TileShape {
  int md, mh, mw, rd, rh, rw;
  TileError error;
  constexpr int points_d() const { return md + rd - 1; }
  constexpr int points_h() const { return mh + rh - 1; }
  constexpr int points_w() const { return mw + rw - 1; }
  constexpr int plane_points() const { return points_h() * points_w(); }  // of one point along d
  constexpr int points() const { return points_d() * plane_points(); }
  constexpr int outputs() const { return md * mh * mw; }
  constexpr bool deep() const { return points_d() > 1; }  // it transforms three axes
};

// Order of preference among equal estimates.
inline constexpr TileShape kTileShapes[] = {
    {1, 4, 4, 1, 3, 3, TileError::small},  {1, 5, 5, 1, 3, 3, TileError::medium}, {1, 2, 2, 1, 3, 3, TileError::small},
    {1, 6, 6, 1, 3, 3, TileError::large},  {1, 4, 4, 1, 2, 2, TileError::small},  {1, 3, 3, 1, 4, 4, TileError::small},
    {1, 4, 4, 1, 4, 4, TileError::medium}, {1, 1, 4, 1, 1, 3, TileError::small},  {1, 1, 6, 1, 1, 3, TileError::small},
    {1, 1, 4, 1, 1, 2, TileError::small},  {1, 1, 3, 1, 1, 4, TileError::small},  {1, 1, 4, 1, 1, 4, TileError::small},
    {1, 1, 4, 1, 1, 5, TileError::small},  {2, 4, 4, 3, 3, 3, TileError::small},  {4, 4, 4, 3, 3, 3, TileError::medium},
    {4, 4, 4, 2, 3, 3, TileError::medium},
};
inline constexpr int kTileShapeCount = static_cast<int>(std::size(kTileShapes));
inline constexpr int kMaxTilePoints = 216;
inline constexpr int kMaxTileOutputs = 64;
inline constexpr int kMaxTileTaps = 27;
// Channels of weights staged at a time, so that all their taps stay in L1.
inline constexpr std::int64_t kStagedChannels = 16;

// Of a tile's pixels or taps, in elements.
struct TileStrides {
  std::int64_t slice, row, pixel;
};

// The transforms of one tile shape. `point_stride` separates the points of the result (input, weight), of which `plane`
// is the one along d, or of the sums (output). Pixels are float or halves, widened when loaded and rounded when stored.
struct TileKernels {
  // x: points_d x points_h x points_w pixels of `channels` values, a multiple of the vector length.
  void (*input)(const void* x, DType dtype, const TileStrides& stride, int plane, std::int64_t channels, float* v,
                std::int64_t point_stride);
  // The same from as many addresses.
  void (*input_pixels)(const std::byte* const* pixels, DType dtype, int plane, std::int64_t channels, float* v,
                       std::int64_t point_stride);
  // taps: rd x rh x rw taps of `values` values, a multiple of the vector length.
  void (*weight)(const float* taps, const TileStrides& stride, int plane, std::int64_t values, float* u,
                 std::int64_t point_stride);
  // The same past the caches, where `u` is aligned to vectors.
  void (*stream_weight)(const float* taps, const TileStrides& stride, int plane, std::int64_t values, float* u,
                        std::int64_t point_stride);
  // y: md x mh x mw pixels of `columns` values, bias added, and between the bounds if there are some. False: some of
  // them, before both bounds and rounding, are infinite or NaN.
  bool (*output)(const float* sums, std::int64_t point_stride, std::int64_t columns, const float* bias,
                 const Bounds* bounds, void* y, DType dtype, const TileStrides& stride);
};

// `count` pixels of one tile row on their way from the staging buffer to the output array.
struct FinishRow {
  const float* sums;
  std::int64_t columns;  // from pixel to pixel of the sums
  std::int64_t count, channels;
  const float* addend;  // null: none
  std::int64_t addend_stride;
  std::byte* output;
  std::int64_t output_stride;  // elements
  bool stream;                 // past the caches; all vectors are whole and aligned, of float
};

// Weights of `outputs` x `channels` for the taps of one kernel part, to be staged as [taps_d * rh * rw][channels]
// [columns] with zeros behind the last output and the last tap.
struct WeightBlock {
  WeightView<std::byte*> view;  // at the first output, tap and channel of the block; `tap` is the step between taps
  DType dtype;
  std::int64_t rh, rw, taps_d, taps_h, taps_w, channels, outputs, columns;  // channels <= kStagedChannels
};

// A rectangle of input pixels whose channels are copied, widened to float.
struct PixelBlock {
  const std::byte* from;
  DType dtype;
  std::int64_t row_stride, pixel_stride;  // elements
  std::int64_t rows, pixels, channels;
  float* to;
  std::int64_t to_row_stride, to_pixel_stride;
};

struct Kernels {
  std::int64_t lanes;
  TileKernels tiles[kTileShapeCount];
  void (*stage_pixels)(const PixelBlock& block);
  void (*finish)(const FinishRow& row, DType output_dtype, const Epilogue& epilogue);
  void (*stage_weights)(const WeightBlock& block, float* taps);
  // to[c * to_stride + r] = from[r * stride + c] for `rows` r and `columns` c.
  void (*transpose)(const float* from, std::int64_t stride, std::int64_t columns, std::int64_t rows, float* to,
                    std::int64_t to_stride);
};

const Kernels& kernels();

}  // namespace vkconv::cpu::winograd
