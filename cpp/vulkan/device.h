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

  // Whether it pays to pack the weights of a call before children run: these need not wait for each other then.
  static bool packs_first(const Traits&, std::size_t, bool) { return true; }

  // What a child takes more that sees every `input_step`-th pixel along W of its parent's input, and writes every
  // `output_step`-th of its output, as one of so many siblings: a part of the time that a GPU's memory takes for arrays
  // that its cache does not hold. Where pixels share sectors with those of siblings, these are read in vain, and read,
  // merged and written for every pixel.
  static double scattered_seconds(const Traits& t, const ConvProblem& child, std::int64_t input_step,
                                  std::int64_t output_step, std::size_t siblings) {
    constexpr std::size_t kSectorBytes = 32;
    constexpr double kCacheBytes = 40e6, kTimes = 0.7, kTimesRead = 1, kTimesWritten = 4;  // of an H200
    const std::size_t in = static_cast<std::size_t>(child.in_channels) * size_bytes(child.dtype);
    const std::size_t out = static_cast<std::size_t>(child.out_channels) * size_bytes(child.output_dtype);
    const double read = double(child.batch * child.input_pixels()) * double(in);
    const double written = double(child.batch * child.output_pixels()) * double(out);
    if (t.type == DeviceType::software || double(siblings) * (read + written) <= kCacheBytes) return 0;
    const auto times = [](std::int64_t step, std::size_t pixel, double where_shared) {
      return step == 1 ? 0 : pixel % kSectorBytes == 0 ? kTimes : kTimes + where_shared;
    };
    return (read * times(input_step, in, kTimesRead) + written * times(output_step, out, kTimesWritten)) /
           t.rates.memory_bytes_per_second;
  }
};

// The i-th device of enumerate_devices(), shared by the process: created by the first call, and again by the first
// call after it was lost. Streams and buffers of a lost device stay valid objects whose calls throw DeviceError.
std::shared_ptr<LogicalDevice> open_device(int index);

}  // namespace vkconv::vulkan
