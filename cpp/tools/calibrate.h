// The rates of this machine that the estimates of the CPU's algorithms are made of: `vkconv_bench --calibrate`.
// bench/calibrate.py writes them to cpp/cpu/rates.h.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "cpu/bf16_dot.h"
#include "cpu/bf16_parts.h"
#include "cpu/bf16_tiles.h"
#include "cpu/device.h"
#include "cpu/gemm_kernels.h"
#include "cpu/memory.h"
#include "cpu/processor.h"
#include "cpu/thread_pool.h"
#include "timing.h"

namespace vkconv::tools {

// Operations a second of one core in a tile of the largest size and one chain of additions, its operands in L1.
template <class T, class C>
double tile_rate(const cpu::GemmKernels<T, C>& kernels, std::int64_t terms = 64) {
  constexpr std::int64_t kRepeats = 400;
  const cpu::RegisterTile& shape = kernels.shape;
  const std::int64_t panels = shape.panels(), vectors = shape.vectors(), rows = shape.most_rows(panels * vectors);
  const std::int64_t panel = vectors * shape.lanes * terms, columns = panels * vectors * shape.lanes;
  std::vector<T> a(static_cast<std::size_t>(rows * terms)), b(static_cast<std::size_t>(panels * panel));
  std::vector<C> c(static_cast<std::size_t>(rows * columns));
  const cpu::GemmSlice<T> slice{a.data(), b.data()};
  cpu::GemmTile<T, C> tile{{&slice, 1, terms}, terms, c.data(), columns};
  tile.panels = panels;
  tile.panel_stride = panel;
  const double seconds = shortest_seconds([&] {
    for (std::int64_t i = 0; i < kRepeats; ++i) kernels.chain(tile, rows, static_cast<int>(vectors), false);
  });
  return 2.0 * static_cast<double>(rows * columns * terms * kRepeats) / seconds;
}

// Bytes a second when each of `threads` threads calls `pass` with two arrays of `bytes`, over and over.
template <class F>
double pass_rate(int threads, std::size_t bytes, F&& pass) {
  std::vector<cpu::Buffer> buffers;
  for (int i = 0; i < 2 * threads; ++i) std::memset(buffers.emplace_back(bytes).pointer(), 1, bytes);
  const auto repeats = static_cast<int>(std::max<std::size_t>(1, (std::size_t{8} << 20) / bytes));
  const double seconds = shortest_seconds([&] {
    cpu::thread_pool().run(threads, [&](std::int64_t thread) {
      const auto at = static_cast<std::size_t>(2 * thread);
      for (int i = 0; i < repeats; ++i) pass(buffers[at].pointer(), buffers[at + 1].pointer());
    });
  });
  return 2.0 * threads * static_cast<double>(bytes) * repeats / seconds;
}

// Bytes read and written by copies.
inline double copy_rate(int threads, std::size_t bytes) {
  return pass_rate(threads, bytes, [&](void* to, const void* from) { std::memcpy(to, from, bytes); });
}

// Bytes read by comparisons of arrays that are equal.
inline double read_rate(int threads, std::size_t bytes) {
  std::atomic<int> differences{0};
  return pass_rate(threads, bytes, [&](const void* a, const void* b) { differences += std::memcmp(a, b, bytes); });
}

// A parallel section in which every thread takes part, on average over sections that follow each other.
inline double launch_seconds(int threads) {
  constexpr int kSections = 1000;
  return shortest_seconds([&] {
           for (int i = 0; i < kSections; ++i) {
             std::atomic<int> arrived{0};
             cpu::thread_pool().run(threads, [&](std::int64_t) {
               for (++arrived; arrived < threads;) std::this_thread::yield();
             });
           }
         }) /
         kSections;
}

// One line a rate: its name and value, in flops, bytes and seconds.
inline void print_rates() {
  const cpu::Traits traits = cpu::host_traits();
  const cpu::Processor processor = cpu::processor();
  const int threads = cpu::num_threads();
  const auto print = [](const char* name, double value) { std::printf("%s %.6g\n", name, value); };
  std::printf("vendor %s\nfamily %d\navx10 %d\nthreads %d\n", processor.vendor.c_str(), processor.family,
              processor.avx10, threads);
  constexpr std::int64_t kTerms = 256;  // that make the rate of tiles
  constexpr int kParts = cpu::parts_of(DType::f32);
  const bool tiles = cpu::bf16_tiles_available();
  print("f32_flops_per_second", tile_rate(cpu::gemm_kernels<float>()));
  print("f64_flops_per_second", tile_rate(cpu::gemm_kernels<double>()));
  print("bf16_flops_per_second", cpu::bf16_dot_available() ? tile_rate(cpu::bf16_dot_kernels()) : 0);
  print("bf16_tile_flops_per_second", tiles ? tile_rate(cpu::bf16_tile_kernels(), kTerms) : 0);
  print("f32_parts_flops_per_second", tiles ? tile_rate(cpu::bf16_tile_kernels(kParts), kParts * kTerms) / kParts : 0);
  print("cache_bytes_per_second", copy_rate(1, traits.l2_bytes / 4));
  print("shared_cache_bytes_per_second", copy_rate(1, 3 * traits.l2_bytes));
  print("shared_cache_read_bytes_per_second", read_rate(threads, 3 * traits.l2_bytes) / threads);
  print("memory_bytes_per_second", copy_rate(1, 2 * traits.l3_bytes));
  print("memory_bytes_per_second_all_threads",
        copy_rate(threads, 2 * traits.l3_bytes / static_cast<unsigned>(threads)));
  print("memory_read_bytes_per_second", read_rate(threads, 2 * traits.l3_bytes / static_cast<unsigned>(threads)));
  print("launch_seconds", launch_seconds(threads));
}

}  // namespace vkconv::tools
