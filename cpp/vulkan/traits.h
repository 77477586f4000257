// A Vulkan device as plain data, so that the planner is tested with described devices and no hardware.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"

namespace vkconv::vulkan {

// In the order devices are offered.
enum class DeviceType : std::uint8_t { discrete, integrated, virtual_gpu, software, other };

constexpr std::string_view to_string(DeviceType t) {
  switch (t) {
    case DeviceType::discrete:
      return "discrete";
    case DeviceType::integrated:
      return "integrated";
    case DeviceType::virtual_gpu:
      return "virtual";
    case DeviceType::software:
      return "software";
    case DeviceType::other:
      return "other";
  }
  return "?";
}

// C (m x n, `sum`) += A (m x k, `operand`) * B (k x n, `operand`), one subgroup wide.
struct CooperativeMatrix {
  std::uint32_t m = 0, n = 0, k = 0;
  DType operand = DType::f16, sum = DType::f32;
  bool operator==(const CooperativeMatrix&) const = default;
};

struct Features {
  bool float16 = false;  // arithmetic; 16-bit storage is required of every device
  bool float64 = false;
  bool int16 = false;     // arithmetic
  bool bfloat16 = false;  // the type of VK_KHR_shader_bfloat16; without it bf16 is converted by bit shifts
  bool subgroup_size_control = false;
  bool full_subgroups = false;
  bool subgroup_arithmetic = false;  // reductions and scans
  bool subgroup_shuffle = false;
  bool memory_model = false;  // VulkanMemoryModel, which cooperative matrices need
  bool external_memory_host = false;
  bool memory_budget = false;
  bool operator==(const Features&) const = default;
};

struct Limits {
  std::size_t shared_memory_bytes = 16 << 10;
  std::uint32_t workgroup_invocations = 128;
  std::array<std::uint32_t, 3> workgroup_size{128, 128, 64};
  std::array<std::uint32_t, 3> workgroup_count{65535, 65535, 65535};
  std::uint32_t subgroup_size = 32, min_subgroup_size = 32, max_subgroup_size = 32;
  std::uint64_t storage_buffer_range_bytes = std::uint64_t{128} << 20;  // does not bind device addresses
  std::uint64_t allocation_bytes = std::uint64_t{1} << 30;              // the largest single allocation
  std::uint64_t memory_bytes = std::uint64_t{4} << 30;                  // of the heap arrays live in
  std::uint64_t host_import_alignment_bytes = 4096;
  bool operator==(const Limits&) const = default;
};

// Estimated from the device type until measured.
struct Rates {
  double f32_flops_per_second = 1e12, f16_flops_per_second = 1e12, f64_flops_per_second = 1e11;
  double memory_bytes_per_second = 50e9;
  double launch_seconds = 4e-6;  // a dispatch that waits for the one before it
  bool operator==(const Rates&) const = default;
};

struct Traits {
  std::string name = "described device";
  std::string driver;
  DeviceType type = DeviceType::other;
  std::uint32_t vendor_id = 0, device_id = 0, api_version = 0;
  // Device memory that the host maps: arrays are packed straight into it.
  bool unified_memory = false;
  double timestamp_seconds = 0;                                                  // of one tick; 0 without timestamps
  std::int64_t max_operand_elements = std::numeric_limits<std::int64_t>::max();  // one execution can address
  Features features;
  Limits limits;
  Rates rates;
  std::vector<CooperativeMatrix> cooperative_matrices;
};

Rates estimated_rates(DeviceType type);

// Whether kernels for `t` run: bf16 and f16 operands need only storage, f64 needs arithmetic.
inline bool supports_dtype(const Traits& traits, DType t) { return t != DType::f64 || traits.features.float64; }

// llvmpipe ends the loops of an invocation, without a word, after 65,535 iterations in all. Reductions that would get
// there are refused on a software device.
inline constexpr std::int64_t kSoftwareLoopIterations = 65'000;

}  // namespace vkconv::vulkan
