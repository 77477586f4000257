// Lines of a depthwise convolution by fast Fourier transforms, compiled once per instruction set and chosen at run
// time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "algorithms/fft_depthwise/fft_depthwise_simd.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h comes first.
#include <algorithm>
#include <cmath>

#include "algorithms/fft_depthwise/fft_depthwise.h"
#include "algorithms/fft_depthwise/fft_depthwise_transform-inl.h"
#include "cpu/epilogue-inl.h"
#include "cpu/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::fft_depthwise::HWY_NAMESPACE {
using cpu::HWY_NAMESPACE::load;
using cpu::HWY_NAMESPACE::load_n;

// One group of channels, the lower half of them real parts, the upper half imaginary parts. In is the type of the
// operands, Out that of the output.
template <class In, class Out>
class GroupLines {
 public:
  GroupLines(const Call& call, std::int64_t channel, double* scratch)
      : p_(call.p),
        operands_(call.operands),
        transform_(call.transform),
        channel_(channel),
        channels_(std::min(2 * lanes(), p_.out_channels - channel)),
        kernel_(scratch),
        block_(scratch + 2 * transform_.size * lanes()),
        weight_(cpu::HWY_NAMESPACE::typed<In>(operands_.weight, channel)) {
    transform_kernel();
  }

  void run(std::int64_t line) {
    const OutputRow row(p_, line);
    const View<std::byte*>& v = operands_.input;
    x_ = row.outside() ? nullptr
                       : reinterpret_cast<const In*>(v.data) + channel_ + row.n * v.stride[0] +
                             (row.d * p_.stride[0] - p_.pad_lo[0]) * v.stride[1] +
                             (row.h * p_.stride[1] - p_.pad_lo[1]) * v.stride[2];
    for (std::int64_t b = 0; b < transform_.blocks; ++b) {
      const std::int64_t first = b * transform_.outputs;
      const Range outputs{first, std::min(first + transform_.outputs, p_.output[2])};
      sum(outputs);
      const auto to = cpu::HWY_NAMESPACE::tile_store<float, Out>(p_, operands_, row, first, channel_);
      cpu::HWY_NAMESPACE::store_tile(reinterpret_cast<const float*>(block_), 2 * lanes(), outputs.size(), channels_, to,
                                     p_.epilogue);
    }
  }

 private:
  // Tap k belongs to output shift -k * dilation: the cyclic convolution with this is the correlation wanted.
  void transform_kernel() {
    const std::int64_t size = transform_.size, width = 2 * lanes();
    std::fill_n(kernel_, size * width, 0.0);
    double squares[2 * HWY_MAX_BYTES / sizeof(double)] = {};
    for (std::int64_t c = 0; c < channels_; ++c)
      for (std::int64_t k = 0; k < p_.kernel[2]; ++k) {
        const double w = widened(weight_.data + c * weight_.group + k * weight_.tap[2]);
        kernel_[(size - k * p_.dilation[2]) % size * width + c] = w;
        squares[c] += w * w;
      }
    const Complex sums{hn::LoadU(Doubles(), squares), hn::LoadU(Doubles(), squares + lanes())};
    finite_kernel_ = finite(sums);
    kernel_norms_ = norms(sums);
    divide(kernel_, {0, size}, kernel_norms_);
    forward(kernel_, size, transform_.twiddles.data());
    // Apart, the spectra of the two channels of a pair are symmetric: the first is kept in element i, the second in j.
    const auto scale = hn::Set(Doubles(), 0.25 / static_cast<double>(size));
    for_each_pair(size, [&](std::int64_t i, std::int64_t j) HWY_ATTR {
      const Complex zi = get(kernel_, i), zj = get(kernel_, j);
      set(kernel_, i, scaled(real_channel(zi, zj), scale));
      set(kernel_, j, scaled(imaginary_channel(zi, zj), scale));
    });
    const auto whole = hn::Set(Doubles(), 1.0 / static_cast<double>(size));
    for (std::int64_t i = 0; i < 2; ++i) set(kernel_, i, scaled(get(kernel_, i), whole));
  }

