// VK_KHR_cooperative_matrix and VK_KHR_shader_bfloat16 for headers older than them (Debian 12 has 1.3.239).
#pragma once
#include <set>
#include <string>

#include "vulkan/raii.h"
#include "vulkan/traits.h"

namespace vkconv::vulkan {

inline constexpr const char* kCooperativeMatrixExtension = "VK_KHR_cooperative_matrix";
inline constexpr const char* kBFloat16Extension = "VK_KHR_shader_bfloat16";

// VkPhysicalDeviceCooperativeMatrixFeaturesKHR
struct CooperativeMatrixFeatures {
  VkStructureType type = static_cast<VkStructureType>(1000506000);
  void* next = nullptr;
  VkBool32 cooperative_matrix = VK_FALSE;
  VkBool32 robust_buffer_access = VK_FALSE;
};

// VkPhysicalDeviceShaderBfloat16FeaturesKHR
struct BFloat16Features {
  VkStructureType type = static_cast<VkStructureType>(1000141000);
  void* next = nullptr;
  VkBool32 bfloat16_type = VK_FALSE;
  VkBool32 dot_product = VK_FALSE;
  VkBool32 cooperative_matrix = VK_FALSE;
};

// Fills features.bfloat16 and cooperative_matrices from the extensions that are there.
void read_matrix_features(const vk::raii::Instance& instance, const vk::raii::PhysicalDevice& device,
                          const std::set<std::string>& extensions, Traits& traits);

}  // namespace vkconv::vulkan
