// What squeeze-and-excitation blocks do between their convolutions, for dense arrays (N, pixels, C) of float or double.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

namespace vkconv::cpu {

struct Pixels {
  DType dtype = DType::f32;
  std::int64_t batch = 1, count = 1, channels = 1;  // `count` pixels of each of the batch
};

// means (N, C): of every channel over its pixels. The order of the sums depends on the shape only.
void channel_means(const Pixels& p, const std::byte* x, std::byte* means);

// y = x * factors, which are (N, C); y may be x.
void multiply_channels(const Pixels& p, const std::byte* x, const std::byte* factors, std::byte* y);

}  // namespace vkconv::cpu
