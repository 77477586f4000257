#include "vulkan/cooperative_matrix.h"

#include <optional>

namespace vkconv::vulkan {
namespace {

// VkCooperativeMatrixPropertiesKHR
struct Properties {
  VkStructureType type = static_cast<VkStructureType>(1000506001);
  void* next = nullptr;
  std::uint32_t m = 0, n = 0, k = 0;
  std::int32_t a_type = 0, b_type = 0, c_type = 0, result_type = 0;  // ComponentType
  VkBool32 saturating = VK_FALSE;
  std::int32_t scope = 0;  // VkScopeKHR
};
constexpr std::int32_t kSubgroupScope = 3;

// VkComponentTypeKHR, as far as kernels know the types.
enum ComponentType : std::int32_t { kFloat16 = 0, kFloat32 = 1, kFloat64 = 2, kBFloat16 = 1000141000 };

std::optional<DType> dtype_of(std::int32_t component_type) {
  switch (component_type) {
    case kFloat16:
      return DType::f16;
    case kFloat32:
      return DType::f32;
    case kFloat64:
      return DType::f64;
    case kBFloat16:
      return DType::bf16;
    default:
      return std::nullopt;
  }
}

using GetProperties = VkResult(VKAPI_PTR*)(VkPhysicalDevice, std::uint32_t*, Properties*);

std::vector<CooperativeMatrix> read_shapes(const vk::raii::Instance& instance, const vk::raii::PhysicalDevice& device) {
  const auto get =
      reinterpret_cast<GetProperties>(instance.getProcAddr("vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
  std::uint32_t count = 0;
  if (!get || get(static_cast<VkPhysicalDevice>(*device), &count, nullptr) != VK_SUCCESS) return {};
  std::vector<Properties> all(count);
  if (get(static_cast<VkPhysicalDevice>(*device), &count, all.data()) != VK_SUCCESS) return {};
  all.resize(count);
  std::vector<CooperativeMatrix> shapes;
  for (const Properties& p : all) {
    const auto operand = dtype_of(p.a_type), sum = dtype_of(p.c_type);
    if (!operand || !sum || p.b_type != p.a_type || p.result_type != p.c_type || p.scope != kSubgroupScope) continue;
    shapes.push_back({p.m, p.n, p.k, *operand, *sum});
  }
  return shapes;
}

}  // namespace

void read_matrix_features(const vk::raii::Instance& instance, const vk::raii::PhysicalDevice& device,
                          const std::set<std::string>& extensions, Traits& traits) {
  CooperativeMatrixFeatures matrix;
  BFloat16Features bfloat16;
  const bool has_matrix = extensions.contains(kCooperativeMatrixExtension);
  const bool has_bfloat16 = extensions.contains(kBFloat16Extension);
  vk::PhysicalDeviceFeatures2 features;
  if (has_matrix) features.pNext = &matrix;
  if (has_bfloat16) {
    bfloat16.next = features.pNext;
    features.pNext = &bfloat16;
  }
  if (!features.pNext) return;
  device.getDispatcher()->vkGetPhysicalDeviceFeatures2(static_cast<VkPhysicalDevice>(*device),
                                                       reinterpret_cast<VkPhysicalDeviceFeatures2*>(&features));
  traits.features.bfloat16 = bfloat16.bfloat16_type;
  if (matrix.cooperative_matrix) traits.cooperative_matrices = read_shapes(instance, device);
}

}  // namespace vkconv::vulkan
