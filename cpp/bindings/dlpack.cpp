#include "bindings/dlpack.h"

#include <utility>

namespace vkconv::bindings {
namespace {

// The structures of dlpack.h, whose layout is the interface.
struct DLDevice {
  std::int32_t device_type, device_id;
};
struct DLDataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t *shape, *strides;
  std::uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor*);
};

constexpr std::uint8_t kFloat = 2, kBfloat = 4;
constexpr const char* kUnused = "dltensor";  // a consumer renames the capsule

struct Owner {
  Exported array;
  DLManagedTensor managed;
};

void release(DLManagedTensor* managed) { delete static_cast<Owner*>(managed->manager_ctx); }

void release_unused(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, kUnused)) return;
  auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, kUnused));
  managed->deleter(managed);
}

}  // namespace

pybind11::capsule dlpack_capsule(Exported array) {
  auto owner = std::make_unique<Owner>();
  owner->array = std::move(array);
  Exported& a = owner->array;
  const auto bits = static_cast<std::uint8_t>(8 * size_bytes(a.dtype));
  owner->managed = {{a.data,
                     {kDLCPU, 0},
                     static_cast<std::int32_t>(a.shape.size()),
                     {a.dtype == DType::bf16 ? kBfloat : kFloat, bits, 1},
                     a.shape.data(),
                     a.stride.data(),
                     0},
                    owner.get(),
                    &release};
  PyObject* capsule = PyCapsule_New(&owner->managed, kUnused, &release_unused);
  if (!capsule) throw pybind11::error_already_set();
  owner.release();
  return pybind11::reinterpret_steal<pybind11::capsule>(capsule);
}

}  // namespace vkconv::bindings
