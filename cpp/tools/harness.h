// Runs one problem on one device from plain vectors and measures its error. Used by the bench tool and the unit tests.
#pragma once
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "core/algorithm.h"
#include "core/dispatch.h"
#include "core/planner.h"
#include "cpu/device.h"

namespace vkconv::tools {

// The arrays of a problem as doubles that the operand type represents exactly.
struct Arrays {
  std::vector<double> input, weight, output, bias, addend;
};

enum class Data { random, small_integers };

inline std::vector<double> make_values(std::int64_t count, DType t, Data data, std::mt19937& random) {
  std::vector<double> v(static_cast<std::size_t>(count));
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::uniform_int_distribution<int> integer(-3, 3);
  for (double& x : v) {
    x = data == Data::random ? uniform(random) : integer(random);
    with_type(t, [&](auto zero) { x = to_float(from_double<decltype(zero)>(x)); });
  }
  return v;
}

inline Arrays make_arrays(const ConvProblem& p, Data data, unsigned seed = 1) {
  std::mt19937 random(seed);
  Arrays a;
  a.input = make_values(p.input_elements(), p.dtype, data, random);
  a.weight = make_values(p.weight_elements(), p.dtype, data, random);
  a.output = make_values(p.output_elements(), p.dtype, data, random);
  if (p.epilogue.bias) a.bias = make_values(p.out_channels, accumulator(p.dtype), data, random);
  if (p.epilogue.addend) a.addend = make_values(p.output_elements(), accumulator(p.dtype), data, random);
  return a;
}

inline std::vector<std::byte> encode(const std::vector<double>& v, DType t) {
  std::vector<std::byte> bytes(v.size() * size_bytes(t) + 64);
  with_type(t, [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t i = 0; i < v.size(); ++i) {
      const T x = from_double<T>(v[i]);
      std::memcpy(bytes.data() + i * sizeof(T), &x, sizeof(T));
    }
  });
  return bytes;
}

inline std::vector<double> decode(const std::byte* bytes, std::int64_t count, DType t) {
  std::vector<double> v(static_cast<std::size_t>(count));
  with_type(t, [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t i = 0; i < v.size(); ++i) {
      T x;
      std::memcpy(&x, bytes + i * sizeof(T), sizeof(T));
      v[i] = to_float(x);
    }
  });
  return v;
}

// Encoded arrays and the operands that point into them. The written array starts as NaN.
struct HostOperands {
  std::vector<std::byte> input, weight, output, bias, addend;
  Operands<cpu::Device> operands;
  std::byte* written = nullptr;

  HostOperands(const ConvProblem& p, const Arrays& a)
      : input(encode(a.input, p.dtype_of(Pass::input_grad))),
        weight(encode(a.weight, p.dtype_of(Pass::weight_grad))),
        output(encode(a.output, p.dtype_of(Pass::forward))),
        bias(encode(a.bias, accumulator(p.dtype))),
        addend(encode(a.addend, accumulator(p.dtype))) {
    auto& target = p.pass == Pass::forward ? output : p.pass == Pass::input_grad ? input : weight;
    std::memset(target.data(), 0xff, target.size());
    written = target.data();
    operands.input = contiguous_view(input.data(), p.input, p.in_channels);
    operands.output = contiguous_view(output.data(), p.output, p.out_channels);
    operands.addend = contiguous_view(addend.data(), p.output, p.out_channels);
    operands.weight = contiguous_weight(weight.data(), p);
    if (p.flip) operands.weight = operands.weight.mirrored(p.kernel, p.dtype_of(Pass::weight_grad));
    operands.bias = bias.data();
  }

  // The array that the pass writes.
  std::vector<double> result(const ConvProblem& p) const {
    return decode(written, p.written_elements(), p.output_dtype);
  }
};

// Canonical problem for planning: the mirrored weight view stands for `flip`.
inline ConvProblem without_flip(ConvProblem p) {
  p.flip = false;
  return canonical(p);
}

