// Memory as an array of up to six axes.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "core/checked.h"
#include "core/view.h"

namespace vkconv {

struct StridedArray {
  std::byte* data = nullptr;
  std::array<std::int64_t, 6> extent{1, 1, 1, 1, 1, 1}, stride{};  // in elements
  std::size_t element_bytes = 4;

  std::int64_t elements() const {
    std::int64_t n = 1;
    for (const std::int64_t e : extent) n *= e;
    return n;
  }
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * element_bytes; }
};

inline StridedArray strided(const View<std::byte*>& v, std::int64_t batch, const Extent3& e, std::int64_t channels,
                            DType t) {
  return {v.data,
          {1, batch, e[0], e[1], e[2], channels},
          {0, v.stride[0], v.stride[1], v.stride[2], v.stride[3], v.stride[4]},
          size_bytes(t)};
}
inline StridedArray strided(const WeightView<std::byte*>& w, const ConvProblem& p, DType t) {
  return {w.data,
          {p.groups, p.out_channels_per_group(), p.kernel[0], p.kernel[1], p.kernel[2], p.in_channels_per_group()},
          {w.group, w.out, w.tap[0], w.tap[1], w.tap[2], w.in},
          size_bytes(t)};
}

// Elements before (lo <= 0) and after (hi >= 0) `data` that the array reaches. It has no empty axis.
struct Span {
  std::int64_t lo = 0, hi = 0;
  std::int64_t elements() const { return hi - lo + 1; }
};
inline Span span_of(const StridedArray& a) {
  Span s;
  for (std::size_t i = 0; i < a.extent.size(); ++i) (a.stride[i] < 0 ? s.lo : s.hi) += (a.extent[i] - 1) * a.stride[i];
  return s;
}

// Row-major strides without gaps.
template <class Extents>
Extents dense_strides(const Extents& extent) {
  Extents stride = extent;
  std::int64_t next = 1;
  for (std::size_t i = extent.size(); i-- > 0; next = checked_mul(next, extent[i])) stride[i] = next;
  return stride;
}

// The array, dense, elsewhere.
inline StridedArray packed(StridedArray a, std::byte* data) {
  a.data = data;
  a.stride = dense_strides(a.extent);
  return a;
}

}  // namespace vkconv
