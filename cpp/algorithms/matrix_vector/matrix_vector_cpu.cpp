// matrix_vector: a few vectors times the weights as a matrix, as in linear layers, squeeze-and-excitation, kernels as
// large as the image, and the gradients and transposed convolutions of these. Every weight is used once or a few times,
// so it is read once, where it is, and never packed; the bound is the memory. Where the terms of a sum lie side by side
// they are the lanes of a vector, where outputs do they are; both ways make the same sums in the same order. Source:
// the dot products and column sums of a BLAS gemv.
#include "algorithms/matrix_vector/matrix_vector.h"

#include <string>

#include "algorithms/registry_cpu.h"
#include "core/geometry.h"
#include "cpu/estimates.h"

namespace vkconv::cpu {
namespace matrix_vector {
namespace {

constexpr std::int64_t kTasksAThread = 4;
constexpr double kMinTaskBytes = 128 << 10;  // of weights; far above the cost of starting a task

// Whether every output meets `taps` taps along every axis.
bool meets(const ConvProblem& p, const Extent3& taps) {
  for (std::size_t axis = 0; axis < 3; ++axis)
    for (std::int64_t o = 0; o < p.output[axis]; ++o)
      if (taps_inside(p, static_cast<int>(axis), o).size() != taps[axis]) return false;
  return true;
}

bool spreads(const ConvProblem& p) { return p.output_pixels() > 1 && p.input_pixels() == 1 && meets(p, {1, 1, 1}); }

std::int64_t vectors(const ConvProblem& p) { return spreads(p) ? p.batch : p.batch * p.output_pixels(); }

Layout layout(const ConvProblem& p, const Context<Device>& context) {
  Layout s;
  s.p = p;
  s.spread = spreads(p);
  s.vectors = vectors(p);
  s.parts = s.spread ? p.output_pixels() : 1;
  s.terms = (s.spread ? 1 : p.taps()) * p.in_channels_per_group();
  s.slots = context.traits.threads;
  const double rows = static_cast<double>(p.out_channels * s.parts);
  const double bytes = rows * static_cast<double>(s.terms) * static_cast<double>(size_bytes(p.dtype));
  const double wanted = std::min(bytes / kMinTaskBytes, static_cast<double>(kTasksAThread * s.slots));
  const auto task_rows = static_cast<std::int64_t>(rows / std::max(1.0, wanted));
  s.task_rows = round_up(std::clamp<std::int64_t>(task_rows, 1, p.out_channels_per_group()), kRowsTogether);
  while (s.slots > 1 && s.workspace_bytes() > context.workspace_limit_bytes) --s.slots;
  return s;
}

class MatrixVectorPlan final : public Plan<Device> {
 public:
  MatrixVectorPlan(const ConvProblem& p, const Context<Device>& context) : layout_(layout(p, context)) {}
  std::string describe() const override { return "matrix_vector"; }
  std::size_t workspace_bytes() const override { return layout_.workspace_bytes(); }
  void execute(Device::Stream&, const Operands<Device>& operands, std::byte* workspace) const override {
    run(layout_, operands, workspace);
  }

 private:
  Layout layout_;
};

Support supports(const ConvProblem& p, const Context<Device>& c) {
  if (Support s = forward_support(p); !s) return s;
  if (p.input_dilated()) return Support::no("the input is dilated");
  if (vectors(p) > kMostVectors)
    return Support::no("it computes up to " + std::to_string(kMostVectors) + " output pixels, there are " +
                       std::to_string(vectors(p)));
  if (!spreads(p) && !meets(p, p.kernel)) return Support::no("some outputs read padding");
  return workspace_support("the windows and rows of weights", layout(p, c).workspace_bytes(), c);
}

// Vectors of multiply-adds, loads of the weights, each of which serves all windows, and sums across lanes.
double seconds(const ConvProblem& p, const Context<Device>& c) {
  constexpr double kShare = 0.85;                         // of the peak rate, measured
  constexpr double kLoadVectors = 3.5, kSumVectors = 16;  // a vector of weights and a sum take as long as so many
  const Layout s = layout(p, c);
  const std::int64_t lanes = lanes_of(c.traits, p.dtype);
  const double weights = static_cast<double>(p.out_channels * s.parts) * static_cast<double>(ceil_div(s.terms, lanes));
  const double windows = static_cast<double>(s.vectors), sums = static_cast<double>(p.output_elements());
  const double flops = 2 * static_cast<double>(lanes) * (weights * (windows + kLoadVectors) + sums * kSumVectors);
  const double rate = kShare * flops_per_second(c.traits, accumulator(p.dtype));
  const double copied = c.traits.threads * windows * static_cast<double>(p.groups * s.terms);  // by one thread
  const double work = flops / rate * uneven_share(c.traits, s.tasks()) + copied * 8 / c.traits.cache_bytes_per_second;
  return section_seconds(c.traits, work, p.bytes_moved(), s.tasks());
}

}  // namespace
}  // namespace matrix_vector

const Algorithm<Device> kMatrixVector{"matrix_vector", matrix_vector::supports, matrix_vector::seconds,
                                      make_plan<matrix_vector::MatrixVectorPlan>};

}  // namespace vkconv::cpu
