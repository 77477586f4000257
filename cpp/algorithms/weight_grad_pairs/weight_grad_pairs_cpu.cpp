// weight_grad_pairs: the weight gradient of bfloat16 by the processor's dot product of pairs, or by its matrix tiles,
// whose terms are pixels. Those units want two terms side by side, and tiles rows of terms, where channels-last arrays
// have rows of channels: so output gradients are transposed, inputs paired, a chunk of pixels at a time, and one
// product a tap follows. Taps further on along an axis read the same pairs some terms later, so that inputs are packed
// once for a column of taps, of few channels once for all of a row. It wins where the units are faster than
// multiply-adds and channels are enough to pay for the packing. What is not finite is computed again:
// finite_sums_plan.h. Source: the transposed and paired operands of oneDNN's and LIBXSMM's weight updates (Georganas et
// al. 2018, 2021).
#include <algorithm>
#include <cmath>
#include <string>

#include "algorithms/registry_cpu.h"
#include "algorithms/weight_grad/finite_sums_plan.h"
#include "algorithms/weight_grad/weight_grad_support.h"
#include "algorithms/weight_grad_pairs/weight_grad_pairs.h"
#include "core/orientation.h"
#include "cpu/estimates.h"

namespace vkconv::cpu {
namespace weight_grad_pairs {
namespace {

constexpr std::int64_t kMostTaps = 1024;  // each may be compared with all others when a plan is made

Bf16Unit unit_of(const ConvProblem& p, const Traits& t) { return fastest_unit(p, t, 1, 1); }

struct PairSums {
  static constexpr const char* kName = "weight_grad_pairs";
  using Layout = weight_grad_pairs::Layout;

  // Taps along H share what is packed, so that the axis with more of them goes there.
  static Orientation orientation(const ConvProblem& p) {
    Orientation o = extended_axes_last(p);
    const ConvProblem q = o.apply(p);
    if (q.kernel[2] > q.kernel[1] && !without_extent(q, 1)) std::swap(o.axes[1], o.axes[2]);
    return o;
  }
  static Layout layout(const ConvProblem& p, const Context<Device>& c) {
    return choose_layout(p, unit_of(p, c.traits), c.traits, c.workspace_limit_bytes);
  }
  static std::size_t bytes(const ConvProblem& p, const Layout& layout) { return layout.bytes(p); }
  static bool run(const ConvProblem& p, const Layout& layout, const Operands<Device>& operands, std::byte* workspace) {
    return weight_grad_pairs::run(p, layout, operands, workspace);
  }
};

Support supports(const ConvProblem& problem, const Context<Device>& context) {
  if (Support s = weight_grad_support(problem); !s) return s;
  if (problem.dtype != DType::bf16) return Support::no("it is for bfloat16");
  if (problem.precision == Precision::highest) return Support::no("its sums count subnormal numbers as zero");
  if (unit_of(problem, context.traits) == Bf16Unit::none)
    return Support::no("nothing in the processor multiplies bfloat16 as fast as float32");
  if (problem.groups > 1 && problem.in_channels_per_group() == 1) return Support::no("groups have a single channel");
  if (problem.input_dilated()) return Support::no("the input is dilated");
  if (*std::max_element(problem.kernel.begin(), problem.kernel.end()) > kMostTaps)
    return Support::no("it finds the inputs of up to " + std::to_string(kMostTaps) + " taps along an axis");
  const ConvProblem p = PairSums::orientation(problem).apply(problem);
  return workspace_support("packed operands and sums", PairSums::layout(p, context).bytes(p), context);
}

double seconds(const ConvProblem& problem, const Context<Device>& c) {
  const ConvProblem p = PairSums::orientation(problem).apply(problem);
  const Layout s = PairSums::layout(p, c);
  const Traits& t = c.traits;
  constexpr double kShare = 0.7;              // of the peak
  constexpr double kPackedSeconds = 0.15e-9;  // a value, of one thread
  constexpr double kRowSeconds = 1.2e-9;      // finding a row of channels
  const auto slices = static_cast<double>(s.sequence * s.sequences), threads = static_cast<double>(t.threads);
  const std::int64_t out = p.out_channels_per_group();
  const auto rows = static_cast<double>(s.unit == Bf16Unit::tiles ? round_up(out, kTileRows) : out);
  const double products = 2.0 * slices * static_cast<double>(s.terms * s.columns_of_run) * rows *
                          static_cast<double>(p.groups * p.kernel[0] * s.plane_taps());
  const double chunks = std::ceil(slices / static_cast<double>(s.chunk_slices));
  const double input_rows = chunks * static_cast<double>(s.planes * s.runs() * s.run_terms);
  const double gradient_rows = slices * static_cast<double>(s.terms);
  const double again = p.groups == 1 ? static_cast<double>(s.splits) : 1;
  const double packing =
      again * input_rows * (kRowSeconds + kPackedSeconds * static_cast<double>(p.groups * s.columns_of_run)) +
      gradient_rows * (again * kRowSeconds + kPackedSeconds * static_cast<double>(p.out_channels));
  const auto sums = static_cast<double>(s.sum_count(p));
  // Sums are read and written once a chunk, and added up; large ones leave the caches.
  const bool held = 4 * sums < threads * static_cast<double>(t.l2_bytes);
  const auto parts = static_cast<double>(s.pixel_parts);
  const double moved = 8 * sums * chunks / (held ? t.cache_bytes_per_second : t.memory_bytes_per_second) +
                       8 * sums * parts / (held ? t.shared_cache_bytes_per_second : t.memory_bytes_per_second);
  const double compute = products / (kShare * flops_per_second(t, s.unit)) + packing / threads + moved;
  return t.launch_seconds + section_seconds(t, compute, problem.bytes_moved());
}

}  // namespace
}  // namespace weight_grad_pairs

const Algorithm<Device> kWeightGradPairs{weight_grad_pairs::PairSums::kName, weight_grad_pairs::supports,
                                         weight_grad_pairs::seconds,
                                         make_plan<FiniteSumsPlan<weight_grad_pairs::PairSums>>};

}  // namespace vkconv::cpu
