// Device memory, sub-allocated from a pool of larger blocks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace vkconv::vulkan {

class MemoryPool;

using Pointer = std::uint64_t;  // buffer device address

inline constexpr std::size_t kBufferAlignmentBytes = 256;

enum class MemoryKind : std::uint8_t {
  device,   // arrays and workspaces; mapped where the device has unified memory
  staging,  // host memory for transfers, cached by the host where possible
  params    // written by the host, read by kernels
};

struct MemoryInfo {
  std::uint64_t used_bytes = 0, peak_used_bytes = 0;  // in buffers of arrays and workspaces
  std::uint64_t reserved_bytes = 0;                   // in blocks for them, used or not
  std::uint64_t staging_bytes = 0;                    // in blocks for transfers and parameters
  std::uint64_t budget_bytes = 0;                     // what this process may use of the heap arrays live in
};

// Owns one range of the pool and keeps the pool alive. The content is undefined. Freed memory may be handed out again
// at once, so a buffer outlives the work that uses it: Stream::keep holds it until then.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }
  ~Buffer();

  Pointer pointer() const { return pointer_; }
  std::byte* mapped() const { return mapped_; }  // null where the host does not see this memory
  std::size_t size_bytes() const { return size_bytes_; }

 private:
  friend class MemoryPool;
  void swap(Buffer& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(block_, other.block_);
    std::swap(pointer_, other.pointer_);
    std::swap(mapped_, other.mapped_);
    std::swap(offset_, other.offset_);
    std::swap(size_bytes_, other.size_bytes_);
  }

  std::shared_ptr<MemoryPool> pool_;
  void* block_ = nullptr;
  Pointer pointer_ = 0;
  std::byte* mapped_ = nullptr;
  std::uint64_t offset_ = 0;
  std::size_t size_bytes_ = 0;
};

}  // namespace vkconv::vulkan
