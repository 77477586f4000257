#include "bindings/vulkan_devices.h"

#include "core/error.h"

#if VKCONV_VULKAN
#include "vulkan/backend.h"
#include "vulkan/description.h"

namespace vkconv::bindings {
namespace {

using Properties = std::vector<std::pair<std::string, std::string>>;

std::string yes_no(bool b) { return b ? "yes" : "no"; }
std::string mib(std::uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

std::string version_text(std::uint32_t v) {
  return std::to_string(v >> 22 & 0x7f) + "." + std::to_string(v >> 12 & 0x3ff) + "." + std::to_string(v & 0xfff);
}

std::string subgroup_text(const vulkan::Limits& l) {
  const std::string size = std::to_string(l.subgroup_size);
  if (l.min_subgroup_size == l.max_subgroup_size) return size;
  return size + " (" + std::to_string(l.min_subgroup_size) + " to " + std::to_string(l.max_subgroup_size) + ")";
}

std::string matrices_text(const std::vector<vulkan::CooperativeMatrix>& matrices) {
  std::string text;
  for (const auto& m : matrices)
    text += (text.empty() ? "" : ", ") + std::to_string(m.m) + "x" + std::to_string(m.n) + "x" + std::to_string(m.k) +
            " " + std::string(to_string(m.operand)) + ">" + std::string(to_string(m.sum));
  return text.empty() ? "none" : text;
}

Properties properties(const vulkan::Traits& t) {
  const vulkan::Features& f = t.features;
  const vulkan::Limits& l = t.limits;
  return {{"api_version", version_text(t.api_version)},
          {"driver", t.driver},
          {"float16", yes_no(f.float16)},
          {"float64", yes_no(f.float64)},
          {"bfloat16", yes_no(f.bfloat16)},
          {"cooperative_matrices", matrices_text(t.cooperative_matrices)},
          {"subgroup_size", subgroup_text(l)},
          {"shared_memory", std::to_string(l.shared_memory_bytes >> 10) + " KiB"},
          {"workgroup_invocations", std::to_string(l.workgroup_invocations)},
          {"storage_buffer_range", mib(l.storage_buffer_range_bytes)},
          {"largest_allocation", mib(l.allocation_bytes)},
          {"memory", mib(l.memory_bytes)},
          {"unified_memory", yes_no(t.unified_memory)}};
}

}  // namespace

VulkanDevices vulkan_devices() {
  const vulkan::DeviceList& list = vulkan::enumerate_devices();
  VulkanDevices found;
  found.reason = list.reason;
  for (const vulkan::DeviceInfo& info : list.devices)
    found.entries.push_back({"vulkan:" + std::to_string(found.entries.size()), std::string(to_string(info.traits.type)),
                             info.traits.name, info.unusable, properties(info.traits)});
  return found;
}

std::shared_ptr<Backend> make_vulkan_backend(int index) { return vulkan::make_backend(index); }

DeviceMemory vulkan_memory(int index) {
  const vulkan::MemoryInfo info = vulkan::memory_info(index);
  return {info.used_bytes, info.peak_used_bytes, info.reserved_bytes - info.used_bytes, info.staging_bytes,
          info.budget_bytes};
}
void reset_vulkan_memory_peak(int index) { vulkan::reset_memory_peak(index); }
void trim_vulkan_memory(int index) { vulkan::trim_memory(index); }

std::string vulkan_description(int index) {
  return vulkan::to_json(vulkan::enumerate_devices().devices.at(static_cast<std::size_t>(index)).traits);
}
std::vector<std::pair<std::string, std::string>> vulkan_descriptions() {
  std::vector<std::pair<std::string, std::string>> all;
  for (const vulkan::Description& d : vulkan::descriptions()) all.emplace_back(d.name, d.json);
  return all;
}
OpenDevice described_device(const std::string& json) {
  const vulkan::Traits traits = vulkan::traits_from_json(json);
  return {traits.name, vulkan::make_planning_backend(traits)};
}
std::vector<std::string> take_validation_messages() { return vulkan::take_validation_messages(); }

}  // namespace vkconv::bindings

#else

namespace vkconv::bindings {

VulkanDevices vulkan_devices() { return {{}, "this build has no Vulkan device (VKCONV_VULKAN=OFF)"}; }
std::shared_ptr<Backend> make_vulkan_backend(int) { throw DeviceError(vulkan_devices().reason); }
DeviceMemory vulkan_memory(int) { throw DeviceError(vulkan_devices().reason); }
void reset_vulkan_memory_peak(int) { throw DeviceError(vulkan_devices().reason); }
void trim_vulkan_memory(int) { throw DeviceError(vulkan_devices().reason); }
std::string vulkan_description(int) { throw DeviceError(vulkan_devices().reason); }
std::vector<std::pair<std::string, std::string>> vulkan_descriptions() { return {}; }
OpenDevice described_device(const std::string&) { throw DeviceError(vulkan_devices().reason); }
std::vector<std::string> take_validation_messages() { return {}; }

}  // namespace vkconv::bindings

#endif
