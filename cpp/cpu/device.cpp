#include "cpu/device.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>

#include "cpu/bf16_dot.h"
#include "cpu/processor.h"
#include "cpu/rates.h"
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

// The row most like a processor: the instruction set counts first, then the length of its vectors, then the vendor.
const CoreRates& core_rates(std::string_view vendor, std::string_view isa, int vector_bytes) {
  const std::string_view similar = vector_bytes >= 64 ? "AVX3" : vector_bytes >= 32 ? "AVX2" : "SSE4";
  const auto likeness = [&](const CoreRates& row) {
    return 4 * (row.isa == isa) + 2 * (row.isa == similar) + (row.vendor == vendor);
  };
  return *std::ranges::max_element(kCoreRates, {}, likeness);
}

}  // namespace

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (const auto colon = line.find(": "); line.starts_with("model name") && colon != std::string::npos)
      return line.substr(colon + 2);
  return {};
}

std::string_view processor_vendor() {
#if defined(__x86_64__)
  if (__builtin_cpu_is("amd")) return "AuthenticAMD";
  if (__builtin_cpu_is("intel")) return "GenuineIntel";
#endif
  return "";
}

void set_rates(Traits& t, std::string_view vendor) {
  const CoreRates& core = core_rates(vendor, t.isa, t.vector_bytes);
  t.f32_flops_per_second = t.threads * core.f32_flops_per_second;
  t.f64_flops_per_second = t.threads * core.f64_flops_per_second;
  t.bf16_flops_per_second = t.threads * core.bf16_flops_per_second;
  const auto is_vendor = [&](const HostRates& row) { return row.vendor == vendor; };
  const HostRates& host = *std::ranges::max_element(kHostRates, {}, is_vendor);
  t.cache_bytes_per_second = t.threads * host.cache_bytes_per_second;
  t.shared_cache_bytes_per_second = t.threads * host.shared_cache_bytes_per_second;
  t.shared_cache_read_bytes_per_second = t.threads * host.shared_cache_read_bytes_per_second;
  t.memory_bytes_per_second = host.memory_bytes_per_second + (t.threads - 1) * host.more_memory_bytes_per_second;
  t.launch_seconds = host.launch_seconds;
}

Traits host_traits() {
  Traits t;
  t.threads = usable_processors();
  const auto targets = hwy::SupportedTargets();
  t.isa = hwy::TargetName(targets & -targets);  // the lowest set bit is the best target
  t.vector_bytes = t.isa.starts_with("AVX3") ? 64 : t.isa == "AVX2" ? 32 : 16;
  t.bf16_dot = bf16_dot_available();
  t.l1_bytes = cache_bytes(0, _SC_LEVEL1_DCACHE_SIZE, t.l1_bytes);
  t.l2_bytes = cache_bytes(2, _SC_LEVEL2_CACHE_SIZE, t.l2_bytes);
  t.l3_bytes = cache_bytes(3, _SC_LEVEL3_CACHE_SIZE, t.l3_bytes);
  set_rates(t, processor_vendor());
  return t;
}

Traits one_thread(Traits t) {
  for (double* rate :
       {&t.f32_flops_per_second, &t.f64_flops_per_second, &t.bf16_flops_per_second, &t.memory_bytes_per_second,
        &t.cache_bytes_per_second, &t.shared_cache_bytes_per_second, &t.shared_cache_read_bytes_per_second})
    *rate /= t.threads;
  t.threads = 1;
  return t;
}

}  // namespace vkconv::cpu
