// Host memory that runs out at a chosen moment, in this program's code and not in the libraries it loads: the linker
// puts the counted functions before operator new and posix_memalign.
#pragma once
#include <cstdint>

namespace vkconv::tools {

enum class Shortage { once, from_then_on };

// While it lives, the n-th allocation (from 0, of all threads) fails, or that and all behind it. One at a time.
class HostFaults {
 public:
  HostFaults(std::int64_t n, Shortage shortage);
  ~HostFaults();
  HostFaults(const HostFaults&) = delete;

  bool fired() const;
};

}  // namespace vkconv::tools
