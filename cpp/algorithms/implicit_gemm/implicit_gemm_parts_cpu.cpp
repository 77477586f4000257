// implicit_gemm_parts: the dense kernel of implicit_gemm on matrix registers that multiply bf16, where operands are
// fp32 or fp16: each becomes three parts or two, and products of parts are summed in fp32 (bf16_parts.h). Six products
// at 16 times the rate of fp32 vectors, or four, are about twice and three times as fast. It wins on dense convolutions
// that Winograd does not cover or gains little on; what bounds it are the registers' products and splitting the input,
// once a task. Tasks whose input, and panels whose weights, have no parts are computed from the operands themselves.
#include "algorithms/implicit_gemm/kernel_plan.h"
#include "algorithms/registry_cpu.h"
#include "cpu/bf16_parts.h"
#include "cpu/estimates.h"
#include "cpu/gemm_kernels.h"

namespace vkconv::cpu {
namespace {

DenseLayout layout(const ConvProblem& p, const Context<Device>& c) {
  return dense_layout(p, c, register_tile(c.traits, p.dtype), parts_of(p.dtype));
}

Support supports(const ConvProblem& p, const Context<Device>& c) {
  if (!c.traits.bf16_tiles || lanes_of(c.traits, DType::f32) != kMatrixTile.lanes)
    return Support::no("nothing in the processor multiplies matrices of bfloat16");
  if (Support s = forward_support(p); !s) return s;
  if (p.input_dilated()) return Support::no("the input is dilated");
  if (p.groups > 1) return Support::no("it has groups");
  if (parts_of(p.dtype) == 1) return Support::no("numbers of this type are not split into parts");
  if (p.precision == Precision::highest) return Support::no("products of parts of small numbers are not exact");
  return workspace_support("packed weights", layout(p, c).workspace_bytes(), c);
}

double seconds(const ConvProblem& p, const Context<Device>& c) { return dense_seconds(p, c, parts_of(p.dtype)); }

std::shared_ptr<const Plan<Device>> make(const ConvProblem& p, const Context<Device>& c) {
  return std::make_shared<KernelPlan<DenseKernel>>(layout(p, c), "implicit_gemm_parts");
}

}  // namespace

const Algorithm<Device> kImplicitGemmParts{"implicit_gemm_parts", supports, seconds, make};

}  // namespace vkconv::cpu
