#include "vulkan/memory_pool.h"

#include <algorithm>
#include <bit>
#include <new>

#include "cpu/memory.h"
#include "vulkan/instance.h"

namespace vkconv::vulkan {
namespace {

using Property = vk::MemoryPropertyFlagBits;

constexpr std::uint64_t kArrayBlockBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kParamsBlockBytes = std::uint64_t{1} << 20;
// Blocks without a buffer are kept up to this, and a quarter of the heap.
constexpr std::uint64_t kKeptBytes = std::uint64_t{512} << 20;

constexpr vk::MemoryPropertyFlags kMappable = Property::eHostVisible | Property::eHostCoherent;

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kBufferAlignmentBytes - 1) / kBufferAlignmentBytes * kBufferAlignmentBytes;
}

// Sizes of blocks for one buffer are multiples of an eighth of their power of two, so that they repeat.
std::uint64_t rounded_block_bytes(std::uint64_t bytes) {
  const std::uint64_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

// The first preference that some type meets, on the largest heap; among equals the one without `avoided`.
std::uint32_t choose_type(const vk::PhysicalDeviceMemoryProperties& memory, vk::MemoryPropertyFlags avoided,
                          std::initializer_list<vk::MemoryPropertyFlags> preferences) {
  for (const vk::MemoryPropertyFlags wanted : preferences) {
    int best = -1;
    const auto score = [&](int i) {
      const auto flags = memory.memoryTypes[i].propertyFlags;
      return std::pair(!(flags & avoided), memory.memoryHeaps[memory.memoryTypes[i].heapIndex].size);
    };
    for (int i = 0; i < static_cast<int>(memory.memoryTypeCount); ++i) {
      const auto flags = memory.memoryTypes[i].propertyFlags;
      if ((flags & wanted) != wanted || (flags & (Property::eProtected | Property::eLazilyAllocated))) continue;
      if (best < 0 || score(i) > score(best)) best = i;
    }
    if (best >= 0) return static_cast<std::uint32_t>(best);
  }
  throw DeviceError("the Vulkan device has no memory of a needed type");
}

std::uint32_t choose_type(const vk::PhysicalDeviceMemoryProperties& memory, MemoryKind kind, bool unified) {
  const vk::MemoryPropertyFlags local = Property::eDeviceLocal, cached = Property::eHostCached;
  switch (kind) {
    case MemoryKind::device:
      if (unified) return choose_type(memory, {}, {local | kMappable | cached, local | kMappable});
      return choose_type(memory, Property::eHostVisible, {local});
    case MemoryKind::staging:
      return choose_type(memory, local, {kMappable | cached, kMappable});
    case MemoryKind::params:
      return choose_type(memory, {}, {local | kMappable, kMappable});
  }
  return 0;
}

}  // namespace

MemoryPool::MemoryPool(const vk::raii::PhysicalDevice& physical, const vk::raii::Device& device, const Traits& traits)
    : physical_(physical),
      device_(device),
      limits_(traits.limits),
      asks_driver_(traits.features.memory_budget && traits.type != DeviceType::software) {
  const auto memory = physical.getMemoryProperties();
  for (std::uint32_t i = 0; i < memory.memoryHeapCount; ++i) heap_bytes_[i] = memory.memoryHeaps[i].size;
  // A rasteriser reports a heap of any size; its memory is the host's.
  if (traits.type == DeviceType::software) heap_bytes_[0] = std::max(heap_bytes_[0], cpu::host_memory_bytes());
  for (const MemoryKind kind : {MemoryKind::device, MemoryKind::staging, MemoryKind::params}) {
    Type& t = types_[static_cast<int>(kind)];
    t.index = choose_type(memory, kind, traits.unified_memory);
    t.heap = memory.memoryTypes[t.index].heapIndex;
    const auto flags = memory.memoryTypes[t.index].propertyFlags;
    t.host_visible = (flags & kMappable) == kMappable;
    t.host_cached = t.host_visible && (flags & Property::eHostCached);
    const std::uint64_t wanted = kind == MemoryKind::params ? kParamsBlockBytes : kArrayBlockBytes;
    t.block_bytes = std::min({wanted, aligned(heap_bytes_[t.heap] / 16), aligned(limits_.allocation_bytes / 2)});
  }
  info_.budget_bytes = heap_bytes_[type(MemoryKind::device).heap];
}