  // Twice the spectrum, at the frequency of z, of the channel in the real parts; partner is the element of minus that
  // frequency.
  static HWY_INLINE Complex real_channel(const Complex& z, const Complex& partner) {
    return {hn::Add(z.re, partner.re), hn::Sub(z.im, partner.im)};
  }
  static HWY_INLINE Complex imaginary_channel(const Complex& z, const Complex& partner) {
    return {hn::Add(z.im, partner.im), hn::Sub(partner.re, z.re)};
  }
  static HWY_INLINE Complex scaled(const Complex& z, Vector by) { return {hn::Mul(z.re, by), hn::Mul(z.im, by)}; }

  void multiply() {
    for (std::int64_t i = 0; i < 2; ++i) {
      const Complex z = get(block_, i), w = get(kernel_, i);
      set(block_, i, {hn::Mul(z.re, w.re), hn::Mul(z.im, w.im)});
    }
    for_each_pair(transform_.size, [&](std::int64_t i, std::int64_t j) HWY_ATTR {
      const Complex zi = get(block_, i), zj = get(block_, j);
      const Complex a = real_channel(zi, zj) * get(kernel_, i), b = imaginary_channel(zi, zj) * get(kernel_, j);
      set(block_, i, {hn::Sub(a.re, b.im), hn::Add(a.im, b.re)});
      set(block_, j, {hn::Add(a.re, b.im), hn::Sub(b.re, a.im)});
    });
  }

  // The group's channels at one input position.
  HWY_INLINE Complex pixel(std::int64_t position) const {
    const hn::Rebind<float, Doubles> half;
    const In* x = x_ + position * operands_.input.stride[3];
    if (HWY_LIKELY(channels_ == 2 * lanes()))
      return {hn::PromoteTo(Doubles(), load(half, x)), hn::PromoteTo(Doubles(), load(half, x + lanes()))};
    const std::int64_t lower = std::min(channels_, lanes());
    return {hn::PromoteTo(Doubles(), load_n(half, x, static_cast<std::size_t>(lower))),
            hn::PromoteTo(Doubles(), load_n(half, x + lower, static_cast<std::size_t>(channels_ - lower)))};
  }

  // Sums of outputs [outputs) in float, [output][channel], at the front of block_.
  void sum(const Range& outputs) {
    if (!x_) {
      std::fill_n(block_, outputs.size() * lanes(), 0.0);
      return;
    }
    const std::int64_t size = transform_.size, first = outputs.begin - p_.pad_lo[2];  // position of element 0
    const std::int64_t begin = std::clamp<std::int64_t>(-first, 0, size);
    const std::int64_t end = std::clamp<std::int64_t>(p_.input[2] - first, begin, size);
    Complex squares{hn::Zero(Doubles()), hn::Zero(Doubles())};
    std::fill_n(block_, 2 * begin * lanes(), 0.0);
    for (std::int64_t i = begin; i < end; ++i) {
      const Complex z = pixel(first + i);
      squares = {hn::MulAdd(z.re, z.re, squares.re), hn::MulAdd(z.im, z.im, squares.im)};
      set(block_, i, z);
    }
    std::fill_n(block_ + 2 * end * lanes(), 2 * (size - end) * lanes(), 0.0);
    if (!finite(squares) || !finite_kernel_) return sum_directly(outputs);
    const Complex block_norms = norms(squares);
    divide(block_, {begin, end}, block_norms);
    forward(block_, size, transform_.twiddles.data());
    multiply();
    inverse(block_, size, transform_.twiddles.data());
    round(outputs.size(), {hn::Mul(block_norms.re, kernel_norms_.re), hn::Mul(block_norms.im, kernel_norms_.im)});
  }

  static HWY_INLINE bool finite(const Complex& squares) {
    const Doubles d;
    return hn::AllTrue(d, hn::IsFinite(squares.re)) && hn::AllTrue(d, hn::IsFinite(squares.im));
  }

  // Euclidean norms of the two channels of a pair; 1 for a channel of zeros.
  static HWY_INLINE Complex norms(const Complex& squares) {
    const auto root = [](Vector v) HWY_ATTR {
      return hn::IfThenElse(hn::Eq(v, hn::Zero(Doubles())), hn::Set(Doubles(), 1.0), hn::Sqrt(v));
    };
    return {root(squares.re), root(squares.im)};
  }

