// Arrays whose elements share memory.
#pragma once
#include "bindings/arrays.h"

namespace vkconv::bindings {

// Whether a result, which the caller gave as `given`, has an element in common with an operand. Of NumPy arrays and
// what the host sees of a device's it is exact, by `may_share_memory` of NumPy; elsewhere what they span counts.
bool share_memory(const Array& out, py::handle given, const Array& operand, const py::object& may_share_memory);

// Whether elements of one array may share memory.
bool may_overlap_itself(const py::array& array);

}  // namespace vkconv::bindings
