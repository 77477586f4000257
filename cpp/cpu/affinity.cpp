#include "cpu/affinity.h"

#include <sched.h>

#include <cstddef>

namespace vkconv::cpu {

void leave_processor(int processor) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (processor < 0 || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  cpu_set_t others = allowed;
  CPU_CLR(static_cast<std::size_t>(processor), &others);
  if (CPU_COUNT(&others) == 0) return;
  sched_setaffinity(0, sizeof others, &others);
  sched_setaffinity(0, sizeof allowed, &allowed);
}

}  // namespace vkconv::cpu
