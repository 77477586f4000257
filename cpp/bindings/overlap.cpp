#include "bindings/overlap.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace vkconv::bindings {
namespace {

// Addresses that an array of a device spans.
std::pair<const std::byte*, const std::byte*> addresses_of(const Array& a) {
  const std::byte *low = a.data, *high = a.data;
  const auto element = static_cast<std::int64_t>(size_bytes(a.dtype));
  for (int i = 0; i < a.ndim; ++i) (a.stride[i] < 0 ? low : high) += (a.shape[i] - 1) * a.stride[i] * element;
  return {low, high + element};
}

// The caller's array, or a view of the host's memory of one on a device; none where the host does not see it.
py::object seen_by_host(const Array& a, py::handle given) {
  if (!a.on_device()) return py::reinterpret_borrow<py::object>(given);
  if (!a.memory->host()) return py::none();
  const std::vector<std::int64_t> shape(a.shape.begin(), a.shape.begin() + a.ndim);
  std::vector<std::int64_t> strides(a.stride.begin(), a.stride.begin() + a.ndim);
  for (std::int64_t& stride : strides) stride *= static_cast<std::int64_t>(size_bytes(a.dtype));
  return py::array(a.numpy_dtype, shape, strides, a.memory->host() + (a.data - a.memory->address()), a.owner);
}

}  // namespace

bool share_memory(const Array& out, py::handle given, const Array& operand, const py::object& may_share_memory) {
  const py::object mine = seen_by_host(out, given), other = seen_by_host(operand, operand.owner);
  if (mine.is_none() || other.is_none()) {
    if (out.memory != operand.memory) return false;
    const auto [low, high] = addresses_of(out);
    const auto [other_low, other_high] = addresses_of(operand);
    return low < other_high && other_low < high;
  }
  // Exact for every layout in practice; answers yes when the exact answer would take too long.
  constexpr int kMaxWork = 10000;
  return may_share_memory(mine, other, kMaxWork).cast<bool>();
}

// Axes sorted by stride must each step over everything the smaller ones reach.
bool may_overlap_itself(const py::array& array) {
  if (array.size() == 0) return false;
  std::vector<std::pair<std::int64_t, std::int64_t>> axes;  // stride, extent
  for (py::ssize_t i = 0; i < array.ndim(); ++i)
    if (array.shape(i) > 1) axes.emplace_back(std::abs(array.strides(i)), array.shape(i));
  std::sort(axes.begin(), axes.end());
  std::int64_t reach = array.itemsize() - 1;
  for (const auto& [stride, extent] : axes) {
    if (stride <= reach) return true;
    reach += (extent - 1) * stride;
  }
  return false;
}

}  // namespace vkconv::bindings
