#include "cpu/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <iterator>
#include <list>
#include <map>
#include <string>

#include "core/error.h"
#include "core/fork_mutex.h"

namespace vkconv::cpu {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

// AddressSanitizer is shown where every block ends, and when it is given back.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kPooled = false;
#else
constexpr bool kPooled = true;
#endif

// Block sizes are multiples of an eighth of their power of two: at most 12.5 % is wasted and sizes repeat.
std::size_t block_bytes(std::size_t bytes) {
  if (!kPooled) return std::max<std::size_t>(bytes, 1);
  const std::size_t wanted = std::max<std::size_t>(bytes, 256);
  const std::size_t step = std::max<std::size_t>(std::bit_floor(wanted) / 8, kAlignmentBytes);
  return (wanted + step - 1) / step * step;
}

class Pool {
 public:
  std::byte* take(std::size_t bytes) {
    {
      std::lock_guard lock(mutex_);
      if (std::byte* block = reuse(bytes)) return used(block, bytes);
    }
    std::byte* block = allocate(bytes);
    if (!block) {
      trim();
      block = allocate(bytes);
    }
    if (!block) throw OutOfMemory("out of host memory: " + std::to_string(bytes) + " bytes");
    std::lock_guard lock(mutex_);
    return used(block, bytes);
  }

  void give(std::byte* block, std::size_t bytes) noexcept {
    std::lock_guard lock(mutex_);
    info_.used_bytes -= bytes;
    if (!kPooled || bytes > kPoolLimitBytes) return std::free(block);
    while (info_.cached_bytes + bytes > kPoolLimitBytes) release_longest_unused();
    try {
      Blocks given{{block, bytes}};
      by_size_.emplace(bytes, given.begin());  // the last that may throw
      unused_.splice(unused_.end(), given);
      info_.cached_bytes += bytes;
    } catch (...) {  // no memory to remember the block with
      std::free(block);
    }
  }

  void trim() {
    std::lock_guard lock(mutex_);
    while (!unused_.empty()) release_longest_unused();
  }

  PoolInfo info() {
    std::lock_guard lock(mutex_);
    return info_;
  }

  void reset_peak() {
    std::lock_guard lock(mutex_);
    info_.peak_used_bytes = info_.used_bytes;
  }

 private:
  static std::byte* allocate(std::size_t bytes) {
    const bool huge = bytes >= 2 * kHugePageBytes;
    void* block = nullptr;
    if (posix_memalign(&block, huge ? kHugePageBytes : kAlignmentBytes, bytes) != 0) return nullptr;
    if (huge) madvise(block, bytes, MADV_HUGEPAGE);
    return static_cast<std::byte*>(block);
  }

  struct Block {
    std::byte* data;
    std::size_t bytes;
  };
  using Blocks = std::list<Block>;

  std::byte* used(std::byte* block, std::size_t bytes) {
    info_.used_bytes += bytes;
    info_.peak_used_bytes = std::max(info_.peak_used_bytes, info_.used_bytes);
    return block;
  }

  // The block of this size that was given last, which is the likeliest to be in a cache, or null.
  std::byte* reuse(std::size_t bytes) {
    const auto end = by_size_.upper_bound(bytes);
    if (end == by_size_.begin() || std::prev(end)->first != bytes) return nullptr;
    return remove(std::prev(end));
  }

  void release_longest_unused() { std::free(remove(by_size_.lower_bound(unused_.front().bytes))); }

  using BySize = std::multimap<std::size_t, Blocks::iterator>;

  std::byte* remove(BySize::iterator entry) {
    const Block block = *entry->second;
    unused_.erase(entry->second);
    by_size_.erase(entry);
    info_.cached_bytes -= block.bytes;
    return block.data;
  }

  ForkMutex mutex_;
  Blocks unused_;   // longest unused first
  BySize by_size_;  // those of a size in that order too
  PoolInfo info_;
};

// Never destroyed: NumPy arrays may outlive static destructors.
Pool& pool() {
  static Pool& instance = *new Pool;
  return instance;
}

}  // namespace

Buffer::Buffer(std::size_t bytes) : capacity_(block_bytes(bytes)) { data_ = pool().take(capacity_); }

Buffer::~Buffer() {
  if (data_) pool().give(data_, capacity_);
}

PoolInfo pool_info() { return pool().info(); }
void reset_pool_peak() { pool().reset_peak(); }
void trim_pool() { pool().trim(); }

std::uint64_t host_memory_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
  return pages > 0 && page_bytes > 0 ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page_bytes) : 0;
}

}  // namespace vkconv::cpu
