// Arrays between the host and the device. Any strides on the host; contiguous, in the order of the axes, on the
// device. Packing runs in the thread pool and, where a copy engine is needed, beside the copies of other slices.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/strided_array.h"
#include "vulkan/stream.h"

namespace vkconv::vulkan {

using HostArray = StridedArray;

// Elements [begin, end) of the array in row-major order, to or from contiguous memory.
void pack(const HostArray& array, std::int64_t begin, std::int64_t end, std::byte* to);
void unpack(const HostArray& array, std::int64_t begin, std::int64_t end, const std::byte* from);

// Copies `array` into `to`, which holds at least array.bytes() and which nothing recorded before uses.
void upload(Stream& stream, const HostArray& array, const Buffer& to);
// The same into new memory, which the stream keeps.
Pointer upload_new(Stream& stream, const HostArray& array);
// Waits for the stream and copies `from` into `array`.
void download(Stream& stream, const Buffer& from, const HostArray& array);

// Waits for the stream and copies a view of `from`, its data an address, into `to`, packed and of equal extents.
void download_view(Stream& stream, const Buffer& from, const HostArray& view, const HostArray& to);

// The same through staging buffers, a few slices in flight: what upload and download do where the host cannot map
// device memory, or reads it slowly.
void upload_staged(Stream& stream, const HostArray& array, Pointer to);
void download_staged(Stream& stream, Pointer from, const HostArray& array);

}  // namespace vkconv::vulkan
