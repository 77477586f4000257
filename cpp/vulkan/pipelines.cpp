#include "vulkan/pipelines.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "vulkan/shaders.h"

namespace vkconv::vulkan {
namespace {

// About 3 MB each on a software device; a driver of a GPU keeps kilobytes.
constexpr std::size_t kSoftwareCapacity = 256, kCapacity = 4096;

constexpr auto kSaveInterval = std::chrono::seconds(1);

constexpr std::uint32_t kPacksNearestId = 100;  // of kPacksNearest in glsl/types.glsl

// Devices with matrices of halves round to the nearest, ties to even.
bool packs_nearest(const Traits& traits) {
  return std::ranges::any_of(traits.cooperative_matrices, [](const auto& m) { return m.operand == DType::f16; });
}

// A driver update or another device makes compiled pipelines useless.
std::string cache_identity(const vk::raii::PhysicalDevice& physical) {
  const auto p = physical.getProperties();
  std::string s = std::string(p.deviceName.data()) + " " + std::to_string(p.vendorID) + ":" +
                  std::to_string(p.deviceID) + " driver " + std::to_string(p.driverVersion) + " ";
  constexpr char digits[] = "0123456789abcdef";
  for (const std::uint8_t byte : p.pipelineCacheUUID) (s += digits[byte >> 4]) += digits[byte & 15];
  return s;
}

}  // namespace

Pipelines::Pipelines(const vk::raii::PhysicalDevice& physical, const vk::raii::Device& device,
                     vk::PipelineLayout layout, const Traits& traits)
    : device_(device),
      layout_(layout),
      full_subgroups_(traits.features.full_subgroups),
      packs_nearest_(packs_nearest(traits)),
      entries_(traits.type == DeviceType::software ? kSoftwareCapacity : kCapacity),
      file_(PipelineCacheFile::default_directory(), cache_identity(physical)) {
  const std::vector<std::byte> stored = file_.load();
  file_bytes_ = stored.size();
  cache_ = vk::raii::PipelineCache(device_, vk::PipelineCacheCreateInfo({}, stored.size(), stored.data()));
}

PipelinePtr Pipelines::get(const Kernel& kernel) {
  const std::shared_ptr<Entry> entry = find(kernel);
  std::lock_guard lock(entry->mutex);  // others compile beside it
  if (!entry->pipeline) {
    entry->pipeline = std::make_shared<const vk::raii::Pipeline>(create(kernel));
    stale_ = true;
  }
  return entry->pipeline;
}

std::shared_ptr<Pipelines::Entry> Pipelines::find(const Kernel& kernel) {
  if (const auto found = entries_.find(kernel)) return *found;
  const auto made = std::make_shared<Entry>();
  entries_.insert(kernel, made);
  return entries_.find(kernel).value_or(made);  // what another thread has inserted first
}

vk::raii::Pipeline Pipelines::create(const Kernel& kernel) const {
  const std::span<const std::uint32_t> words = spirv(kernel.shader);
  std::vector<std::uint32_t> values = kernel.constants;
  std::vector<vk::SpecializationMapEntry> entries;
  for (std::uint32_t i = 0; i < values.size(); ++i) entries.push_back({i, i * 4, 4});
  entries.push_back({kPacksNearestId, static_cast<std::uint32_t>(values.size()) * 4, 4});
  values.push_back(packs_nearest_);
  const vk::SpecializationInfo constants(static_cast<std::uint32_t>(entries.size()), entries.data(), values.size() * 4,
                                         values.data());
  const vk::raii::ShaderModule module(device_, vk::ShaderModuleCreateInfo({}, words.size_bytes(), words.data()));
  const vk::PipelineShaderStageRequiredSubgroupSizeCreateInfo size(kernel.subgroup_size);
  vk::PipelineShaderStageCreateInfo stage({}, vk::ShaderStageFlagBits::eCompute, *module, "main", &constants);
  if (kernel.subgroup_size != 0) {
    stage.pNext = &size;
    if (full_subgroups_) stage.flags = vk::PipelineShaderStageCreateFlagBits::eRequireFullSubgroups;
  }
  return {device_, cache_, vk::ComputePipelineCreateInfo(vk::PipelineCreateFlagBits::eDispatchBase, stage, layout_)};
}

// Pipelines come in bursts, so the first is saved at once and the others with those of the next kSaveInterval.
void Pipelines::save_if_due() {
  if (!stale_) return;
  {
    std::lock_guard lock(save_mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (now - saved_ < kSaveInterval) return;
    saved_ = now;
  }
  save();
}

void Pipelines::save() noexcept {
  if (!stale_.exchange(false)) return;
  try {
    const std::vector<std::uint8_t> data = cache_.getData();
    if (file_bytes_.exchange(data.size()) == data.size()) return;  // every pipeline was in the cache
    file_.save(std::as_bytes(std::span(data)));
  } catch (const std::exception&) {  // lost, or out of memory: nothing is saved
  }
}

}  // namespace vkconv::vulkan
