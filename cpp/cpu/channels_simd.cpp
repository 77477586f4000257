#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/channels_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <algorithm>

#include "cpu/channels.h"
#include "cpu/memory.h"
#include "cpu/simd-inl.h"
#include "cpu/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::HWY_NAMESPACE {

// sums[c] = x[c] + x[stride + c] + ..., one addition after the other, for the channels of kVectors vectors.
template <int kVectors, class T>
HWY_INLINE void sum_vectors(const T* x, std::int64_t pixels, std::int64_t stride, T* sums) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> sum[kVectors];
  unroll<kVectors>([&](auto v) __attribute__((always_inline)) { sum[v] = hn::Zero(d); });
  for (std::int64_t i = 0; i < pixels; ++i, x += stride)
    unroll<kVectors>([&](auto v)
                         __attribute__((always_inline)) { sum[v] = hn::Add(sum[v], hn::LoadU(d, x + v * lanes)); });
  unroll<kVectors>([&](auto v) __attribute__((always_inline)) { hn::StoreU(sum[v], d, sums + v * lanes); });
}

template <class T>
void sum_pixels(const std::byte* from, std::int64_t pixels, std::int64_t channels, std::byte* to) {
  const T* x = reinterpret_cast<const T*>(from);
  T* sums = reinterpret_cast<T*>(to);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  std::int64_t c = 0;
  for (; c + 4 * lanes <= channels; c += 4 * lanes) sum_vectors<4>(x + c, pixels, channels, sums + c);
  for (; c + lanes <= channels; c += lanes) sum_vectors<1>(x + c, pixels, channels, sums + c);
  for (; c < channels; ++c) {
    sums[c] = 0;
    for (std::int64_t i = 0; i < pixels; ++i) sums[c] += x[i * channels + c];
  }
}

template <class T>
void add_up(const std::byte* parts, std::int64_t count, std::int64_t pixels, std::int64_t channels, std::byte* to) {
  sum_pixels<T>(parts, count, channels, to);
  T* means = reinterpret_cast<T*>(to);
  for (std::int64_t c = 0; c < channels; ++c) means[c] /= static_cast<T>(pixels);
}

template <class T>
void multiply_pixels(const std::byte* from, std::int64_t pixels, std::int64_t channels, const std::byte* factors,
                     std::byte* to) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d)), whole = channels / lanes * lanes;
  const T *x = reinterpret_cast<const T*>(from), *f = reinterpret_cast<const T*>(factors);
  T* y = reinterpret_cast<T*>(to);
  for (std::int64_t i = 0; i < pixels; ++i, x += channels, y += channels) {
    for (std::int64_t c = 0; c < whole; c += lanes)
      hn::StoreU(hn::Mul(hn::LoadU(d, x + c), hn::LoadU(d, f + c)), d, y + c);
    for (std::int64_t c = whole; c < channels; ++c) y[c] = x[c] * f[c];
  }
}

struct Kernels {
  decltype(&sum_pixels<float>) sum;
  decltype(&add_up<float>) add_up;
  decltype(&multiply_pixels<float>) multiply;
};

template <class T>
constexpr Kernels kernels_of() {
  return {sum_pixels<T>, add_up<T>, multiply_pixels<T>};
}

void take_means(const Pixels& p, const std::byte* x, std::byte* to) {
  const Kernels k = p.dtype == DType::f64 ? kernels_of<double>() : kernels_of<float>();
  constexpr std::int64_t kPart = 128;  // pixels of a partial sum
  const std::int64_t parts = (p.count + kPart - 1) / kPart;
  const auto pixel = static_cast<std::int64_t>(size_bytes(p.dtype)) * p.channels;
  const Buffer sums(static_cast<std::size_t>(p.batch * parts * pixel));
  thread_pool().run(p.batch * parts, [&](std::int64_t task) {
    const std::int64_t image = task / parts, first = task % parts * kPart;
    k.sum(x + (image * p.count + first) * pixel, std::min(kPart, p.count - first), p.channels,
          sums.pointer() + task * pixel);
  });
  for (std::int64_t n = 0; n < p.batch; ++n)
    k.add_up(sums.pointer() + n * parts * pixel, parts, p.count, p.channels, to + n * pixel);
}

void multiply_by_channel(const Pixels& p, const std::byte* x, const std::byte* factors, std::byte* y) {
  const Kernels k = p.dtype == DType::f64 ? kernels_of<double>() : kernels_of<float>();
  const auto pixel = static_cast<std::int64_t>(size_bytes(p.dtype)) * p.channels;
  const std::int64_t part = std::max<std::int64_t>((32 << 10) / pixel, 1), parts = (p.count + part - 1) / part;
  thread_pool().run(p.batch * parts, [&](std::int64_t task) {
    const std::int64_t image = task / parts, first = task % parts * part;
    const std::int64_t at = (image * p.count + first) * pixel;
    k.multiply(x + at, std::min(part, p.count - first), p.channels, factors + image * pixel, y + at);
  });
}

}  // namespace vkconv::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace vkconv::cpu {
HWY_EXPORT(take_means);
HWY_EXPORT(multiply_by_channel);

void channel_means(const Pixels& p, const std::byte* x, std::byte* to) { HWY_DYNAMIC_DISPATCH(take_means)(p, x, to); }
void multiply_channels(const Pixels& p, const std::byte* x, const std::byte* factors, std::byte* y) {
  HWY_DYNAMIC_DISPATCH(multiply_by_channel)(p, x, factors, y);
}
}  // namespace vkconv::cpu
#endif
