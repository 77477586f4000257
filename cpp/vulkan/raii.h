// The Vulkan headers as this library uses them: functions are loaded at run time, errors become vkconv's exceptions.
// Only cpp/vulkan/*.cpp includes this.
#pragma once
#ifndef VK_NO_PROTOTYPES
#define VK_NO_PROTOTYPES
#endif
#define VULKAN_HPP_DISPATCH_LOADER_DYNAMIC 1
#include <string>
#include <utility>  // for the headers of Vulkan 1.3.204, the oldest that compile

#include <vulkan/vulkan_raii.hpp>

#include "core/error.h"

namespace vkconv::vulkan {

// The device was lost: it has to be created again.
struct DeviceLost : DeviceError {
  using DeviceError::DeviceError;
};

// Runs f, which makes Vulkan calls to `what`, and translates their exceptions.
template <class F>
decltype(auto) vulkan_call(const char* what, F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (const vk::OutOfDeviceMemoryError&) {
    throw OutOfMemory(std::string("out of device memory: ") + what);
  } catch (const vk::OutOfHostMemoryError&) {
    throw OutOfMemory(std::string("out of host memory: ") + what);
  } catch (const vk::DeviceLostError&) {
    throw DeviceLost(std::string("the Vulkan device was lost: ") + what);
  } catch (const vk::SystemError& e) {
    throw DeviceError(std::string("Vulkan failed to ") + what + ": " + e.what());
  }
}

}  // namespace vkconv::vulkan
