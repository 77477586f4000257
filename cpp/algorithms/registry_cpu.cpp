#include "algorithms/registry_cpu.h"

namespace vkconv {

template <>
std::span<const Algorithm<cpu::Device>> registry<cpu::Device>() {
  static const Algorithm<cpu::Device> table[] = {
      cpu::kReference,
  };
  return table;
}

}  // namespace vkconv
