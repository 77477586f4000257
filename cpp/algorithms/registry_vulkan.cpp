#include "algorithms/registry_vulkan.h"

namespace vkconv {

template <>
std::span<const Algorithm<vulkan::Device>> registry<vulkan::Device>() {
  return {};
}

}  // namespace vkconv
