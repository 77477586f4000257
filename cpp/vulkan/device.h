// The Vulkan device as the core's templates see it. Includes no Vulkan header.
#pragma once
#include "core/problem.h"
#include "vulkan/buffer.h"
#include "vulkan/kernel.h"
#include "vulkan/stream.h"
#include "vulkan/traits.h"

namespace vkconv::vulkan {

struct Device {
  using Pointer = vulkan::Pointer;
  using Traits = vulkan::Traits;
  using Buffer = vulkan::Buffer;
  using Stream = vulkan::Stream;

  // What a child on a part of its parent's pixels takes more: nothing that was measured.
  static double scattered_seconds(const Traits&, const ConvProblem&, std::int64_t, std::int64_t, std::size_t) {
    return 0;
  }
};

// The i-th device of enumerate_devices(), shared by the process: created by the first call, and again by the first
// call after it was lost. Streams and buffers of a lost device stay valid objects whose calls throw DeviceError.
std::shared_ptr<LogicalDevice> open_device(int index);

}  // namespace vkconv::vulkan
