// implicit_gemm: the forward pass as a matrix product of output pixels by output channels whose left factor, the
// unfolded input, is never stored: the micro-kernel reads input pixels in place. It wins on dense convolutions that
// Winograd does not cover (1x1, strides, dilation, large kernels, 1D) and is the general fast path for every problem
// without input dilation.
// Source: the register blocking of Goto & van de Geijn, "Anatomy of high-performance matrix multiplication" (2008),
// and direct convolution after Georganas et al., "Anatomy of high-performance deep learning convolutions" (2018).
#include <algorithm>
#include <memory>
#include <string>

#include "algorithms/implicit_gemm/dense.h"
#include "algorithms/registry_cpu.h"

namespace vkconv::cpu {
namespace {

TileShape described_tile(const ConvProblem& p, const Traits& t) {
  const auto lanes = t.vector_bytes / static_cast<std::int64_t>(size_bytes(accumulator(p.dtype)));
  return {t.vector_bytes >= 64 ? 14 : 6, lanes};
}

class DensePlan final : public Plan<Device> {
 public:
  explicit DensePlan(DenseLayout layout) : layout_(std::move(layout)) {}

  std::string describe() const override { return "implicit_gemm"; }
  std::size_t workspace_bytes() const override { return layout_.workspace_bytes(); }

  std::string weight_layout() const override {
    std::string name = "panels" + std::to_string(layout_.columns) + "_axes";
    for (int axis : layout_.orientation.axes) name += std::to_string(axis);
    return name;
  }

  PreparedWeights<Device> prepare(Device::Stream&, const WeightView<std::byte*>& weight) const override {
    PreparedWeights<Device> w;
    w.data = Buffer(layout_.packed_bytes());
    pack_dense(layout_, layout_.orientation.apply(weight), w.data.pointer());
    return w;
  }

  void execute(Device::Stream&, const Operands<Device>& operands, std::byte* workspace) const override {
    run_dense(layout_, layout_.orientation.apply(operands), workspace);
  }

 private:
  DenseLayout layout_;
};

Support supports(const ConvProblem& p, const Context<Device>& c) {
  if (p.pass != Pass::forward) return Support::no("it computes the forward pass only");
  if (p.flip) return Support::no("a flipped kernel is a mirrored weight view here, not a flag");
  if (p.empty_sum()) return Support::no("the sum has no terms");
  if (p.output_elements() == 0) return Support::no("the output is empty");
  if (p.input_dilation != Extent3{1, 1, 1}) return Support::no("the input is dilated");
  const DenseLayout layout = dense_layout(p, c, described_tile(p, c.traits));
  if (layout.workspace_bytes() > c.workspace_limit_bytes)
    return Support::no("packing one panel of weights needs " + std::to_string(layout.workspace_bytes()) +
                       " bytes of workspace, the limit is " + std::to_string(c.workspace_limit_bytes));
  return Support::yes();
}

// Shares of the peak rate, measured: two vectors of columns and one; a tile of few rows waits for its own sums.
constexpr double kWideShare = 0.95, kNarrowShare = 0.8, kRowsForPeak = 5;

double seconds(const ConvProblem& p, const Context<Device>& c) {
  const DenseLayout s = dense_layout(p, c, described_tile(p, c.traits));
  const std::int64_t channels = p.out_channels_per_group(), rest = channels % s.columns;
  const double wide = static_cast<double>(channels - rest + (rest > s.tile.lanes ? s.columns : 0));
  const double narrow = rest > 0 && rest <= s.tile.lanes ? static_cast<double>(s.tile.lanes) : 0;
  const double tile_rows = static_cast<double>(s.p.output[2]) / static_cast<double>(s.row_tiles);
  const double rate = c.traits.f32_flops_per_second * std::min(1.0, tile_rows / kRowsForPeak) / (p.dtype == DType::f64 ? 2 : 1);
  const double pairs = 2.0 * static_cast<double>(p.batch * p.output_pixels() * p.groups) * static_cast<double>(s.terms);
  const double compute = pairs * (wide / kWideShare + narrow / kNarrowShare) / rate;
  const double packing = static_cast<double>(p.weight_elements() * s.row_chunks()) * 8 / c.traits.cache_bytes_per_second;
  return c.traits.launch_seconds + std::max(compute + packing, p.bytes_moved() / c.traits.memory_bytes_per_second);
}

std::shared_ptr<const Plan<Device>> make(const ConvProblem& p, const Context<Device>& c) {
  return std::make_shared<DensePlan>(dense_layout(p, c, tile_shape(accumulator(p.dtype))));
}

}  // namespace

const Algorithm<Device> kImplicitGemm{"implicit_gemm", supports, seconds, make};

}  // namespace vkconv::cpu