  // Both channels of a pair get the norm 1: a transform's error is relative to the larger of them.
  void divide(double* block, const Range& elements, const Complex& by) const {
    const Vector one = hn::Set(Doubles(), 1.0), re = hn::Div(one, by.re), im = hn::Div(one, by.im);
    for (std::int64_t i = elements.begin; i < elements.end; ++i) {
      const Complex z = get(block, i);
      set(block, i, {hn::Mul(z.re, re), hn::Mul(z.im, im)});
    }
  }

  // Multiplies by `norms`. What is within the error of the transforms is zero, so that exact zeros stay zero.
  void round(std::int64_t count, const Complex& norms) {
    constexpr double kErrors = 16, kUnit = 0x1p-53;  // units in the last place a doubling of the size
    const hn::Rebind<float, Doubles> half;
    const Vector noise = hn::Set(Doubles(), kErrors * kUnit * std::log2(static_cast<double>(transform_.size)));
    float* to = reinterpret_cast<float*>(block_);
    const auto put = [&](Vector v, Vector norm, float* at) HWY_ATTR {
      const Vector clean = hn::IfThenElseZero(hn::Gt(hn::Abs(v), noise), v);
      hn::StoreU(hn::DemoteTo(half, hn::Mul(clean, norm)), half, at);
    };
    for (std::int64_t i = 0; i < count; ++i, to += 2 * lanes()) {
      const Complex z = get(block_, i);
      put(z.re, norms.re, to);
      put(z.im, norms.im, to + lanes());
    }
  }

  // The same sums tap by tap: a transform would spread one infinity over the whole line.
  void sum_directly(const Range& outputs) {
    const hn::Rebind<float, Doubles> half;
    const std::int64_t taps = p_.kernel[2], width = 2 * lanes();
    double* weights = block_ + (transform_.size - taps) * width;  // behind the results
    std::fill_n(weights, taps * width, 0.0);
    for (std::int64_t c = 0; c < channels_; ++c)
      for (std::int64_t k = 0; k < taps; ++k)
        weights[k * width + c] = widened(weight_.data + c * weight_.group + k * weight_.tap[2]);
    float* to = reinterpret_cast<float*>(block_);
    for (std::int64_t o = outputs.begin; o < outputs.end; ++o, to += width) {
      Complex total{hn::Zero(Doubles()), hn::Zero(Doubles())};
      const Range inside = taps_inside(p_, 2, o);
      for (std::int64_t k = inside.begin; k < inside.end; ++k) {
        const Complex z = pixel(o - p_.pad_lo[2] + k * p_.dilation[2]), w = get(weights, k);
        total = {hn::MulAdd(z.re, w.re, total.re), hn::MulAdd(z.im, w.im, total.im)};
      }
      hn::StoreU(hn::DemoteTo(half, total.re), half, to);
      hn::StoreU(hn::DemoteTo(half, total.im), half, to + lanes());
    }
  }

  static HWY_INLINE double widened(const In* value) { return cpu::HWY_NAMESPACE::widened(value); }

  const ConvProblem& p_;
  const Operands<Device>& operands_;
  const Transform& transform_;
  std::int64_t channel_, channels_;
  double *kernel_, *block_;  // transform_.size elements each
  WeightView<const In*> weight_;
  Complex kernel_norms_;
  bool finite_kernel_ = true;
  const In* x_ = nullptr;  // column 0 of the line; null where it is padding
};

std::int64_t channels_of_group() { return 2 * lanes(); }

void run_group(const Call& call, const Part& part, std::byte* scratch) {
  cpu::HWY_NAMESPACE::with_types(call.p, [&](auto in, auto out) {
    if constexpr (!std::is_same_v<decltype(in), double>) {
      GroupLines<decltype(in), decltype(out)> group(call, part.channel, reinterpret_cast<double*>(scratch));
      for (std::int64_t line = part.lines.begin; line < part.lines.end; ++line) group.run(line);
    }
  });
}

}  // namespace vkconv::cpu::fft_depthwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace vkconv::cpu::fft_depthwise {
HWY_EXPORT(channels_of_group);
HWY_EXPORT(run_group);

std::int64_t group_channels() { return HWY_DYNAMIC_DISPATCH(channels_of_group)(); }

void run_part(const Call& call, const Part& part, std::byte* scratch) {
  HWY_DYNAMIC_DISPATCH(run_group)(call, part, scratch);
}

}  // namespace vkconv::cpu::fft_depthwise
#endif
