// fft_depthwise: one-dimensional depthwise convolution with a long kernel, by fast Fourier transforms: log2(size)
// products an output instead of one a tap. Wins from a few hundred taps on, where sequence models filter whole lines.
//
// Transforms run in double precision, so that the one rounding to float is all that is seen: with u = 2^-53 the error
// of an output before it is below 16 u log2(size) |x| |w|, the Euclidean norms of its channel's input in the block and
// of its kernel, and results below that are zero. It is absolute: outputs more than 2^28 times smaller than |x| |w|
// have fewer right bits than a direct sum gives, and so precision "highest" is refused. A block with an infinity or a
// NaN is summed directly.
//
// Source: overlap-save, Oppenheim & Schafer, Discrete-Time Signal Processing, 8.7.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "algorithms/fft_depthwise/fft_depthwise.h"
#include "algorithms/registry_cpu.h"
#include "cpu/estimates.h"
#include "cpu/scratch.h"

namespace vkconv::cpu {
namespace fft_depthwise {

std::vector<double> make_twiddles(std::int64_t size) {
  std::vector<double> t;
  for (std::int64_t n = size; n >= 8; n /= 4)
    for (std::int64_t j = 0; j < n / 4; ++j)
      for (std::int64_t i = 1; i <= 3; ++i) {
        const double angle = -2 * std::numbers::pi * static_cast<double>(i * j) / static_cast<double>(n);
        t.push_back(std::cos(angle));
        t.push_back(std::sin(angle));
      }
  return t;
}

std::size_t scratch_bytes(const Transform& t) {
  return static_cast<std::size_t>(2 * t.size * group_channels()) * sizeof(double);
}

namespace {

double passes(std::int64_t size) { return std::log2(static_cast<double>(size)) / 2; }

std::int64_t lines(const ConvProblem& p) { return p.batch * p.output[0] * p.output[1]; }

// Elements that all passes of a group of channels touch: one transform of the kernel, two a block.
double group_work(const ConvProblem& p, const Transform& t) {
  constexpr double kProduct = 1.5;  // passes that the spectra's product, loads and stores are worth
  const double blocks = static_cast<double>(t.blocks * lines(p)), size = static_cast<double>(t.size);
  return size * (passes(t.size) + kProduct + blocks * (2 * passes(t.size) + 2 * kProduct));
}

// The size with the least work, without its twiddles.
Transform choose_transform(const ConvProblem& p) {
  const std::int64_t reach = dilated(p.kernel[2], p.dilation[2]);
  Transform best;
  double least = 0;
  for (std::int64_t size = 2;; size *= 2) {
    if (size < reach) continue;
    Transform t;
    t.size = size;
    t.outputs = std::min(size - reach + 1, p.output[2]);
    t.blocks = ceil_div(p.output[2], t.outputs);
    const double work = group_work(p, t);
    if (least == 0 || work < least) best = t, least = work;
    if (t.blocks == 1) return best;
  }
}

// Tasks are groups of channels, each with all lines, or with some of them where groups are few.
struct Tasks {
  std::int64_t groups, line_parts;
  int slots;  // of scratch
};

Tasks choose_tasks(const ConvProblem& p, std::size_t slot_bytes, const Context<Device>& context) {
  const int threads = context.traits.threads;
  const std::int64_t groups = ceil_div(p.out_channels, group_channels());
  const std::int64_t parts = std::clamp<std::int64_t>(ceil_div(2 * threads, groups), 1, lines(p));
  const std::size_t fitting = std::max<std::size_t>(context.workspace_limit_bytes / slot_bytes, 1);
  const std::size_t slots = std::min(fitting, static_cast<std::size_t>(threads));
  return {groups, threads == 1 ? 1 : parts, static_cast<int>(slots)};
}

class FftDepthwisePlan final : public Plan<Device> {
 public:
  FftDepthwisePlan(const ConvProblem& p, const Context<Device>& context)
      : p_(p), transform_(choose_transform(p)), tasks_(choose_tasks(p, scratch_bytes(transform_), context)) {
    transform_.twiddles = make_twiddles(transform_.size);
  }

  std::string describe() const override { return "fft_depthwise"; }
  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(tasks_.slots) * scratch_bytes(transform_);
  }

  void execute(Device::Stream&, const Operands<Device>& operands, std::byte* workspace) const override {
    const Call call{p_, operands, transform_};
    ScratchSlots slots(workspace, scratch_bytes(transform_), tasks_.slots);
    slots.run(tasks_.groups * tasks_.line_parts, [&](std::int64_t task, std::byte* scratch) {
      const Range range = nth_part(lines(p_), task % tasks_.line_parts, tasks_.line_parts);
      run_part(call, {task / tasks_.line_parts * group_channels(), range}, scratch);
    });
  }

 private:
  ConvProblem p_;
  Transform transform_;
  Tasks tasks_;
};

Support supports(const ConvProblem& p, const Context<Device>& context) {
  if (Support s = forward_support(p); !s) return s;
  if (!p.depthwise() || p.out_channels != p.in_channels)
    return Support::no("it is for one filter a channel (groups, in and out channels equal)");
  if (p.dtype == DType::f64) return Support::no("it is as exact as float, not as double");
  if (p.precision == Precision::highest) return Support::no("precision highest allows direct sums only");
  if (p.kernel[0] * p.kernel[1] > 1) return Support::no("the kernel is more than one line");
  if (p.stride[2] != 1 || p.input_dilated())
    return Support::no("it is for stride 1 along the line and an input without dilation");
  return workspace_support("transforms", scratch_bytes(choose_transform(p)), context);
}

double seconds(const ConvProblem& p, const Context<Device>& context) {
  constexpr double kPassFlops = 19;  // that the units do while a pass touches one element: measured, 2^9 to 2^14
  const double channels = static_cast<double>(round_up(p.out_channels, group_channels()));
  const double flops = kPassFlops * channels * group_work(p, choose_transform(p));
  return section_seconds(context.traits, flops / context.traits.f64_flops_per_second, p.bytes_moved());
}

}  // namespace
}  // namespace fft_depthwise

const Algorithm<Device> kFftDepthwise{"fft_depthwise", fft_depthwise::supports, fft_depthwise::seconds,
                                      make_plan<fft_depthwise::FftDepthwisePlan>};

}  // namespace vkconv::cpu
