#include "vulkan/matrix_layout.h"

#include <cstring>
#include <memory>

#include "core/half.h"
#include "core/interruption.h"
#include "vulkan/kernel_params.h"
#include "vulkan/logical_device.h"
#include "vulkan/matrix_unit.h"

namespace vkconv::vulkan {
namespace {

struct Params {
  Pointer source, target;
};

enum Step : std::uint32_t { kTakesApart, kAssembles, kRounds };  // as in matrix_layout.comp

// One shape on its device.
class Probe {
 public:
  Probe(std::shared_ptr<LogicalDevice> device, const CooperativeMatrix& shape)
      : shape_(shape), stream_(std::move(device)), lanes_(stream_.traits().limits.subgroup_size) {}

  MatrixLayout run() {
    if (!stream_.traits().features.subgroup_size_control) return {};
    return {lane_octets(), sums_as_operands()};
  }

 private:
  // Takes a matrix of distinct small numbers apart, puts it together again and compares.
  std::uint32_t lane_octets() {
    const std::uint32_t elements = shape_.k * shape_.n;
    if (elements % (lanes_ * kOctet) != 0) return 0;
    const std::uint32_t octets = elements / (lanes_ * kOctet);
    std::vector<std::uint16_t> numbers(elements);
    for (std::uint32_t i = 0; i < elements; ++i) numbers[i] = number(i);
    const std::vector<std::uint16_t> apart = answer(kTakesApart, octets, numbers, elements);
    return answer(kAssembles, octets, apart, elements) == numbers ? octets : 0;
  }

  // Rounds sums that are halves already and compares.
  bool sums_as_operands() {
    if (shape_.n != shape_.k) return false;
    const std::uint32_t elements = shape_.m * shape_.n;
    std::vector<std::uint16_t> numbers(elements);
    std::vector<float> sums(elements);
    for (std::uint32_t i = 0; i < elements; ++i) {
      numbers[i] = number(i);
      sums[i] = shape_.operand == DType::f16 ? to_float(Half{numbers[i]}) : to_float(BFloat16{numbers[i]});
    }
    return answer(kRounds, 0, sums, elements) == numbers;
  }

  // Bits of a number of either type.
  static std::uint16_t number(std::uint32_t i) { return static_cast<std::uint16_t>(0x3c00 + i); }

  // What the kernel makes of `source`.
  template <class T>
  std::vector<std::uint16_t> answer(Step step, std::uint32_t octets, const std::vector<T>& source,
                                    std::uint32_t elements) {
    const std::size_t from_bytes = source.size() * sizeof(T), to_bytes = elements * sizeof(std::uint16_t);
    const Buffer host = stream_.allocate(from_bytes + to_bytes, MemoryKind::staging);
    const Buffer from = stream_.allocate(from_bytes), to = stream_.allocate(to_bytes);
    std::memcpy(host.mapped(), source.data(), from_bytes);
    std::memset(host.mapped() + from_bytes, 0, to_bytes);
    stream_.copy(from.pointer(), host.pointer(), from_bytes);
    stream_.copy(to.pointer(), host.pointer() + from_bytes, to_bytes);
    const Kernel kernel{shader_name("matrix_layout", shape_.operand),
                        {0, 0, 0, 0, 0, shape_.m, shape_.n, shape_.k, lanes_, octets, step},
                        lanes_};
    stream_.dispatch(kernel, Params{from.pointer(), to.pointer()}, {1, 1, 1});
    const Buffer back = stream_.allocate(to_bytes, MemoryKind::staging);
    stream_.copy(back.pointer(), to.pointer(), to_bytes);
    stream_.wait();
    std::vector<std::uint16_t> numbers(elements);
    std::memcpy(numbers.data(), back.mapped(), to_bytes);
    return numbers;
  }

  CooperativeMatrix shape_;
  Stream stream_;
  std::uint32_t lanes_;
};

}  // namespace

MatrixLayout matrix_layout(Stream& stream, const CooperativeMatrix& shape) {
  MatrixLayouts& layouts = stream.device().matrix_layouts();
  std::lock_guard lock(layouts.mutex);
  for (const auto& [known, layout] : layouts.known)
    if (known == shape) return layout;
  const Interruptible by_nothing(nullptr);
  const MatrixLayout layout = Probe(stream.device().shared_from_this(), shape).run();
  layouts.known.emplace_back(shape, layout);
  return layout;
}

}  // namespace vkconv::vulkan
