// The SPIR-V embedded in the library, compiled from the .comp files by tools/compile_shaders.py.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

namespace vkconv::vulkan {

struct Shader {
  std::string_view name;  // file name without extension, e.g. depthwise_f16
  std::span<const std::uint32_t> words;
};

// Every shader, sorted by name.
std::span<const Shader> shaders();

// Words of the shader of this name; throws Error when there is none.
std::span<const std::uint32_t> spirv(std::string_view name);

}  // namespace vkconv::vulkan
