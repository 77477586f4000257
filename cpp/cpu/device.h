// The CPU as a device: work runs in the caller's thread and the pool's, at once, so a stream is only a name.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "cpu/memory.h"
#include "cpu/thread_pool.h"

namespace vkconv::cpu {

// Plain data, so that the planner is tested with a described machine. Rates are of the whole device.
struct Traits {
  std::string name = "cpu";
  std::string isa = "baseline";
  int threads = 1;  // processors, whatever number of threads the user asked for: the choice of algorithm, and with it
                    // the rounding, does not depend on that
  int vector_bytes = 16;
  bool bf16_dot = false;  // vdpbf16ps
  std::size_t l1_bytes = 32 << 10, l2_bytes = 512 << 10, l3_bytes = 8 << 20;
  double f32_flops_per_second = 50e9;
  double memory_bytes_per_second = 10e9;
  double cache_bytes_per_second = 50e9;  // out of L2
  double launch_seconds = 2e-6;          // a call that runs one parallel section
  std::int64_t max_operand_elements = std::numeric_limits<std::int64_t>::max();  // one execution can address
};

// Measured once a process: instruction set, caches, threads; the rates follow from the instruction set.
Traits host_traits();

struct Device {
  using Pointer = std::byte*;
  using Traits = cpu::Traits;
  using Buffer = cpu::Buffer;
  struct Stream {
    // Calls f(0) .. f(count - 1), which write disjoint memory. Many small jobs go one to a thread; a few large ones,
    // or jobs that share a workspace, one after another with every thread in each.
    template <class F>
    void for_each_independent(std::int64_t count, bool share_workspace, F&& f) {
      if (!share_workspace && count >= 8 * num_threads()) return thread_pool().run(count, f);
      for (std::int64_t i = 0; i < count; ++i) f(i);
    }
  };
};

}  // namespace vkconv::cpu
