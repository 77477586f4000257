// image_filter: one channel in, one channel out. Neighbouring pixels fill a vector, and a tile of 8 rows by 3
// vectors of outputs stays in registers: each vector of input is loaded once for a tap column and multiplied by the
// weights of 8 kernel rows, each weight broadcast once for all vectors. Bound: the FMA units for large kernels (two
// thirds of their rate at 15x15), memory for small ones. The input rows under a task are staged with zeros around them,
// in cache, so that no tap is out of range. It wins wherever it applies: other kernels put channels side by side and
// there is only one. Source: register-tiled stencils, as in Halide (Ragan-Kelley et al. 2013).
#include "algorithms/image_filter/image_filter.h"

#include <algorithm>
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
  const std::int64_t tile = kMostVectors * s.lanes;  // the last tile of a row sums this many outputs at most
  s.staged_width = round_up(s.piece_pixels, s.lanes) + tile + dilated(s.p.kernel[2], s.p.dilation[2]);
  s.staged_rows = inputs_under(s.p, 1, s.piece_rows);
  const std::int64_t rows_bytes =
      checked_mul(checked_mul(s.staged_rows, s.p.kernel[0]), s.staged_width * accumulator_bytes(s.p.dtype));
  s.stage_bytes = aligned_bytes(rows_bytes);
}

Layout layout(const ConvProblem& p, const Context<Device>& context) {
  Layout s;
  s.p = p;
  s.lanes = lanes_of(context.traits, p.dtype);
  s.packed_bytes = aligned_bytes(p.taps() * 8);
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
  if (p.in_channels != 1 || p.out_channels != 1) return Support::no("there is more than one channel");
  if (p.input_dilated()) return Support::no("the input is dilated");
  if (p.stride[2] != 1) return Support::no("neighbouring outputs along width do not read neighbouring inputs");
  return workspace_support("staged rows", layout(p, c).workspace_bytes(), c);
}

// The FMA units' time and that of staging.
double seconds(const ConvProblem& p, const Context<Device>& c) {
  const Layout s = layout(p, c);
  const std::int64_t together = rows_together(p, p.output[1]);
  const double share = together == 8 ? 0.65 : 0.4;  // of the peak rate, measured
  const double width = static_cast<double>(round_up(p.output[2], s.lanes)) / static_cast<double>(p.output[2]);
  const double sums = p.flops() * width / (share * flops_per_second(c.traits, accumulator(p.dtype)));
  const double staged =
      static_cast<double>(s.tasks() * s.staged_rows * p.kernel[0]) * static_cast<double>(s.staged_width);
  return section_seconds(c.traits, sums + 8 * staged / c.traits.cache_bytes_per_second, p.bytes_moved(), s.tasks());
}

}  // namespace
}  // namespace image_filter

const Algorithm<Device> kImageFilter{"image_filter", image_filter::supports, image_filter::seconds,
                                     make_plan<image_filter::FilterPlan>};

}  // namespace vkconv::cpu
