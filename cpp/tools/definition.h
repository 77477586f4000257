// A convolution's definition, for one element at a time: checks samples of results of any size.
#pragma once
#include <cmath>
#include <functional>
#include <utility>

#include "core/problem.h"

namespace vkconv::tools {

// Of products: the sum and the sum of magnitudes.
struct Sum {
  double value = 0, magnitude = 0;
  void add(double product) { value += product, magnitude += std::abs(product); }
};

class Definition {
 public:
  // `numbers` are the elements of every array that is read.
  Definition(const ConvProblem& p, std::function<double(std::int64_t)> numbers) : p_(p), numbers_(std::move(numbers)) {}

  Sum operator()(std::int64_t element) const {
    switch (p_.pass) {
      case Pass::forward: {
        const Pixel y = pixel(element, p_.out_channels, p_.output);
        return over_taps([&](const Extent3& k, Sum& s) { add_input(y.image, input_at(y.at, k), y.channel, k, s); });
      }
      case Pass::input_grad: {
        const Pixel x = pixel(element, p_.in_channels, p_.input);
        return over_taps([&](const Extent3& k, Sum& s) { add_output(x.image, output_at(x.at, k), x.channel, k, s); });
      }
      case Pass::weight_grad:
        break;
    }
    const std::int64_t c = take(element, p_.in_channels_per_group());
    Extent3 k;
    for (int a = 2; a >= 0; --a) k[a] = take(element, p_.kernel[a]);
    return weight_sum(element, k, c);
  }

 private:
  struct Pixel {
    std::int64_t channel;
    Extent3 at;
    std::int64_t image;
  };
  static std::int64_t take(std::int64_t& rest, std::int64_t base) {
    const std::int64_t digit = rest % base;
    rest /= base;
    return digit;
  }
  static Pixel pixel(std::int64_t element, std::int64_t channels, const Extent3& extent) {
    Pixel p{take(element, channels), {}, 0};
    for (int a = 2; a >= 0; --a) p.at[a] = take(element, extent[a]);
    p.image = element;
    return p;
  }
  static std::int64_t index(std::int64_t outer, const Extent3& at, const Extent3& extent, std::int64_t channels) {
    return (((outer * extent[0] + at[0]) * extent[1] + at[1]) * extent[2] + at[2]) * channels;
  }

  template <class F>
  Sum over_taps(F&& add) const {
    Sum s;
    Extent3 k;
    for (k[0] = 0; k[0] < p_.kernel[0]; ++k[0])
      for (k[1] = 0; k[1] < p_.kernel[1]; ++k[1])
        for (k[2] = 0; k[2] < p_.kernel[2]; ++k[2]) add(k, s);
    return s;
  }

  // The input pixel under a tap of an output pixel, axis 0 negative where there is none; and the reverse.
  Extent3 input_at(const Extent3& y, const Extent3& k) const {
    Extent3 x;
    for (int a = 0; a < 3; ++a) {
      const std::int64_t t = y[a] * p_.stride[a] + k[a] * p_.dilation[a] - p_.pad_lo[a];
      x[a] = t / p_.input_dilation[a];
      if (t < 0 || t % p_.input_dilation[a] != 0 || x[a] >= p_.input[a]) return {-1, 0, 0};
    }
    return x;
  }
  Extent3 output_at(const Extent3& x, const Extent3& k) const {
    Extent3 y;
    for (int a = 0; a < 3; ++a) {
      const std::int64_t t = x[a] * p_.input_dilation[a] + p_.pad_lo[a] - k[a] * p_.dilation[a];
      y[a] = t / p_.stride[a];
      if (t < 0 || t % p_.stride[a] != 0 || y[a] >= p_.output[a]) return {-1, 0, 0};
    }
    return y;
  }

  std::int64_t weight_index(std::int64_t o, Extent3 k) const {
    if (p_.flip)
      for (int a = 0; a < 3; ++a) k[a] = p_.kernel[a] - 1 - k[a];
    return index(o, k, p_.kernel, p_.in_channels_per_group());
  }
  double product(std::int64_t i, std::int64_t j) const { return numbers_(i) * numbers_(j); }

  void add_input(std::int64_t n, const Extent3& x, std::int64_t o, const Extent3& k, Sum& s) const {
    if (x[0] < 0) return;
    const std::int64_t channels = p_.in_channels_per_group(), group = o / p_.out_channels_per_group();
    const std::int64_t from = index(n, x, p_.input, p_.in_channels) + group * channels, w = weight_index(o, k);
    for (std::int64_t c = 0; c < channels; ++c) s.add(product(from + c, w + c));
  }
  void add_output(std::int64_t n, const Extent3& y, std::int64_t c, const Extent3& k, Sum& s) const {
    if (y[0] < 0) return;
    const std::int64_t channels = p_.out_channels_per_group(), first = c / p_.in_channels_per_group() * channels;
    const std::int64_t from = index(n, y, p_.output, p_.out_channels);
    for (std::int64_t o = first; o < first + channels; ++o)
      s.add(product(from + o, weight_index(o, k) + c % p_.in_channels_per_group()));
  }
  Sum weight_sum(std::int64_t o, Extent3 k, std::int64_t c) const {
    if (p_.flip)
      for (int a = 0; a < 3; ++a) k[a] = p_.kernel[a] - 1 - k[a];
    const std::int64_t from = o / p_.out_channels_per_group() * p_.in_channels_per_group() + c;
    Sum s;
    for (std::int64_t i = 0; i < p_.batch * p_.output_pixels(); ++i) {
      const auto [none, y, n] = pixel(i, 1, p_.output);
      const Extent3 x = input_at(y, k);
      if (x[0] < 0) continue;
      s.add(product(index(n, x, p_.input, p_.in_channels) + from, index(n, y, p_.output, p_.out_channels) + o));
    }
    return s;
  }

  ConvProblem p_;
  std::function<double(std::int64_t)> numbers_;
};

}  // namespace vkconv::tools
