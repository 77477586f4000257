// Strided views of device memory. A view has no shape: the ConvProblem it is used with has it. Strides are in
// elements and may be negative or zero; the channel axis of input, output and addend is always contiguous.
// Slicing a view never copies, so a decomposition is a child problem plus shifted pointers and scaled strides.
#pragma once
#include <array>
#include <cstdint>

#include "core/problem.h"

namespace vkconv {

// Input, output or addend: axes N, D, H, W, C with stride[4] == 1. Pointer is std::byte* on the CPU and a 64-bit
// buffer device address on Vulkan; both take `+ bytes`.
template <class Pointer>
struct View {
  Pointer data{};
  std::array<std::int64_t, 5> stride{};

  // The view that starts `index` steps along `axis` (0 N, 1 D, 2 H, 3 W) and takes every step-th element.
  View sliced(int axis, std::int64_t index, std::int64_t step, DType t) const {
    View v = *this;
    v.data = data + index * stride[axis] * static_cast<std::int64_t>(size_bytes(t));
    v.stride[axis] *= step;
    return v;
  }
};

// Weight (group, out in group, KD, KH, KW, in): any strides, so that mirrored kernels, kernel phases and the
// in/out swap of a gradient are views too.
template <class Pointer>
struct WeightView {
  Pointer data{};
  std::int64_t group = 0, out = 0, in = 1;
  Extent3 tap{};

  WeightView sliced(int axis, std::int64_t index, std::int64_t step, DType t) const {
    WeightView v = *this;
    v.data = data + index * tap[axis] * static_cast<std::int64_t>(size_bytes(t));
    v.tap[axis] *= step;
    return v;
  }
  // Elements from the first tap to (kd, kh, kw).
  std::int64_t offset(const Extent3& k) const { return k[0] * tap[0] + k[1] * tap[1] + k[2] * tap[2]; }
  WeightView mirrored(const Extent3& kernel, DType t) const {
    WeightView v = *this;
    for (int a = 0; a < 3; ++a)
      if (kernel[a] > 1) v = v.sliced(a, kernel[a] - 1, -1, t);
    return v;
  }
  WeightView transposed() const {
    WeightView v = *this;
    v.out = in;
    v.in = out;
    return v;
  }
};

template <class Pointer>
View<Pointer> contiguous_view(Pointer data, const Extent3& extent, std::int64_t channels) {
  View<Pointer> v{data, {0, 0, 0, channels, 1}};
  v.stride[2] = extent[2] * v.stride[3];
  v.stride[1] = extent[1] * v.stride[2];
  v.stride[0] = extent[0] * v.stride[1];
  return v;
}

// Weight as users hold it: (O, KD, KH, KW, C/groups), contiguous.
template <class Pointer>
WeightView<Pointer> contiguous_weight(Pointer data, const ConvProblem& p) {
  WeightView<Pointer> w{data};
  w.tap[2] = p.in_channels_per_group();
  w.tap[1] = w.tap[2] * p.kernel[2];
  w.tap[0] = w.tap[1] * p.kernel[1];
  w.out = w.tap[0] * p.kernel[0];
  w.group = w.out * p.out_channels_per_group();
  return w;
}

}  // namespace vkconv
