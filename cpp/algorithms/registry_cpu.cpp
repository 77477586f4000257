#include "algorithms/registry_cpu.h"

#include "algorithms/dilation_phases/dilation_phases.h"
#include "algorithms/input_grad/input_grad.h"
#include "algorithms/phase_channels/phase_channels.h"
#include "algorithms/small_kernel_depth/small_kernel_depth.h"
#include "algorithms/split/split.h"
#include "algorithms/transpose_phases/transpose_phases.h"
#include "algorithms/trimmed_kernel/trimmed_kernel.h"

namespace vkconv {

template <>
std::span<const Algorithm<cpu::Device>> registry<cpu::Device>() {
  static const Algorithm<cpu::Device> table[] = {
      cpu::kReference,
      cpu::kImplicitGemm,
      cpu::kImplicitGemmParts,
      cpu::kUnfoldGemm,
      cpu::kDepthwise,
      cpu::kFftDepthwise,
      cpu::kImageFilter,
      cpu::kMatrixVector,
      cpu::kWinograd,
      cpu::kEmptySum,
      cpu::kWeightGrad,
      cpu::kWinogradWeightGrad,
      cpu::kWeightGradPairs,
      small_kernel_depth<cpu::Device>(),
      disjoint_algorithm<cpu::Device, TransposePhases>(),
      phase_channels<cpu::Device>(),
      disjoint_algorithm<cpu::Device, DilationPhases>(),
      disjoint_algorithm<cpu::Device, TrimmedKernel>(),
      input_grad<cpu::Device>(),
      disjoint_algorithm<cpu::Device, Split>(),
  };
  return table;
}

}  // namespace vkconv
