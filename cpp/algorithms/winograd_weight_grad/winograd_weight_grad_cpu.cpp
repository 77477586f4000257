// winograd_weight_grad: the weight gradient through fewer products. A tile of 4x4 output gradients is a 4x4 kernel over
// the 6x6 inputs under it whose 3x3 results are the gradients of the taps: F(3x3, 4x4) of winograd (Lavin and Gray
// 2015). All tiles are summed in the transform domain, where a tile takes 36 products a pair of channels instead of
// 144, and one inverse transform follows. Kernels of other sizes are pieces of the tiles that winograd has, one after
// another; outputs of a dilated kernel are tiled a dilation apart.
// Transformed tiles stay with the thread that multiplies them: moving them between cores takes longer than the
// products. Threads share the work by parts of the tiles, whose sums are added afterwards, and by splits of the output
// channels, each of which transforms the inputs for itself. It wins where pixels are many beside the weights. Taps of
// a third axis, of any stride and dilation, multiply the same transformed tiles, each for sums of its own. What is not
// finite is computed again: finite_sums_plan.h.
#include <algorithm>

#include "algorithms/registry_cpu.h"
#include "algorithms/weight_grad/finite_sums_plan.h"
#include "algorithms/weight_grad/weight_grad_support.h"
#include "algorithms/winograd_weight_grad/winograd_weight_grad.h"
#include "core/orientation.h"

namespace vkconv::cpu {
namespace winograd_weight_grad {
namespace {

constexpr std::int64_t kMaxTiles = 1 << 20;  // of longer sums the rounding of the running sums would show
// Products of the shortest sum. Errors are those of whole tiles, whatever a sum has of them: with 32,000 channel pairs
// c is 27 to 51 for 16 products of up to 4 taps squared, 70 to 79 for 8 and 9; of more taps 40 to 52 for 36, 67 to 119
// for 16.
constexpr std::int64_t kFewestProducts = 16, kFewestOfManyTaps = 32, kManyTaps = 5;

struct TileSums {
  static constexpr const char* kName = "winograd_weight_grad";
  using Layout = winograd_weight_grad::Layout;

  static Orientation orientation(const ConvProblem& p) { return kernel_axes_last(p); }
  static Layout layout(const ConvProblem& p, const Context<Device>& context) {
    return choose_layout(p, context.traits, winograd::kernels().lanes, context.workspace_limit_bytes);
  }
  static std::size_t bytes(const ConvProblem&, const Layout& layout) { return layout.bytes(); }
  static bool run(const ConvProblem& p, const Layout& layout, const Operands<Device>& operands, std::byte* workspace) {
    return winograd_weight_grad::run(p, layout, operands, workspace);
  }
};

// As on the described processor.
Layout described_layout(const ConvProblem& p, const Context<Device>& context) {
  const std::int64_t lanes = lanes_of(context.traits, DType::f32);
  return choose_layout(p, context.traits, lanes, context.workspace_limit_bytes);
}

// Of the tap that meets padding most.
std::int64_t fewest_products(const ConvProblem& p) {
  std::int64_t products = p.batch;
  for (const int axis : {0, 1, 2})
    products *= std::min(outputs_inside(p, axis, 0).size(),
                         outputs_inside(p, axis, p.kernel[static_cast<std::size_t>(axis)] - 1).size());
  return products;
}

Support supports(const ConvProblem& problem, const Context<Device>& context) {
  if (Support s = weight_grad_support(problem); !s) return s;
  const ConvProblem p = TileSums::orientation(problem).apply(problem);
  if (p.input_dilated()) return Support::no("the input is dilated");
  if (p.dtype == DType::f64) return Support::no("its error is too large for float64");
  if (p.precision == Precision::highest) return Support::no("precision highest allows direct sums only");
  if (p.kernel[2] == 1) return Support::no("the kernel has a single tap");
  for (const int axis : {1, 2}) {
    if (p.stride[axis] != 1) return Support::no("it needs height and width without stride");
    for (const std::int64_t tap : {std::int64_t{0}, p.kernel[axis] - 1})
      if (2 * outputs_inside(p, axis, tap).size() < p.output[axis])
        return Support::no("some taps sum too few products for its error bound");
  }
  const bool many = std::max(p.kernel[1], p.kernel[2]) >= kManyTaps;
  if (fewest_products(p) < (many ? kFewestOfManyTaps : kFewestProducts))
    return Support::no("its sums are too short for its error bound");
  const Layout l = described_layout(p, context);
  if (l.tiles() > kMaxTiles) return Support::no("its sums are too long for its error bound");
  return workspace_support("the sums", l.bytes(), context);
}

double seconds(const ConvProblem& problem, const Context<Device>& context) {
  const ConvProblem p = TileSums::orientation(problem).apply(problem);
  return layout_seconds(p, described_layout(p, context), context.traits);
}

}  // namespace
}  // namespace winograd_weight_grad

const Algorithm<Device> kWinogradWeightGrad{winograd_weight_grad::TileSums::kName, winograd_weight_grad::supports,
                                            winograd_weight_grad::seconds,
                                            make_plan<FiniteSumsPlan<winograd_weight_grad::TileSums>>};

}  // namespace vkconv::cpu
