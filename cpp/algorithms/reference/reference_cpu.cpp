// reference: the loop nest that defines the operation, for every problem. It sums in double in a fixed order and is
// chosen only when nothing else can run; the other algorithms are measured against it.
#include <cmath>

#include "algorithms/registry_cpu.h"
#include "core/dispatch.h"
#include "core/geometry.h"
#include "cpu/job.h"
#include "cpu/thread_pool.h"

namespace vkconv::cpu {
namespace {

double activate(double v, const Epilogue& e) {
  const auto clamp = [](double x, double lo, double hi) { return x < lo ? lo : x > hi ? hi : x; };  // NaN stays NaN
  switch (e.activation) {
    case Activation::identity:
      return v;
    case Activation::relu:
      return v < 0 ? 0 : v;
    case Activation::relu6:
      return clamp(v, 0, 6);
    case Activation::leaky_relu:
      return v < 0 ? v * e.alpha : v;
    case Activation::silu:
      return v / (1 + std::exp(-v));
    case Activation::gelu:
      return 0.5 * v * (1 + std::erf(v / std::sqrt(2.0)));
    case Activation::sigmoid:
      return 1 / (1 + std::exp(-v));
    case Activation::tanh:
      return std::tanh(v);
    case Activation::hardswish:
      return v * clamp(v + 3, 0, 6) / 6;
    case Activation::clip:
      return clamp(v, e.alpha, e.beta);
  }
  return v;
}

using Index5 = std::array<std::int64_t, 5>;  // N D H W C, or O KD KH KW I

std::int64_t at(const View<std::byte*>& v, const Index5& i) {
  return i[0] * v.stride[0] + i[1] * v.stride[1] + i[2] * v.stride[2] + i[3] * v.stride[3] + i[4] * v.stride[4];
}

std::int64_t at(const WeightView<std::byte*>& w, std::int64_t group, const Index5& i) {
  return group * w.group + i[0] * w.out + i[1] * w.tap[0] + i[2] * w.tap[1] + i[3] * w.tap[2] + i[4] * w.in;
}

// The sums of one problem. Operand type T; the three passes share the index map and differ in what is summed over.
template <class T>
class Sums {
 public:
  Sums(const ConvProblem& p, const Operands<Device>& a) : p_(p), a_(a) {}

  double output(std::int64_t n, const Extent3& out, std::int64_t o) const {
    const std::int64_t group = o / p_.out_channels_per_group(), in_group = p_.in_channels_per_group();
    double sum = 0;
    for_each_tap([&](const Extent3& k) {
      Index5 x{n, 0, 0, 0, group * in_group};
      for (int axis = 0; axis < 3; ++axis)
        if ((x[1 + axis] = input_index(p_, axis, out[axis], k[axis])) < 0) return;
      for (std::int64_t c = 0; c < in_group; ++c, ++x[4])
        sum += input_value(x) * weight_value(group, {o % p_.out_channels_per_group(), k[0], k[1], k[2], c});
    });
    return sum;
  }

  double input_grad(std::int64_t n, const Extent3& in, std::int64_t c) const {
    const std::int64_t group = c / p_.in_channels_per_group(), out_group = p_.out_channels_per_group();
    double sum = 0;
    for_each_tap([&](const Extent3& k) {
      Index5 y{n, 0, 0, 0, group * out_group};
      for (int axis = 0; axis < 3; ++axis) {
        const std::int64_t position =
            in[axis] * p_.input_dilation[axis] + p_.pad_lo[axis] - k[axis] * p_.dilation[axis];
        if (position < 0 || position % p_.stride[axis] != 0) return;
        if ((y[1 + axis] = position / p_.stride[axis]) >= p_.output[axis]) return;
      }
      for (std::int64_t o = 0; o < out_group; ++o, ++y[4])
        sum += output_value(y) * weight_value(group, {o, k[0], k[1], k[2], c % p_.in_channels_per_group()});
    });
    return sum;
  }

  double weight_grad(std::int64_t o, const Extent3& k, std::int64_t c) const {
    const std::int64_t channel = o / p_.out_channels_per_group() * p_.in_channels_per_group() + c;
    double sum = 0;
    for (std::int64_t n = 0; n < p_.batch; ++n)
      for_each(p_.output, [&](const Extent3& out) {
        Index5 x{n, 0, 0, 0, channel};
        for (int axis = 0; axis < 3; ++axis)
          if ((x[1 + axis] = input_index(p_, axis, out[axis], k[axis])) < 0) return;
        sum += input_value(x) * output_value({n, out[0], out[1], out[2], o});
      });
    return sum;
  }