// The array that the pass writes. The operands may be other views of the arrays than they were made with.
inline std::vector<double> run_cpu(const ConvProblem& p, const HostOperands& host, Planner<cpu::Device>& planner,
                                   const std::string& algorithm,
                                   std::size_t workspace_limit = kDefaultWorkspaceLimitBytes, bool prepare = false) {
  const auto plan = planner.plan({without_flip(p), algorithm, workspace_limit});
  cpu::Device::Stream stream;
  cpu::Buffer workspace(plan->workspace_bytes());
  Operands<cpu::Device> operands = host.operands;
  PreparedWeights<cpu::Device> prepared;
  if (prepare) {
    prepared = plan->prepare(stream, operands.weight);
    operands.prepared = &prepared;
  }
  plan->execute(stream, operands, workspace.pointer());
  return host.result(p);
}

inline std::vector<double> run_cpu(const ConvProblem& p, const Arrays& a, Planner<cpu::Device>& planner,
                                   const std::string& algorithm,
                                   std::size_t workspace_limit = kDefaultWorkspaceLimitBytes, bool prepare = false) {
  HostOperands host(p, a);
  return run_cpu(p, host, planner, algorithm, workspace_limit, prepare);
}

// Absolute values: sums of them only grow.
inline Arrays magnitudes(Arrays a) {
  for (auto* v : {&a.input, &a.weight, &a.output, &a.bias, &a.addend})
    for (double& x : *v) x = std::abs(x);
  return a;
}

// Sums of |x||w| behind every written element, without epilogue.
inline std::vector<double> run_magnitudes(ConvProblem p, const Arrays& a, Planner<cpu::Device>& planner) {
  p.dtype = p.output_dtype = DType::f64;
  p.epilogue.activation = Activation::identity;
  return run_cpu(p, magnitudes(a), planner, "reference");
}

inline std::vector<double> run_exact(ConvProblem p, const Arrays& a, Planner<cpu::Device>& planner) {
  p.dtype = p.output_dtype = DType::f64;
  return run_cpu(p, a, planner, "reference");
}

struct Accuracy {
  double c = 0;        // max |y - y64| / (u * sum |x||w|), u the accumulator's unit roundoff
  double rounded = 1;  // share of outputs equal to the correctly rounded fp64 result
  bool finite = true;
};

// Unit roundoff: half the distance between 1 and the next larger number.
constexpr double unit_roundoff(DType t) {
  switch (t) {
    case DType::f64:
      return 0x1p-53;
    case DType::f32:
      return 0x1p-24;
    case DType::f16:
      return 0x1p-11;
    case DType::bf16:
      return 0x1p-8;
  }
  return 0;
}

inline Accuracy accuracy(const ConvProblem& p, std::span<const double> got, std::span<const double> exact,
                         std::span<const double> magnitude) {
  Accuracy a;
  std::size_t equal = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    double nearest = 0;
    with_type(p.output_dtype, [&](auto zero) { nearest = to_float(from_double<decltype(zero)>(exact[i])); });
    equal += got[i] == nearest;
    if (std::isinf(nearest) && got[i] == nearest) continue;  // the exact result is beyond the type's range
    if (!std::isfinite(got[i])) a.finite = false;
    const double scale = unit_roundoff(p.output_dtype) * magnitude[i];
    const double error = std::abs(got[i] - exact[i]);
    if (error > 0) a.c = std::max(a.c, scale > 0 ? error / scale : HUGE_VAL);
  }
  if (!got.empty()) a.rounded = static_cast<double>(equal) / static_cast<double>(got.size());
  return a;
}

inline Accuracy accuracy(const ConvProblem& p, const Arrays& a, std::span<const double> got,
                         Planner<cpu::Device>& planner) {
  return accuracy(p, got, run_exact(p, a, planner), run_magnitudes(p, a, planner));
}

}  // namespace vkconv::tools
