// The devices of this process by name, and which one a call uses. Nothing is opened before it is needed.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/backend.h"
#include "core/fork_mutex.h"

namespace vkconv::bindings {

struct DeviceEntry {
  std::string name;                                             // cpu, vulkan:0
  std::string kind;                                             // cpu, discrete, integrated, virtual, software
  std::string description;                                      // as the driver or the kernel names it
  std::string unusable;                                         // why it cannot be used; empty when it can
  std::vector<std::pair<std::string, std::string>> properties;  // features and limits, for people
};

// A device in use. The backend outlives the table's entry while a call or a prepared object holds it.
struct OpenDevice {
  std::string name;
  std::shared_ptr<Backend> backend;
};

class DeviceTable {
 public:
  static DeviceTable& instance();

  // All devices: "cpu" first, then every Vulkan device. The first call opens the Vulkan loader.
  std::vector<DeviceEntry> entries();
  const std::string& no_vulkan_reason();  // empty when there is a Vulkan device

  // The device called `name` ("vulkan" is the best Vulkan device), or, when it is empty, the one that a call in this
  // thread uses. Opened on first use. Throws ProblemError for a name that is no device's form and DeviceError for a
  // device that this machine lacks.
  OpenDevice open(std::string_view name);
  std::vector<OpenDevice> opened();

  // The index of a Vulkan device's name, and -1 for the CPU. Throws as open() does, and opens nothing.
  int index_of(std::string_view name);

  // VKCONV_DEVICE or set_default(); without either a discrete or integrated GPU if there is one, else the CPU.
  std::string default_name();
  void set_default(std::string_view name);
  // Devices of `with device(name):` around the caller, in its thread or its task of asyncio, innermost last.
  void push(std::string_view name);
  void pop();

  void set_cache_capacity(std::size_t capacity);

  // What measurements on a device depend on, as text: hardware, driver, threads. Opens nothing for the CPU.
  std::string identity(std::string_view name);
  // Adds to the preferences of a device, now or when it is opened.
  void prefer(std::string_view name, const Preferences& preferences);
  void clear_preferences();

 private:
  // `source` is the argument or the variable that a message names.
  std::string resolve(std::string_view name, const char* source = "device");
  const std::vector<DeviceEntry>& vulkan();  // best first, unusable ones last
  std::shared_ptr<Backend> find(const std::string& name);

  ForkMutex opening_{ForkMutex::Level::outer};  // one device is opened at a time
  ForkMutex mutex_{ForkMutex::Level::outer};    // of the next four; never held while a device is opened
  std::vector<OpenDevice> opened_;
  std::string default_;
  std::size_t cache_capacity_ = kDefaultPlanCacheCapacity;
  std::map<std::string, Preferences> preferences_;

  std::once_flag enumerated_;
  std::vector<DeviceEntry> vulkan_;
  std::string no_vulkan_reason_;
};

}  // namespace vkconv::bindings
