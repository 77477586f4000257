#include "host_faults.h"

#include <atomic>
#include <cerrno>
#include <new>

namespace vkconv::tools {
namespace {

constexpr std::int64_t kNever = -1;

std::atomic<std::int64_t> failing{kNever}, allocations{0};
std::atomic<Shortage> shortage_now{Shortage::once};

bool fails() {
  if (failing == kNever) return false;
  const std::int64_t n = allocations++;
  return shortage_now == Shortage::once ? n == failing : n >= failing;
}

}  // namespace

HostFaults::HostFaults(std::int64_t n, Shortage shortage) {
  allocations = 0;
  shortage_now = shortage;
  failing = n;
}
HostFaults::~HostFaults() { failing = kNever; }
bool HostFaults::fired() const { return allocations > failing; }

}  // namespace vkconv::tools

// The names that ld --wrap gives.
extern "C" {
void* __real__Znwm(std::size_t bytes);
void* __wrap__Znwm(std::size_t bytes) {
  if (vkconv::tools::fails()) throw std::bad_alloc();
  return __real__Znwm(bytes);
}

void* __real__ZnwmSt11align_val_t(std::size_t bytes, std::align_val_t alignment);
void* __wrap__ZnwmSt11align_val_t(std::size_t bytes, std::align_val_t alignment) {
  if (vkconv::tools::fails()) throw std::bad_alloc();
  return __real__ZnwmSt11align_val_t(bytes, alignment);
}

int __real_posix_memalign(void** block, std::size_t alignment, std::size_t bytes);
int __wrap_posix_memalign(void** block, std::size_t alignment, std::size_t bytes) {
  return vkconv::tools::fails() ? ENOMEM : __real_posix_memalign(block, alignment, bytes);
}
}