 private:
  template <class F>
  static void for_each(const Extent3& extent, F&& f) {
    for (Extent3 i{0, 0, 0}; i[0] < extent[0]; ++i[0])
      for (i[1] = 0; i[1] < extent[1]; ++i[1])
        for (i[2] = 0; i[2] < extent[2]; ++i[2]) f(i);
  }
  template <class F>
  void for_each_tap(F&& f) const {
    for_each(p_.kernel, f);
  }

  static double value(const std::byte* base, std::int64_t offset) {
    return to_float(reinterpret_cast<const T*>(base)[offset]);
  }
  double input_value(const Index5& i) const { return value(a_.input.data, at(a_.input, i)); }
  double output_value(const Index5& i) const { return value(a_.output.data, at(a_.output, i)); }
  double weight_value(std::int64_t group, const Index5& i) const {
    return value(a_.weight.data, at(a_.weight, group, i));
  }

  const ConvProblem& p_;
  const Operands<Device>& a_;
};

class ReferencePlan final : public Plan<Device> {
 public:
  ReferencePlan(const ConvProblem& p, const Context<Device>&) : p_(p) {}
  std::string describe() const override { return "reference"; }

  void execute(Device::Stream&, const Operands<Device>& a, std::byte*) const override {
    with_type(p_.dtype,
              [&](auto in) { with_type(p_.output_dtype, [&](auto out) { run<decltype(in), decltype(out)>(a); }); });
  }

 private:
  template <class T, class Out>
  void run(const Operands<Device>& a) const {
    const Sums<T> sums(p_, a);
    switch (p_.pass) {
      case Pass::forward:
        return for_pixels(p_.batch, p_.output, [&](std::int64_t n, const Extent3& at3) {
          for (std::int64_t o = 0; o < p_.out_channels; ++o)
            store<Out>(a.output.data, at(a.output, {n, at3[0], at3[1], at3[2], o}),
                       finish(a, n, at3, o, sums.output(n, at3, o)));
        });
      case Pass::input_grad:
        return for_pixels(p_.batch, p_.input, [&](std::int64_t n, const Extent3& at3) {
          for (std::int64_t c = 0; c < p_.in_channels; ++c)
            store<Out>(a.input.data, at(a.input, {n, at3[0], at3[1], at3[2], c}), sums.input_grad(n, at3, c));
        });
      case Pass::weight_grad:
        return for_pixels(p_.out_channels, p_.kernel, [&](std::int64_t o, const Extent3& k) {
          const std::int64_t group = o / p_.out_channels_per_group(), within = o % p_.out_channels_per_group();
          for (std::int64_t c = 0; c < p_.in_channels_per_group(); ++c)
            store<Out>(a.weight.data, at(a.weight, group, {within, k[0], k[1], k[2], c}), sums.weight_grad(o, k, c));
        });
    }
  }

  template <class Out>
  static void store(std::byte* base, std::int64_t offset, double v) {
    reinterpret_cast<Out*>(base)[offset] = from_double<Out>(v);
  }

  // Rows (outer, D, H) are the tasks.
  template <class F>
  static void for_pixels(std::int64_t outer, const Extent3& extent, F&& f) {
    thread_pool().run(outer * extent[0] * extent[1], [&](std::int64_t row) {
      const std::int64_t h = row % extent[1], d = row / extent[1] % extent[0], n = row / (extent[1] * extent[0]);
      for (std::int64_t w = 0; w < extent[2]; ++w) {
        check_job();
        f(n, Extent3{d, h, w});
      }
    });
  }

  double finish(const Operands<Device>& a, std::int64_t n, const Extent3& o3, std::int64_t o, double sum) const {
    return with_type(accumulator(p_.dtype), [&](auto zero) -> double {
      using T = decltype(zero);
      const auto read = [](const std::byte* base, std::int64_t i) {
        return double(to_float(reinterpret_cast<const T*>(base)[i]));
      };
      if (p_.epilogue.addend) sum += read(a.addend.data, at(a.addend, {n, o3[0], o3[1], o3[2], o}));
      if (p_.epilogue.bias) sum += read(a.bias, o);
      return activate(sum, p_.epilogue);
    });
  }

  ConvProblem p_;
};

Support supports(const ConvProblem&, const Context<Device>&) { return Support::yes(); }

// One multiply-add takes about 4 ns with its index arithmetic, and so does each element that is written.
double seconds(const ConvProblem& p, const Context<Device>& c) {
  const double steps = p.flops() / 2 + static_cast<double>(p.written_elements());
  return c.traits.launch_seconds + steps * 4e-9 / c.traits.threads;
}

}  // namespace

const Algorithm<Device> kReference{"reference", supports, seconds, make_plan<ReferencePlan>};

}  // namespace vkconv::cpu
