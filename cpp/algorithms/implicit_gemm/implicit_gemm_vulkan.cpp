// implicit_gemm: the forward pass as a matrix product of output pixels by output channels whose left factor, the
// unfolded input, exists only a tile at a time in shared memory. It is the general fast path: any rank, kernel, stride,
// dilation, padding and grouping run the same shader. Where the outputs are too few to fill a GPU the sum is split over
// workgroups and added in a fixed order by a second pass.
// Source: the register blocking of Volkov & Demmel, "Benchmarking GPUs to tune dense linear algebra" (2008), and the
// implicit product of Chetlur et al., "cuDNN: efficient primitives for deep learning" (2014).
#include "algorithms/implicit_gemm/product.h"
#include "algorithms/registry_vulkan.h"

namespace vkconv::vulkan {
namespace {

// Two, and as many in the time of the sums' way through memory.
constexpr double kSplitLaunches = 4;

class ImplicitGemmPlan final : public Plan<Device> {
 public:
  ImplicitGemmPlan(const ConvProblem& p, const Context<Device>& c) : product_(p, c, SplitSums::allowed) {}

  std::string describe() const override { return product_.splits() ? "implicit_gemm(split k)" : "implicit_gemm"; }
  std::size_t workspace_bytes() const override { return product_.workspace_bytes(); }

  void execute(Stream& stream, const Operands<Device>& a, Pointer workspace) const override {
    product_.run(stream, a, workspace);
  }

 private:
  MatrixProduct product_;
};

double seconds(const ConvProblem& p, const Context<Device>& c) {
  const MatrixProduct product(p, c, SplitSums::allowed);
  const double launches = product.splits() ? kSplitLaunches * c.traits.rates.launch_seconds : launch_seconds(c);
  return launches + product.seconds();
}

}  // namespace

const Algorithm<Device> kImplicitGemm{"implicit_gemm", product_support, seconds, make_plan<ImplicitGemmPlan>};

}  // namespace vkconv::vulkan
