// Twenty calls that reach every algorithm and every way through a backend, for tests that make something fail in them.
#pragma once
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "core/backend.h"
#include "harness.h"

namespace vkconv::tools {

enum class Way {
  host,      // host arrays
  prepared,  // prepared weights, used twice
  resident,  // arrays of the device, two calls recorded one after the other
  timed      // host arrays, and the device's clock
};

struct FaultCall {
  const char* problem;
  Way way = Way::host;
};

// VKCONV_FULL=1 asks for everything; else tests do a share.
inline bool full() { return std::getenv("VKCONV_FULL") != nullptr; }

inline constexpr FaultCall kFaultCalls[] = {
    {"fwd_f32_n1c8o8_i12x10_k3x3_p1x1_relu", Way::resident},
    {"fwd_f32_n2c24o40_i13x11_k3x3_p1x1_bias_silu"},
    {"fwd_f32_n1c16o16_i9x9_k3x3_p1x1_bias", Way::prepared},
    {"fwd_f32_n1c8o8_i12x10_k3x3_p1x1", Way::timed},
    {"fwd_f32_n1c33o17_i40_k7_s2_p3"},
    {"fwd_f32_n2c16o20_i6x7x8_k3x3x3_p1x1x1", Way::prepared},
    {"fwd_f32_n2c40o40g40_i15x13_k5x5_p2x2"},
    {"fwd_f32_n1c8o8g8_i400_k129_p64", Way::prepared},
    {"fwd_f32_n2c8o12_i7x8_k4x4_t2x2_p2x2", Way::resident},
    {"fwd_f32_n1c16o16_i12x12_k3x3_d2x2_p2x2"},
    {"fwd_f32_n1c1o1_i40x30_k9x9_p4x4"},
    {"fwd_f32_n1c70o60_i9x9_k1x1", Way::prepared},
    {"fwd_f32_n1c12o12g4_i9x9_k3x3_p1x1", Way::resident},
    {"fwd_bf16_n2c24o40_i13x11_k3x3_p1x1"},
    {"fwd_f16_n2c64o48_i9x9_k1x1", Way::prepared},
    {"fwd_f64_n2c9o10_i9x9_k3x3_p1x1"},
    {"igrad_f32_n2c12o20_i13x11_k3x3_s2x2_p1x1"},
    {"wgrad_f32_n3c12o20_i17x19_k3x3_p1x1", Way::timed},
    {"wgrad_f32_n3c24o24g24_i17x19_k3x3_p1x1"},
    {"fwd_f32_n1c4o4_i300x250_k3x3_p1x1"},  // large enough for import and for several tasks
};

// One of them with its arrays. Every run() gives the same bits.
class Call {
 public:
  Call(const FaultCall& call, Backend& backend)
      : way_(call.way),
        backend_(backend),
        problem_(parse_problem(call.problem)),
        arrays_(make_arrays(problem_, Data::small_integers)) {}

  std::vector<double> run() const {
    HostOperands host(problem_, arrays_);
    if (way_ == Way::resident) return run_resident(host);
    double seconds = 0;
    std::shared_ptr<PreparedConv> prepared;
    if (way_ == Way::prepared) prepared = backend_.prepare(problem_, host.operands);
    const Execution execution{host.operands, prepared.get(), {}, way_ == Way::timed ? &seconds : nullptr};
    for (int i = 0; i < (prepared ? 2 : 1); ++i) backend_.execute(request(), execution);
    return host.result(problem_);
  }

 private:
  PlanRequest request() const { return {problem_, ""}; }

  StridedArray flat(std::int64_t elements, std::byte* data) const {
    return packed({nullptr, {1, 1, 1, 1, 1, elements}, {}, size_bytes(problem_.dtype)}, data);
  }

  // Two calls: where the shapes allow it the second reads what the first writes, and writes over the input.
  std::vector<double> run_resident(HostOperands& host) const {
    const std::int64_t inputs = problem_.input_elements(), outputs = problem_.output_elements();
    auto from = backend_.upload(flat(inputs, host.input.data()));
    auto to = backend_.allocate(static_cast<std::size_t>(outputs) * size_bytes(problem_.dtype));
    for (int i = 0; i < 2; ++i) {
      if (i > 0 && inputs == outputs) std::swap(from, to);
      Execution execution{.operands = host.operands, .residents = {.input = from.get(), .output = to.get()}};
      execution.operands.input.data = from->address();
      execution.operands.output.data = to->address();
      backend_.execute(request(), execution);
    }
    backend_.download(*to, flat(outputs, to->address()), flat(outputs, host.output.data()));
    return host.result(problem_);
  }

  const Way way_;
  Backend& backend_;
  const ConvProblem problem_;
  const Arrays arrays_;
};

}  // namespace vkconv::tools
