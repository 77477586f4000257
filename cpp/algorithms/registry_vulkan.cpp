#include "algorithms/registry_vulkan.h"

namespace vkconv {

template <>
std::span<const Algorithm<vulkan::Device>> registry<vulkan::Device>() {
  static const Algorithm<vulkan::Device> table[] = {
      vulkan::kReference,
      vulkan::kDepthwise,
      vulkan::kImplicitGemm,
      vulkan::kUnfoldGemm,
      vulkan::kWeightGrad,
  };
  return table;
}

}  // namespace vkconv
