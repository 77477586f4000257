#include "vulkan/shaders.h"

#include <algorithm>
#include <string>

#include "core/error.h"

namespace vkconv::vulkan {

std::span<const std::uint32_t> spirv(std::string_view name) {
  const auto table = shaders();
  const auto row = std::ranges::lower_bound(table, name, {}, &Shader::name);
  if (row == table.end() || row->name != name) throw Error("no shader is named " + std::string(name));
  return row->words;
}

}  // namespace vkconv::vulkan
