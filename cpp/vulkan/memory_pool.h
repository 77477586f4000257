// Sub-allocates buffers from blocks of device memory. A block is one VkBuffer over one VkDeviceMemory, mapped for as
// long as it lives where the host can see it.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <mutex>

#include "vulkan/buffer.h"
#include "vulkan/raii.h"
#include "vulkan/traits.h"

namespace vkconv::vulkan {

// Where an address lies, for the commands that take buffers.
struct BufferRange {
  vk::Buffer buffer;
  std::uint64_t offset = 0;
};

class MemoryPool {
 public:
  MemoryPool(const vk::raii::PhysicalDevice& physical, const vk::raii::Device& device, const Traits& traits);

  // `self` is this pool, owning what keeps it alive. Throws OutOfMemory.
  Buffer allocate(std::shared_ptr<MemoryPool> self, std::size_t bytes, MemoryKind kind);
  void trim();  // gives every unused block back to the system
  MemoryInfo info() const;
  void reset_peak();
  // The most that arrays and workspaces may reserve; the heap's own limit holds as well.
  void set_budget(std::uint64_t bytes);
  BufferRange find(Pointer pointer) const;
  // Whether the host reads memory of this kind at the speed of its own.
  bool host_cached(MemoryKind kind) const { return type(kind).host_cached; }

 private:
  friend class Buffer;
  struct Type {
    std::uint32_t index = 0, heap = 0;
    bool host_visible = false, host_cached = false;
    std::uint64_t block_bytes = 0;
  };
  struct Block {
    MemoryKind kind;
    bool shared = false;  // holds many buffers; otherwise one
    std::uint64_t size_bytes = 0, used_bytes = 0, reserved_bytes = 0;
    std::uint64_t unused_since = 0;  // count of blocks that had become unused before
    vk::raii::DeviceMemory memory{nullptr};
    vk::raii::Buffer buffer{nullptr};
    Pointer address = 0;  // of the buffer's start; ranges begin at multiples of kBufferAlignmentBytes
    std::byte* mapped = nullptr;
    std::map<std::uint64_t, std::uint64_t> free;  // offset -> bytes
  };
  struct Range {
    Block* block = nullptr;
    std::uint64_t offset = 0;
  };

  const Type& type(MemoryKind kind) const { return types_[static_cast<int>(kind)]; }
  Range find_free(std::uint64_t bytes, MemoryKind kind, bool shared);
  Block& make_block(std::uint64_t bytes, MemoryKind kind, bool shared);
  std::unique_ptr<Block> create_block(std::uint64_t bytes, MemoryKind kind);
  void take(const Range& range, std::uint64_t bytes) noexcept;
  void give(void* block, std::uint64_t offset, std::uint64_t bytes) noexcept;
  void release_unused(std::uint64_t kept_bytes) noexcept;  // the longest unused first
  std::uint64_t& reserved_of(MemoryKind kind);
  std::uint64_t available_bytes(MemoryKind kind) const;

  const vk::raii::PhysicalDevice& physical_;
  const vk::raii::Device& device_;
  const Limits limits_;
  const bool asks_driver_;  // the driver says what other processes leave of a heap
  std::array<Type, 3> types_;
  std::array<std::uint64_t, VK_MAX_MEMORY_HEAPS> heap_bytes_{}, heap_reserved_{};

  mutable std::mutex mutex_;
  std::map<Pointer, std::unique_ptr<Block>> blocks_;  // by address
  std::uint64_t unused_bytes_ = 0;                    // in blocks without a buffer
  std::uint64_t unused_count_ = 0;                    // times that a block lost its last buffer
  MemoryInfo info_;
  std::uint64_t budget_bytes_ = ~std::uint64_t{0};
};

}  // namespace vkconv::vulkan
