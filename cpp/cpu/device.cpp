#include "cpu/device.h"

#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <string_view>

#include "core/checked.h"
#include "cpu/bf16_dot.h"
#include "cpu/bf16_tiles.h"
#include "cpu/gemm_kernels.h"
#include "cpu/half_vectors.h"
#include "cpu/processor.h"
#include "cpu/rates.h"
#include "cpu/streaming.h"
#include "cpu/thread_pool.h"
#include "hwy/targets.h"

namespace vkconv::cpu {
namespace {

// From the kernel's description of the first processor, as it counts what this (virtual) machine has; sysconf reports
// the whole host's L3. `index` is 0 for L1 data, 2 for L2, 3 for L3.
std::size_t cache_bytes(int index, int sysconf_name, std::size_t fallback) {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
  std::size_t kibibytes = 0;
  char unit = 0;
  if (file >> kibibytes >> unit && unit == 'K' && kibibytes > 0) return kibibytes << 10;
  const long bytes = sysconf(sysconf_name);
  return bytes > 0 ? static_cast<std::size_t>(bytes) : fallback;
}

// The row most like a processor: the instruction set counts first, then the length of its vectors, then the vendor, the
// dot product and AVX10, which its newer processors have, and the family.
const CoreRates& core_rates(const Processor& p, const Traits& t) {
  const std::string_view similar = t.vector_bytes >= 64 ? "AVX3" : t.vector_bytes >= 32 ? "AVX2" : "SSE4";
  const auto likeness = [&](const CoreRates& row) {
    const bool dot = row.bf16_flops_per_second > 0;
    return 32 * (row.isa == t.isa) + 16 * (row.isa == similar) + 8 * (row.vendor == p.vendor) +
           4 * (dot == t.bf16_dot) + 2 * (row.avx10 == p.avx10) + (row.family == p.family);
  };
  return *std::ranges::max_element(kCoreRates, {}, likeness);
}

const HostRates& host_rates(const Processor& p) {
  const auto likeness = [&](const HostRates& row) { return 2 * (row.vendor == p.vendor) + (row.family == p.family); };
  return *std::ranges::max_element(kHostRates, {}, likeness);
}

}  // namespace

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (const auto colon = line.find(": "); line.starts_with("model name") && colon != std::string::npos)
      return line.substr(colon + 2);
  return {};
}

Processor processor() {
  Processor p;
#if defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(0, &eax, &ebx, &ecx, &edx))
    for (const unsigned word : {ebx, edx, ecx}) p.vendor.append(reinterpret_cast<const char*>(&word), sizeof word);
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx)) {
    const int family = eax >> 8 & 0xf, extended = eax >> 20 & 0xff;
    p.family = family == 0xf ? family + extended : family;
  }
  constexpr unsigned kAvx10 = 1U << 19;
  p.avx10 = __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (edx & kAvx10);
#endif
  return p;
}

// Rates are measured with two threads at most. What each doubling beyond them makes of the rate of all: cores share
// clocks, L3 and memory, and those of a virtual machine may be halves of one. Measured with 2 to 16 threads of a
// virtual Emerald Rapids Xeon.
constexpr int kMeasuredThreads = 2;
constexpr double kFlopsGrowth = 1.62, kSharedCacheGrowth = 1.58, kMemoryGrowth = 1.27, kLaunchGrowth = 1.43;

void set_rates(Traits& t, const Processor& processor) {
  const int measured = std::min(t.threads, kMeasuredThreads);
  const double doublings = std::log2(static_cast<double>(t.threads) / measured);
  const auto grown = [&](double rate, double growth) { return rate * std::pow(growth, doublings); };
  const CoreRates& core = core_rates(processor, t);
  t.f32_flops_per_second = grown(measured * core.f32_flops_per_second, kFlopsGrowth);
  t.f64_flops_per_second = grown(measured * core.f64_flops_per_second, kFlopsGrowth);
  t.bf16_flops_per_second = grown(measured * core.bf16_flops_per_second, kFlopsGrowth);
  t.bf16_tile_flops_per_second = grown(measured * core.bf16_tile_flops_per_second, kFlopsGrowth);
  t.f32_parts_flops_per_second = grown(measured * core.f32_parts_flops_per_second, kFlopsGrowth);
  if (t.vector_bytes == 2 * kHalfVectorBytes) {
    Traits half = t;
    half.isa = "AVX2";
    half.vector_bytes = kHalfVectorBytes;
    t.half_vector_share = core_rates(processor, half).f32_flops_per_second / core.f32_flops_per_second;
  }
  const HostRates& host = host_rates(processor);
  t.cache_bytes_per_second = t.threads * host.cache_bytes_per_second;
  t.shared_cache_bytes_per_second = grown(measured * host.shared_cache_bytes_per_second, kSharedCacheGrowth);
  t.shared_cache_read_bytes_per_second = grown(measured * host.shared_cache_read_bytes_per_second, kSharedCacheGrowth);
  t.memory_bytes_per_second =
      grown(host.memory_bytes_per_second + (measured - 1) * host.more_memory_bytes_per_second, kMemoryGrowth);
  t.memory_read_bytes_per_second =
      grown(measured * host.memory_read_bytes_per_second / kMeasuredThreads, kMemoryGrowth);
  t.launch_seconds = grown(host.launch_seconds, kLaunchGrowth);
}

