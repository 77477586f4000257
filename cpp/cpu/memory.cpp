#include "cpu/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

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
      auto& list = free_[bytes];
      std::byte* block = nullptr;
      if (!list.empty()) {
        block = list.back();
        list.pop_back();
        info_.cached_bytes -= bytes;
      }
      info_.used_bytes += bytes;
      info_.peak_used_bytes = std::max(info_.peak_used_bytes, info_.used_bytes);
      if (block) return block;
    }
    if (std::byte* block = allocate(bytes)) return block;
    trim();
    if (std::byte* block = allocate(bytes)) return block;
    std::lock_guard lock(mutex_);
    info_.used_bytes -= bytes;
    throw OutOfMemory("out of host memory: " + std::to_string(bytes) + " bytes");
  }

  void give(std::byte* block, std::size_t bytes) noexcept {
    std::lock_guard lock(mutex_);
    info_.used_bytes -= bytes;
    if (kPooled && info_.cached_bytes + bytes <= kPoolLimitBytes) {
      try {
        free_[bytes].push_back(block);
        info_.cached_bytes += bytes;
        return;
      } catch (...) {  // no memory to remember the block with
      }
    }
    std::free(block);
  }

  void trim() {
    std::lock_guard lock(mutex_);
    for (auto& [bytes, list] : free_)
      for (std::byte* block : list) std::free(block);
    free_.clear();
    info_.cached_bytes = 0;
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

  ForkMutex mutex_;
  std::map<std::size_t, std::vector<std::byte*>> free_;
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
