#include "vulkan/instance.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>

#include "core/fork_mutex.h"

namespace vkconv::vulkan {
namespace {

constexpr const char* kValidationLayer = "VK_LAYER_KHRONOS_validation";
constexpr std::size_t kMaxMessages = 1000;

// VK_KHR_portability_enumeration, which headers before Vulkan 1.3.208 do not have.
constexpr const char* kPortabilityEnumeration = "VK_KHR_portability_enumeration";
constexpr auto kEnumeratePortability = vk::InstanceCreateFlags(1);

std::atomic<bool> forked_child{false};

// A layer older than the driver warns of the extensions and, by their numbers, of the structures in
// cooperative_matrix.h that it does not know, when a device is created with them. What it does know it still checks. A
// layer that instruments shaders warns of features that it adds for itself.
bool about_the_layer(std::string_view message) {
  constexpr std::string_view kTexts[] = {"is not supported by this layer", "(1000506000)", "(1000141000)",
                                         "Internal Warning: Forcing"};
  return std::any_of(std::begin(kTexts), std::end(kTexts),
                     [&](std::string_view text) { return message.find(text) != std::string_view::npos; });
}

struct Messages {
  ForkMutex mutex;
  std::vector<std::string> texts;
};
Messages& messages() {
  static Messages& m = *new Messages;
  return m;
}

VkBool32 collect(const char* message) {
  const std::string_view text = message ? message : "";
  if (about_the_layer(text)) return VK_FALSE;
  Messages& m = messages();
  std::lock_guard lock(m.mutex);
  if (m.texts.size() < kMaxMessages) m.texts.emplace_back(text);
  return VK_FALSE;
}

vk::DebugUtilsMessengerCreateInfoEXT messenger_info() {
  using Severity = vk::DebugUtilsMessageSeverityFlagBitsEXT;
  vk::DebugUtilsMessengerCreateInfoEXT info;
  info.messageSeverity = Severity::eWarning | Severity::eError;
  info.messageType = vk::DebugUtilsMessageTypeFlagBitsEXT::eValidation;
  // Its arguments have types of vk:: in the headers of Vulkan 1.4, and C's in older ones.
  info.pfnUserCallback = [](auto, auto, const auto* data, void*) { return collect(data->pMessage); };
  return info;
}

// VKCONV_VALIDATION: 1 checks calls and synchronization, gpu instruments the shaders instead.
std::string_view validation() {
  const char* text = std::getenv("VKCONV_VALIDATION");
  return text && std::strcmp(text, "0") != 0 ? text : "";
}

}  // namespace

bool forked() { return forked_child; }

void require_not_forked() {
  if (forked())
    throw DeviceError(
        "Vulkan was used before this process was forked and cannot be used in the child; start child processes with "
        "the 'spawn' or 'forkserver' method");
}

Instance& Instance::get() {
  static Instance& instance = *new Instance;
  require_not_forked();
  return instance;
}

Instance::Instance() {
  try {
    create();
    list_devices();
    if (devices_.empty()) list_.reason = "the Vulkan loader found no driver";
  } catch (const vk::IncompatibleDriverError&) {
    list_.reason = "the Vulkan loader found no driver";
  } catch (const vk::LayerNotPresentError&) {
    list_.reason = std::string("VKCONV_VALIDATION is set and ") + kValidationLayer + " is not installed";
  } catch (const std::exception& e) {
    list_.reason = instance_  ? std::string("the Vulkan devices cannot be read: ") + e.what()
                   : context_ ? std::string("no Vulkan instance: ") + e.what()
                              : std::string("the Vulkan loader (libvulkan.so.1) is not installed");
  }
  pthread_atfork(nullptr, nullptr, [] { forked_child = true; });
}

void Instance::create() {
  context_ = std::make_unique<vk::raii::Context>();
  const vk::ApplicationInfo application("vkconv", 1, "vkconv", 1, VK_API_VERSION_1_3);
  vk::InstanceCreateInfo info({}, &application);
  if (validation().empty()) {
    // MoltenVK is listed only to applications that say they know portability subsets.
    std::vector<const char*> extensions;
    for (const auto& e : context_->enumerateInstanceExtensionProperties())
      if (std::string_view(e.extensionName) == kPortabilityEnumeration) {
        extensions.push_back(kPortabilityEnumeration);
        info.flags |= kEnumeratePortability;
      }
    info.setPEnabledExtensionNames(extensions);
    instance_ = std::make_unique<vk::raii::Instance>(*context_, info);
    return;
  }
  std::vector<vk::ValidationFeatureEnableEXT> enabled{vk::ValidationFeatureEnableEXT::eSynchronizationValidation};
  if (validation() == "gpu")
    enabled = {vk::ValidationFeatureEnableEXT::eGpuAssisted,
               vk::ValidationFeatureEnableEXT::eGpuAssistedReserveBindingSlot};
  vk::ValidationFeaturesEXT features(enabled);
  vk::DebugUtilsMessengerCreateInfoEXT messenger = messenger_info();
  const std::array extensions{VK_EXT_DEBUG_UTILS_EXTENSION_NAME, VK_EXT_VALIDATION_FEATURES_EXTENSION_NAME};
  const std::array layers{kValidationLayer};
  features.pNext = &messenger;  // messages of the instance's own creation
  info.pNext = &features;
  info.setPEnabledLayerNames(layers);
  info.setPEnabledExtensionNames(extensions);
  instance_ = std::make_unique<vk::raii::Instance>(*context_, info);
  messenger_ = std::make_unique<vk::raii::DebugUtilsMessengerEXT>(*instance_, messenger);
}

void Instance::list_devices() {
  for (vk::raii::PhysicalDevice& device : instance_->enumeratePhysicalDevices()) {
    DeviceInfo info = describe(*instance_, device);
    devices_.push_back({std::move(device), std::move(info)});
  }
  std::stable_sort(devices_.begin(), devices_.end(), [](const PhysicalDevice& a, const PhysicalDevice& b) {
    const bool usable_a = a.info.unusable.empty(), usable_b = b.info.unusable.empty();
    if (usable_a != usable_b) return usable_a;
    return a.info.traits.type < b.info.traits.type;
  });
  for (const PhysicalDevice& device : devices_) list_.devices.push_back(device.info);
}

const DeviceList& enumerate_devices() {
  static const DeviceList& after_fork =
      *new DeviceList{{}, "Vulkan was used before this process was forked and cannot be used in the child"};
  return forked() ? after_fork : Instance::get().list();
}

std::vector<std::string> take_validation_messages() {
  Messages& m = messages();
  std::lock_guard lock(m.mutex);
  return std::exchange(m.texts, {});
}

}  // namespace vkconv::vulkan
