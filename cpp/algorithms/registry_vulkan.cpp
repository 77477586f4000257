#include "algorithms/registry_vulkan.h"

#include "algorithms/column_taps/column_taps.h"
#include "algorithms/dilation_phases/dilation_phases.h"
#include "algorithms/input_grad/input_grad.h"
#include "algorithms/phase_channels/phase_channels.h"
#include "algorithms/small_kernel_depth/small_kernel_depth.h"
#include "algorithms/split/split.h"
#include "algorithms/transpose_phases/transpose_phases.h"
#include "algorithms/trimmed_kernel/trimmed_kernel.h"

namespace vkconv {

template <>
std::span<const Algorithm<vulkan::Device>> registry<vulkan::Device>() {
  static const Algorithm<vulkan::Device> table[] = {
      vulkan::kReference,
      vulkan::kDepthwise,
      vulkan::kDepthwiseWeightGrad,
      vulkan::kDirect,
      vulkan::kDirectMatrix,
      vulkan::kImageFilter,
      vulkan::kImplicitGemm,
      vulkan::kSubgroupGemm,
      vulkan::kUnfoldGemm,
      vulkan::kEmptySum,
      vulkan::kWeightGrad,
      vulkan::kWeightGradMatrix,
      vulkan::kPatchChannels,
      disjoint_algorithm<vulkan::Device, ColumnTaps>(),
      vulkan::kWinograd,
      small_kernel_depth<vulkan::Device>(),
      disjoint_algorithm<vulkan::Device, TransposePhases>(),
      phase_channels<vulkan::Device>(),
      disjoint_algorithm<vulkan::Device, DilationPhases>(),
      disjoint_algorithm<vulkan::Device, TrimmedKernel>(),
      input_grad<vulkan::Device>(),
      disjoint_algorithm<vulkan::Device, Split>(),
  };
  return table;
}

}  // namespace vkconv
