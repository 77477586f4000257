// Arrays for other libraries, without a copy: the part of the DLPack interface (version 0) that exporting takes.
#pragma once
#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "core/backend.h"
#include "core/dtype.h"

namespace vkconv::bindings {

inline constexpr int kDLCPU = 1;  // kDLCPU of dlpack.h

struct Exported {
  std::shared_ptr<ArrayMemory> memory;
  std::byte* data = nullptr;  // as the host sees it
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape, stride;  // in elements
};

// A capsule named "dltensor" that keeps the memory until its consumer, or the capsule unused, lets go.
pybind11::capsule dlpack_capsule(Exported array);

}  // namespace vkconv::bindings
