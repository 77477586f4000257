// image_filter: few channels in and out, as of image filters and the first layers of small networks. Neighbouring
// pixels fill a vector, where other kernels put channels or terms side by side and leave most of it empty. A tile of
// sums stays in registers: 8 rows of a single output by 3 vectors of pixels, which share each vector of input between
// the taps of their rows, or up to 8 outputs of as many vectors, which share it as it is; those change places with the
// pixels before they are stored. The input rows under a task are staged in cache, a plane for each channel and phase of
// the stride, with zeros around them, so that what neighbours read lies side by side and no tap is out of range. Bound:
// the FMA units for large kernels (two thirds of their rate at 15x15), memory for small ones. Source: register-tiled
// stencils, as in Halide (Ragan-Kelley et al. 2013).
#include "algorithms/image_filter/image_filter.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "algorithms/registry_cpu.h"
#include "core/geometry.h"
#include "cpu/estimates.h"

namespace vkconv::cpu {
namespace image_filter {
namespace {

constexpr std::int64_t kPiecePixels = 2048, kPieceRows = 64, kTasksAThread = 8;
constexpr std::size_t kStageBytes = 384 << 10;  // stays in L2

void set_piece(Layout& s, std::int64_t rows) {
  s.piece_rows = std::min(rows, s.p.output[1]);
  // The last vector of a row may reach past it.
  s.staged_width = round_up(s.piece_pixels, s.lanes) + (dilated(s.p.kernel[2], s.p.dilation[2]) - 1) / s.p.stride[2];
  s.staged_rows = inputs_under(s.p, 1, s.piece_rows);
  const std::int64_t rows_bytes =
      checked_mul(checked_mul(s.staged_rows, s.p.kernel[0]), checked_mul(s.row_stride(), accumulator_bytes(s.p.dtype)));
  s.stage_bytes = aligned_bytes(rows_bytes);
}

Layout layout(const ConvProblem& p, const Context<Device>& context) {
  Layout s;
  s.p = p;
  s.lanes = lanes_of(context.traits, p.dtype);
  s.packed_bytes = aligned_bytes(checked_mul(p.weight_elements(), accumulator_bytes(p.dtype)));
  s.phases = std::min(p.stride[2], dilated(p.kernel[2], p.dilation[2]));
  s.slots = context.traits.threads;
  s.piece_pixels = std::min(p.output[2], kPiecePixels);
  std::int64_t rows = kPieceRows;
  const auto too_large = [&] { return s.workspace_bytes() > context.workspace_limit_bytes; };
  const auto few = [&] { return s.tasks() < kTasksAThread * s.slots; };
  for (set_piece(s, rows); rows > kRowsTogether && (s.stage_bytes > kStageBytes || few() || too_large());)
    set_piece(s, rows /= 2);
  while (s.slots > 1 && too_large()) --s.slots;
  while (s.piece_pixels > 1 && too_large()) s.piece_pixels /= 2, set_piece(s, rows);
  return s;
}

class FilterPlan final : public Plan<Device> {
 public:
  FilterPlan(const ConvProblem& p, const Context<Device>& c) : layout_(layout(p, c)) {}
  std::string describe() const override { return "image_filter"; }
  std::size_t workspace_bytes() const override { return layout_.workspace_bytes(); }
  void execute(Device::Stream&, const Operands<Device>& operands, std::byte* workspace) const override {
    run(layout_, operands, workspace);
  }

 private:
  Layout layout_;
};

Support supports(const ConvProblem& p, const Context<Device>& c) {
  if (Support s = forward_support(p); !s) return s;
  if (p.groups != 1) return Support::no("there is more than one group");
  if (p.in_channels > kMostIn || p.out_channels > kMostOut)
    return Support::no("it is for " + std::to_string(kMostIn) + " input channels and " + std::to_string(kMostOut) +
                       " outputs at most");
  if (p.input_dilated()) return Support::no("the input is dilated");
  return workspace_support("staged rows", layout(p, c).workspace_bytes(), c);
}

// Vector products that the output's rows take. A vector of input is loaded for those of the rows or outputs that share
// it, of which a kernel of few rows leaves some out.
double summing_products(const Layout& s) {
  constexpr double kLoad = 0.5, kTile = 40, kTileRow = 5, kStrip = 45, kStored = 4, kInterleaved = 24, kTileSums = 24;
  const ConvProblem& p = s.p;
  const std::int64_t rows = rows_together(p, p.output[1]), height = p.kernel[1];
  const double together = static_cast<double>(p.out_channels) / static_cast<double>(blocks(p));
  const double shared =
      rows > 1 ? static_cast<double>(rows * height) / static_cast<double>(height + rows - 1) : together;
  const double inside = share_inside(p, 0) * share_inside(p, 1);
  const double terms = static_cast<double>(p.taps() * p.in_channels) * inside;
  const double vectors = static_cast<double>(ceil_div(s.piece_pixels, s.lanes));
  const double tiles = std::ceil(vectors * static_cast<double>(rows) * together / kTileSums);
  const double tile = kTile + kTileRow * static_cast<double>(p.kernel[0] * (height + rows - 1));
  const double row =
      static_cast<double>(p.out_channels) * vectors * terms * (1 + kLoad / shared) +
      static_cast<double>(blocks(p)) * tiles * tile / static_cast<double>(rows) +
      kStrip * std::ceil(vectors / kMostVectors) +
      vectors * (p.out_channels > 1 ? kInterleaved * std::ceil(static_cast<double>(p.out_channels) / 4) : kStored);
  return row * static_cast<double>(p.batch * p.output[0] * p.output[1] * s.pieces_across());
}

double seconds(const ConvProblem& p, const Context<Device>& c) {
  constexpr double kShare = 0.95, kRowSeconds = 8e-9, kValueSeconds = 1e-9;  // of a row of a plane, of a value alone
  const Layout s = layout(p, c);
  const double summing = summing_products(s) / (kShare * vector_products_per_second(c.traits, p.dtype));
  const double rows = static_cast<double>(s.tasks() * s.staged_rows * p.kernel[0] * s.planes());
  const double values = rows * static_cast<double>(s.staged_width);
  const double alone = s.separates_planes() ? 0 : kValueSeconds * values;
  const double staging = 8 * values / c.traits.cache_bytes_per_second + (kRowSeconds * rows + alone) / c.traits.threads;
  // By one thread.
  const double packing = c.traits.threads * packing_seconds(c.traits, p.weight_elements(), false);
  const double work = (summing + staging) * uneven_share(c.traits, s.tasks()) + packing;
  return section_seconds(c.traits, work, p.bytes_moved(), s.tasks());
}

}  // namespace
}  // namespace image_filter

const Algorithm<Device> kImageFilter{"image_filter", image_filter::supports, image_filter::seconds,
                                     make_plan<image_filter::FilterPlan>};

}  // namespace vkconv::cpu
