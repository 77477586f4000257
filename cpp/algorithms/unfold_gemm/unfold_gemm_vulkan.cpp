// unfold_gemm: the input is unfolded, tile by tile, into a matrix whose rows are the windows of output pixels, and
// multiplied by the weights with the kernel of implicit_gemm. A tile is as many rows and groups of the convolution as
// the workspace limit and the device's largest allocation hold, down to one row of one group; every output is summed in
// the same order whatever the tile. It covers every forward problem and loses to implicit_gemm, which gathers the same
// values without writing them, except where gathering is costly and repeated for many output channels.
// Source: MLX pull request 3084 (row-tiled unfolding).
#include <algorithm>

#include "algorithms/implicit_gemm/product.h"
#include "algorithms/registry_vulkan.h"
#include "core/checked.h"

namespace vkconv::vulkan {
namespace {

constexpr std::size_t kTileBytes = std::size_t{64} << 20;      // more rows do not make the product faster
constexpr std::int64_t kTileElements = std::int64_t{1} << 31;  // fours are counted in 32 bits

struct UnfoldTile {
  std::int64_t rows = 0, groups = 0;  // 0: not even one row of one group fits
  std::size_t bytes = 0;
};

std::size_t row_bytes(const ConvProblem& p, const MatrixProduct& product) {
  return static_cast<std::size_t>(product.unfolded_columns()) * size_bytes(p.dtype);
}

UnfoldTile choose_tile(const ConvProblem& p, const MatrixProduct& product, const Context<Device>& c) {
  const std::size_t limit =
      std::min({c.workspace_limit_bytes, static_cast<std::size_t>(c.traits.limits.allocation_bytes),
                std::max(kTileBytes, row_bytes(p, product))});
  const auto windows =
      std::min(static_cast<std::int64_t>(limit / row_bytes(p, product)), kTileElements / product.unfolded_columns());
  UnfoldTile t;
  t.groups = std::min(p.groups, windows);
  t.rows = t.groups == 0 ? 0 : std::min(p.batch * p.output_pixels(), windows / t.groups);
  t.bytes = static_cast<std::size_t>(t.rows * t.groups) * row_bytes(p, product);
  return t;
}

class UnfoldGemmPlan final : public Plan<Device> {
 public:
  UnfoldGemmPlan(const ConvProblem& p, const Context<Device>& c)
      : p_(p), product_(p, c, SplitSums::never), tile_(choose_tile(p, product_, c)) {}

  std::string describe() const override { return "unfold_gemm"; }
  std::size_t workspace_bytes() const override { return tile_.bytes; }

  void execute(Stream& stream, const Operands<Device>& a, Pointer workspace) const override {
    const std::int64_t pixels = p_.batch * p_.output_pixels();
    UnfoldedRows rows{workspace};
    for (rows.first_group = 0; rows.first_group < p_.groups; rows.first_group += tile_.groups) {
      rows.groups = std::min(tile_.groups, p_.groups - rows.first_group);
      for (rows.first_row = 0; rows.first_row < pixels; rows.first_row += tile_.rows) {
        rows.rows = std::min(tile_.rows, pixels - rows.first_row);
        product_.run_unfolded(stream, a, rows);
      }
    }
  }

 private:
  ConvProblem p_;
  MatrixProduct product_;
  UnfoldTile tile_;
};

Support supports(const ConvProblem& p, const Context<Device>& c) {
  if (Support s = product_support(p, c); !s) return s;
  const MatrixProduct product(p, c, SplitSums::never);
  if (product.unfolded_columns() >= kTileElements) return Support::no("one unfolded row has over 2^31 elements");
  if (choose_tile(p, product, c).rows == 0)
    return Support::no("one unfolded row needs " + std::to_string(row_bytes(p, product)) + " bytes of workspace");
  return Support::yes();
}

// The product, the matrix written and read, and two dispatches a tile.
double seconds(const ConvProblem& p, const Context<Device>& c) {
  const MatrixProduct product(p, c, SplitSums::never);
  const UnfoldTile t = choose_tile(p, product, c);
  const double rows = double(p.batch * p.output_pixels());
  const double tiles = double(ceil_div(p.batch * p.output_pixels(), t.rows)) * double(ceil_div(p.groups, t.groups));
  const double bytes = 2 * rows * double(p.groups) * double(row_bytes(p, product));
  return product.seconds() + bytes / c.traits.rates.memory_bytes_per_second + 2 * tiles * c.traits.rates.launch_seconds;
}

}  // namespace

const Algorithm<Device> kUnfoldGemm{"unfold_gemm", supports, seconds, make_plan<UnfoldGemmPlan>};

}  // namespace vkconv::vulkan
