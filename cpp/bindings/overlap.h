// Arrays whose elements share memory.
#pragma once
#include "bindings/arrays.h"

namespace vkconv::bindings {

// Whether two arrays, which the caller gave as `given_a` and `given_b`, have an element in common. Of NumPy arrays and
// what the host sees of a device's it is exact, by `may_share_memory` of NumPy; elsewhere what they span counts.
bool share_memory(const Array& a, py::handle given_a, const Array& b, py::handle given_b,
                  const py::object& may_share_memory);

// Whether elements of one array may share memory.
bool may_overlap_itself(const py::array& array);

}  // namespace vkconv::bindings
