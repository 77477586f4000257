#include "vulkan/matrix_layout.h"

#include <algorithm>
#include <cstring>

#include "core/interruption.h"
#include "vulkan/kernel_params.h"
#include "vulkan/logical_device.h"
#include "vulkan/matrix_unit.h"

namespace vkconv::vulkan {
namespace {

struct Params {
  Pointer source, target;
};

Kernel layout_kernel(const CooperativeMatrix& s, std::uint32_t lanes, std::uint32_t octets, bool assembles) {
  return {shader_name("matrix_layout", s.operand),
          {0, 0, 0, 0, 0, s.m, s.n, s.k, lanes, octets, std::uint32_t{assembles}},
          lanes};
}

// Takes a matrix of distinct small numbers apart, puts it together again and compares.
std::uint32_t probe(std::shared_ptr<LogicalDevice> device, const CooperativeMatrix& s) {
  const Traits& traits = device->traits();
  const std::uint32_t lanes = traits.limits.subgroup_size, elements = s.k * s.n;
  if (!traits.features.subgroup_size_control || elements % (lanes * kOctet) != 0) return 0;
  const std::uint32_t octets = elements / (lanes * kOctet), bytes = elements * 2;
  Stream stream(std::move(device));
  const Buffer host = stream.allocate(3 * bytes, MemoryKind::staging), memory = stream.allocate(3 * bytes);
  std::memset(host.mapped(), 0, 3 * bytes);
  for (std::uint32_t i = 0; i < elements; ++i) {
    const auto bits = static_cast<std::uint16_t>(0x3c00 + i);  // a number of either type
    std::memcpy(host.mapped() + i * 2, &bits, 2);
  }
  stream.copy(memory.pointer(), host.pointer(), 3 * bytes);
  const Pointer source = memory.pointer(), apart = source + bytes, together = apart + bytes;
  stream.dispatch(layout_kernel(s, lanes, octets, false), Params{source, apart}, {1, 1, 1});
  stream.dispatch(layout_kernel(s, lanes, octets, true), Params{apart, together}, {1, 1, 1});
  const Buffer answer = stream.allocate(3 * bytes, MemoryKind::staging);
  stream.copy(answer.pointer(), memory.pointer(), 3 * bytes);
  stream.wait();
  return std::memcmp(answer.mapped() + 2 * bytes, host.mapped(), bytes) == 0 ? octets : 0;
}

}  // namespace

std::uint32_t lane_octets(Stream& stream, const CooperativeMatrix& shape) {
  MatrixLayouts& known = stream.device().matrix_layouts();
  std::lock_guard lock(known.mutex);
  const auto found = std::ranges::find(known.octets, shape, &std::pair<CooperativeMatrix, std::uint32_t>::first);
  if (found != known.octets.end()) return found->second;
  const Interruptible by_nothing(nullptr);
  const std::uint32_t octets = probe(stream.device().shared_from_this(), shape);
  known.octets.emplace_back(shape, octets);
  return octets;
}

}  // namespace vkconv::vulkan
