// The CPU as a device: work runs in the caller's thread and the pool's, at once, so a stream is only a name.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "core/dtype.h"
#include "core/problem.h"
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
  bool bf16_dot = false;    // vdpbf16ps
  bool bf16_tiles = false;  // tdpbf16ps
  std::size_t l1_bytes = 32 << 10, l2_bytes = 512 << 10, l3_bytes = 8 << 20;
  double f32_flops_per_second = 50e9, f64_flops_per_second = 25e9;
  double bf16_flops_per_second = 100e9, bf16_tile_flops_per_second = 1e12;  // of the dot product, of tiles
  double f32_parts_flops_per_second = 150e9;                                // of float32 as parts in tiles
  double half_vector_share = 0;  // of the rates of f32 and f64, for kernels with half of the vector; 0: there are none
  double memory_bytes_per_second = 10e9, memory_read_bytes_per_second = 10e9;
  double cache_bytes_per_second = 50e9, shared_cache_bytes_per_second = 25e9;    // L2, L3
  double shared_cache_read_bytes_per_second = 10e9;                              // by all threads
  double launch_seconds = 1e-6;                                                  // of one parallel section
  std::int64_t max_operand_elements = std::numeric_limits<std::int64_t>::max();  // one execution can address
};

// Instruction set, caches and threads of this process. The rates follow from them and the processor's vendor and family
// (rates.h), so that a problem has the same plan whatever else the machine does.
Traits host_traits();

// The same machine with one of its threads.
Traits one_thread(Traits traits);

inline double flops_per_second(const Traits& t, DType accumulator) {
  return accumulator == DType::f64 ? t.f64_flops_per_second : t.f32_flops_per_second;
}

// Of a vector in the accumulator type of an operand's.
inline std::int64_t lanes_of(const Traits& t, DType operand) {
  return t.vector_bytes / static_cast<std::int64_t>(size_bytes(accumulator(operand)));
}

struct Device {
  using Pointer = std::byte*;
  using Traits = cpu::Traits;
  using Buffer = cpu::Buffer;

  // What a child takes more that sees every `input_step`-th pixel along W of its parent's input, and writes every
  // `output_step`-th of its output, as one of so many siblings.
  static double scattered_seconds(const Traits& t, const ConvProblem& child, std::int64_t input_step,
                                  std::int64_t output_step, std::size_t siblings);

  // Whether it pays to pack the weights of a call before children run: where several read the same ones, unless these
  // are too many to stay in caches. Children transform others where they use them.
  static bool packs_first(const Traits& t, std::size_t packed_bytes, bool shared) {
    return shared && packed_bytes <= 2 * static_cast<std::size_t>(t.threads) * t.l2_bytes;
  }

  struct Stream {
    // Calls f(0) .. f(count - 1), which write disjoint memory. Many small jobs go one to a thread; a few large ones,
    // or jobs that share a workspace, one after another with every thread in each.
    template <class F>
    void for_each_independent(std::int64_t count, bool share_workspace, F&& f) {
      if (!share_workspace && count >= 8 * thread_pool().size()) return thread_pool().run(count, f);
      for (std::int64_t i = 0; i < count; ++i) f(i);
    }
    static Buffer allocate(std::size_t bytes) { return Buffer(bytes); }
  };
};

}  // namespace vkconv::cpu
