// The CPU as a device: work runs in the caller's thread and the pool's, at once, so a stream is only a name.
#pragma once
#include <cstddef>
#include <string>

#include "cpu/memory.h"

namespace vkconv::cpu {

// Plain data, so that the planner is tested with a described machine. Rates are of the whole device.
struct Traits {
  std::string name = "cpu";
  std::string isa = "baseline";
  int threads = 1;
  int vector_bytes = 16;
  bool bf16_dot = false;  // vdpbf16ps
  std::size_t l1_bytes = 32 << 10, l2_bytes = 512 << 10, l3_bytes = 8 << 20;
  double f32_flops_per_second = 50e9;
  double memory_bytes_per_second = 10e9;
  double cache_bytes_per_second = 50e9;  // out of L2
  double launch_seconds = 2e-6;          // a call that runs one parallel section
};

// Measured once a process: instruction set, caches, threads; the rates follow from the instruction set.
Traits host_traits();

struct Device {
  using Pointer = std::byte*;
  using Traits = cpu::Traits;
  using Buffer = cpu::Buffer;
  struct Stream {
    Buffer allocate(std::size_t bytes) { return Buffer(bytes); }
  };
};

}  // namespace vkconv::cpu