Traits host_traits() {
  Traits t;
  t.threads = usable_processors();
  const auto targets = hwy::SupportedTargets() & HWY_TARGETS;  // of which kernels are compiled
  t.isa = hwy::TargetName(targets & -targets);                 // the lowest set bit is the best target
  t.vector_bytes = static_cast<int>(register_tile(DType::f32).lanes * sizeof(float));
  t.bf16_dot = bf16_dot_available();
  t.bf16_tiles = bf16_tiles_available();
  t.l1_bytes = cache_bytes(0, _SC_LEVEL1_DCACHE_SIZE, t.l1_bytes);
  t.l2_bytes = cache_bytes(2, _SC_LEVEL2_CACHE_SIZE, t.l2_bytes);
  t.l3_bytes = cache_bytes(3, _SC_LEVEL3_CACHE_SIZE, t.l3_bytes);
  set_rates(t, processor());
  if (!has_half_vectors()) t.half_vector_share = 0;
  return t;
}

// Beginning a child, and pixels of few channels that are copied or stored one by one. Lines between which others'
// pixels lie are not fetched ahead of their use, the farther apart the fewer, and come again for every sibling, those
// of the output to be read and to be written, unless the threads' own caches hold all of them. Where a pixel ends
// within a line, which the next one's sibling shares, they come half as often again.
double Device::scattered_seconds(const Traits& t, const ConvProblem& child, std::int64_t input_step,
                                 std::int64_t output_step, std::size_t siblings) {
  constexpr double kChildSeconds = 5e-7, kPixelSeconds = 2e-9;
  const auto few = [&](std::int64_t pixels, std::int64_t channels, std::int64_t step, DType type) {
    const bool apart = step > 1 && channels * static_cast<std::int64_t>(size_bytes(type)) < kLineBytes;
    return apart ? static_cast<double>(child.batch * pixels) : 0;
  };
  const double copied = few(child.input_pixels(), child.in_channels, input_step, child.dtype) +
                        few(child.output_pixels(), child.out_channels, output_step, child.output_dtype);
  const double begun = kChildSeconds + copied * kPixelSeconds / t.threads;
  const auto line_bytes = [&](std::int64_t pixels, std::int64_t channels, DType type) {
    const std::int64_t pixel = channels * static_cast<std::int64_t>(size_bytes(type));
    const double times = pixel % kLineBytes != 0 ? 1.5 : 1;
    return static_cast<double>(child.batch * pixels) * times * static_cast<double>(round_up(pixel, kLineBytes));
  };
  const auto alone = [](std::int64_t step) { return 1 - 1 / static_cast<double>(step); };
  const double read = line_bytes(child.input_pixels(), child.in_channels, child.dtype);
  const double written = line_bytes(child.output_pixels(), child.out_channels, child.output_dtype);
  const double all = static_cast<double>(siblings) * (read + written);
  if (all <= own_cache_bytes(t)) return begun;
  const double rate =
      all <= static_cast<double>(t.l3_bytes) ? t.shared_cache_read_bytes_per_second : t.memory_bytes_per_second;
  return begun + (read * alone(input_step) + 2 * written * alone(output_step)) / rate;
}

Traits one_thread(Traits t) {
  for (double* rate :
       {&t.f32_flops_per_second, &t.f64_flops_per_second, &t.bf16_flops_per_second, &t.bf16_tile_flops_per_second,
        &t.f32_parts_flops_per_second, &t.memory_bytes_per_second, &t.memory_read_bytes_per_second,
        &t.cache_bytes_per_second, &t.shared_cache_bytes_per_second, &t.shared_cache_read_bytes_per_second})
    *rate /= t.threads;
  t.threads = 1;
  return t;
}

}  // namespace vkconv::cpu