Buffer MemoryPool::allocate(std::shared_ptr<MemoryPool> self, std::size_t bytes, MemoryKind kind) {
  require_not_forked();
  if (bytes > limits_.allocation_bytes - 2 * kBufferAlignmentBytes)
    throw OutOfMemory("an array of " + std::to_string(bytes) + " bytes exceeds the device's largest allocation, " +
                      std::to_string(limits_.allocation_bytes) + " bytes");
  const std::uint64_t size = aligned(std::max<std::size_t>(bytes, 1));
  const bool shared = size <= type(kind).block_bytes / 2;
  std::lock_guard lock(mutex_);
  Range range = find_free(size, kind, shared);
  if (!range.block) {
    range.block = &make_block(size, kind, shared);
    range.offset = range.block->free.begin()->first;
  }
  take(range, size);
  Buffer buffer;
  buffer.pool_ = std::move(self);
  buffer.block_ = range.block;
  buffer.offset_ = range.offset;
  buffer.pointer_ = range.block->address + range.offset;
  buffer.mapped_ = range.block->mapped ? range.block->mapped + range.offset : nullptr;
  buffer.size_bytes_ = size;
  return buffer;
}

// Best fit. A block for one buffer is not reused for a much smaller one.
MemoryPool::Range MemoryPool::find_free(std::uint64_t bytes, MemoryKind kind, bool shared) {
  Range best;
  std::uint64_t best_bytes = shared ? ~std::uint64_t{0} : bytes + bytes / 4 + 1;
  for (auto& [address, block] : blocks_) {
    if (block->kind != kind || block->shared != shared) continue;
    for (const auto& [offset, free_bytes] : block->free)
      if (free_bytes >= bytes && free_bytes < best_bytes) {
        best = {block.get(), offset};
        best_bytes = free_bytes;
      }
  }
  return best;
}

MemoryPool::Block& MemoryPool::make_block(std::uint64_t bytes, MemoryKind kind, bool shared) {
  const Type& t = type(kind);
  std::uint64_t size = shared ? t.block_bytes : rounded_block_bytes(bytes);
  if (size > limits_.allocation_bytes - kBufferAlignmentBytes) size = bytes;
  const auto fits = [&] { return size + kBufferAlignmentBytes <= available_bytes(kind); };
  if (!fits()) release_unused(0);
  if (!fits()) size = bytes;
  if (!fits())
    throw OutOfMemory("out of device memory: " + std::to_string(bytes) + " bytes wanted, " +
                      std::to_string(available_bytes(kind)) + " of " + std::to_string(heap_bytes_[t.heap]) + " left");
  std::unique_ptr<Block> block;
  try {
    block = create_block(size, kind);
  } catch (const OutOfMemory&) {
    release_unused(0);
    block = create_block(size, kind);
  }
  block->shared = shared;
  Block& made = *block;
  blocks_.emplace(made.address, std::move(block));
  heap_reserved_[t.heap] += made.reserved_bytes;
  reserved_of(kind) += made.reserved_bytes;
  unused_bytes_ += made.size_bytes;
  return made;
}

std::unique_ptr<MemoryPool::Block> MemoryPool::create_block(std::uint64_t bytes, MemoryKind kind) {
  using Usage = vk::BufferUsageFlagBits;
  return vulkan_call("allocate memory", [&] {
    auto block = std::make_unique<Block>();
    block->kind = kind;
    block->size_bytes = bytes;
    const auto array = Usage::eStorageBuffer | Usage::eTransferSrc | Usage::eTransferDst | Usage::eShaderDeviceAddress;
    const vk::BufferCreateInfo info({}, bytes + kBufferAlignmentBytes,
                                    kind == MemoryKind::params ? array | Usage::eUniformBuffer : array);
    block->buffer = vk::raii::Buffer(device_, info);
    const vk::MemoryRequirements needed = block->buffer.getMemoryRequirements();
    const vk::MemoryAllocateFlagsInfo flags(vk::MemoryAllocateFlagBits::eDeviceAddress);
    const auto memory = vk::MemoryAllocateInfo(needed.size, type(kind).index).setPNext(&flags);
    block->memory = vk::raii::DeviceMemory(device_, memory);
    block->reserved_bytes = needed.size;
    block->buffer.bindMemory(*block->memory, 0);
    block->address = device_.getBufferAddress({*block->buffer});
    if (type(kind).host_visible) block->mapped = static_cast<std::byte*>(block->memory.mapMemory(0, VK_WHOLE_SIZE));
    const std::uint64_t first = aligned(block->address) - block->address;
    block->free.emplace(first, bytes);
    return block;
  });
}

