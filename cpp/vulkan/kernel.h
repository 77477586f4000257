// A kernel is an embedded shader with its specialization constants. Pipelines are created at first
// use and shared by all streams of a device.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace vkconv::vulkan {

struct Kernel {
  std::string shader;                    // name in shaders.h
  std::vector<std::uint32_t> constants;  // constant_id 0, 1, 2, ...
  std::uint32_t subgroup_size = 0;       // required size with full subgroups; 0 leaves it to the driver
  auto operator<=>(const Kernel&) const = default;
  bool operator==(const Kernel&) const = default;
};

inline constexpr std::size_t kMaxParamsBytes = 1024;  // of a kernel's parameters

}  // namespace vkconv::vulkan