void MemoryPool::take(const Range& range, std::uint64_t bytes) noexcept {
  Block& block = *range.block;
  if (block.used_bytes == 0) unused_bytes_ -= block.size_bytes;
  auto range_node = block.free.extract(range.offset);
  range_node.key() += bytes;
  range_node.mapped() -= bytes;
  if (range_node.mapped() > 0) block.free.insert(std::move(range_node));
  block.used_bytes += bytes;
  if (block.kind != MemoryKind::device) return;
  info_.used_bytes += bytes;
  info_.peak_used_bytes = std::max(info_.peak_used_bytes, info_.used_bytes);
}

void MemoryPool::give(void* opaque, std::uint64_t offset, std::uint64_t bytes) noexcept {
  std::lock_guard lock(mutex_);
  Block& block = *static_cast<Block*>(opaque);
  block.used_bytes -= bytes;
  if (block.kind == MemoryKind::device) info_.used_bytes -= bytes;
  auto next = block.free.lower_bound(offset);
  if (next != block.free.end() && offset + bytes == next->first) {
    bytes += next->second;
    next = block.free.erase(next);
  }
  if (next != block.free.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      bytes = 0;
    }
  }
  try {
    if (bytes > 0) block.free.emplace_hint(next, offset, bytes);
  } catch (const std::bad_alloc&) {  // the range is lost until its block goes back to the system
  }
  if (block.used_bytes > 0) return;
  unused_bytes_ += block.size_bytes;
  block.unused_since = ++unused_count_;
  release_unused(std::min(kKeptBytes, heap_bytes_[type(block.kind).heap] / 4));
}

void MemoryPool::release_unused(std::uint64_t kept_bytes) noexcept {
  while (unused_bytes_ > kept_bytes) {
    auto oldest = blocks_.end();
    for (auto it = blocks_.begin(); it != blocks_.end(); ++it)
      if (it->second->used_bytes == 0 &&
          (oldest == blocks_.end() || it->second->unused_since < oldest->second->unused_since))
        oldest = it;
    if (oldest == blocks_.end()) return;
    const Block& block = *oldest->second;
    heap_reserved_[type(block.kind).heap] -= block.reserved_bytes;
    reserved_of(block.kind) -= block.reserved_bytes;
    unused_bytes_ -= block.size_bytes;
    blocks_.erase(oldest);
  }
}

std::uint64_t& MemoryPool::reserved_of(MemoryKind kind) {
  return kind == MemoryKind::device ? info_.reserved_bytes : info_.staging_bytes;
}

std::uint64_t MemoryPool::available_bytes(MemoryKind kind) const {
  const auto rest = [](std::uint64_t limit, std::uint64_t used) { return limit > used ? limit - used : 0; };
  const std::uint32_t heap = type(kind).heap;
  std::uint64_t available = rest(heap_bytes_[heap], heap_reserved_[heap]);
  if (kind == MemoryKind::device) available = std::min(available, rest(budget_bytes_, info_.reserved_bytes));
  if (!asks_driver_) return available;
  const auto budget =
      physical_.getMemoryProperties2<vk::PhysicalDeviceMemoryProperties2, vk::PhysicalDeviceMemoryBudgetPropertiesEXT>()
          .get<vk::PhysicalDeviceMemoryBudgetPropertiesEXT>();
  return std::min(available, rest(budget.heapBudget[heap], budget.heapUsage[heap]));
}

void MemoryPool::set_budget(std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  budget_bytes_ = bytes;
}

void MemoryPool::trim() {
  std::lock_guard lock(mutex_);
  release_unused(0);
}

MemoryInfo MemoryPool::info() const {
  std::lock_guard lock(mutex_);
  MemoryInfo info = info_;
  info.budget_bytes = std::min(info.budget_bytes, budget_bytes_);
  return info;
}

void MemoryPool::reset_peak() {
  std::lock_guard lock(mutex_);
  info_.peak_used_bytes = info_.used_bytes;
}

BufferRange MemoryPool::find(Pointer pointer) const {
  std::lock_guard lock(mutex_);
  if (const auto behind = blocks_.upper_bound(pointer); behind != blocks_.begin()) {
    const auto& [address, block] = *std::prev(behind);
    // An array may begin behind the buffer's address, which the driver need not align.
    if (pointer - address < block->size_bytes + kBufferAlignmentBytes) return {*block->buffer, pointer - address};
  }
  throw DeviceError("an address lies outside of device memory");
}

Buffer::~Buffer() {
  if (pool_ && !forked()) pool_->give(block_, offset_, size_bytes_);
}

}  // namespace vkconv::vulkan
