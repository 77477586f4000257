// depthwise: every channel has its own filters (groups == in_channels, any multiplier). No sum crosses channels, so a
// matrix product has nothing to share; the kernels hold weights and several output columns in registers and run at
// the rate of the FMA units or of memory. Wins whenever it applies. Weights are read as [tap][channel].
#include <algorithm>

#include "algorithms/depthwise/depthwise_blocking.h"
#include "algorithms/registry_cpu.h"
#include "cpu/estimates.h"
#include "cpu/job.h"
#include "cpu/lines.h"
#include "cpu/thread_pool.h"

namespace vkconv::cpu {
namespace depthwise {
namespace {

void pack_all(const ConvProblem& p, const WeightView<std::byte*>& weight, std::int64_t row_length, std::byte* to) {
  constexpr std::int64_t kLeast = 4096;                               // weights a task, about 1 us
  const std::int64_t line = kLineBytes / accumulator_bytes(p.dtype);  // channels, so that no two tasks write one
  const std::int64_t even = ceil_div(p.out_channels, std::int64_t{thread_pool().size()});
  const std::int64_t size = round_up(std::max(even, ceil_div(kLeast, p.taps())), line);
  thread_pool().run(ceil_div(p.out_channels, size), [&](std::int64_t part) {
    const Range channels{part * size, std::min((part + 1) * size, p.out_channels)};
    pack_weights(p, weight, channels, row_length, to);
  });
}

class DepthwisePlan final : public Plan<Device> {
 public:
  DepthwisePlan(const ConvProblem& p, const Context<Device>& context)
      : orientation_(row_orientation(p, lanes_of(context.traits, p.dtype))),
        p_(orientation_.apply(p)),
        blocking_(choose_blocking(p_, context.traits, context.workspace_limit_bytes)) {}

  std::string describe() const override { return "depthwise"; }
  std::size_t workspace_bytes() const override { return blocking_.workspace_bytes(); }
  std::string weight_layout() const override { return "depthwise" + orientation_.axes_text(); }

  PreparedWeights<Device> prepare(Device::Stream&, const WeightView<std::byte*>& weight) const override {
    PreparedWeights<Device> prepared;
    prepared.data = Buffer(blocking_.weight_bytes);
    pack_all(p_, orientation_.apply(weight), blocking_.weight_row_length, prepared.data.pointer());
    return prepared;
  }

  void execute(Device::Stream&, const Operands<Device>& given, std::byte* workspace) const override {
    const Operands<Device> operands = orientation_.apply(given);
    PackedWeights weights{workspace, blocking_.weight_row_length};
    if (operands.prepared)
      weights.data = operands.prepared->data.pointer();
    else
      pack_all(p_, operands.weight, weights.row_length, workspace);
    const Call call{p_, operands, weights, blocking_.mode, blocking_.stream, blocking_.align_inputs, blocking_.narrow};
    const std::int64_t rows = total_rows(p_, blocking_), tasks = blocking_.tasks;
    thread_pool().run(tasks, [&](std::int64_t task) {
      std::byte* scratch =
          workspace + blocking_.weight_bytes + static_cast<std::size_t>(task) * blocking_.scratch_bytes;
      const Range share{rows * task / tasks, rows * (task + 1) / tasks};
      for (std::int64_t part = 0; part < blocking_.channel_blocks; ++part)
        for (std::int64_t row = share.begin; row < share.end;) {
          check_job();
          const Block block = block_at(p_, blocking_, row, share.end - row, part);
          run_block(call, block, scratch);
          row += block.oh.size();
        }
    });
  }

 private:
  Orientation orientation_;
  ConvProblem p_;  // with its axes in the order of the orientation
  Blocking blocking_;
};

Support supports(const ConvProblem& p, const Context<Device>& context) {
  if (Support s = forward_support(p); !s) return s;
  if (!p.depthwise()) return Support::no("groups differ from the input channels");
  if (p.input_dilated()) return Support::no("the input is dilated");
  const ConvProblem oriented = row_orientation(p, lanes_of(context.traits, p.dtype)).apply(p);
  const std::size_t least = choose_blocking(oriented, context.traits, 0).workspace_bytes();
  return workspace_support("weights and a staged row", least, context);
}

// Of vectors over channels: lanes that are used. Fewer channels are flat, where vectors of input cross cache lines and
// the rest of a row, which fills no tile, is slower.
double used_share(const ConvProblem& p, std::int64_t lanes) {
  constexpr double kFlat = 0.5, kRest = 0.4;
  const std::int64_t row = p.output[2] * p.out_channels, tile = kFlatVectors * lanes;
  if (p.out_channels < lanes)
    return kFlat * (static_cast<double>(row / tile * tile) + kRest * static_cast<double>(row % tile)) /
           static_cast<double>(row);
  return static_cast<double>(p.out_channels) / static_cast<double>(round_up(p.out_channels, lanes));
}

// Of the copy that flat and staged blocks read.
double copying_seconds(const ConvProblem& p, const Device::Traits& t, std::int64_t lanes) {
  constexpr double kPixelSeconds = 1e-9;  // of a flat pixel that is copied by itself
  const bool repeated = p.out_channels > p.in_channels, flat = p.out_channels < lanes;
  const auto pixels = static_cast<double>(p.batch * p.input_pixels());
  if (flat && (repeated || p.stride[2] > 1)) return kPixelSeconds * pixels / t.threads;
  if (!flat && !repeated) return 0;
  // Written and read, in L2; repeated channels are fetched first, and L2 has no room where the arrays fill it.
  const double bytes = pixels * static_cast<double>(p.out_channels) * static_cast<double>(accumulator_bytes(p.dtype));
  const bool room = flat || p.bytes_moved() <= t.threads * static_cast<double>(t.l2_bytes);
  return (flat ? 2 : 3) * bytes / (room ? t.cache_bytes_per_second : t.shared_cache_bytes_per_second);
}

double seconds(const ConvProblem& given, const Context<Device>& context) {
  constexpr double kFlopShare = 0.7;  // of the FMA peak, in kernels of 5x5 and larger
  const auto& t = context.traits;
  const std::int64_t lanes = lanes_of(t, given.dtype);
  const ConvProblem p = row_orientation(given, lanes).apply(given);
  const double rate = kFlopShare * used_share(p, lanes) * flops_per_second(t, accumulator(p.dtype));
  const std::int64_t tasks = choose_blocking(p, t, context.workspace_limit_bytes).tasks;
  return section_seconds(t, p.flops() / rate + copying_seconds(p, t, lanes), p.bytes_moved(), tasks);
}

}  // namespace
}  // namespace depthwise

const Algorithm<Device> kDepthwise{"depthwise", depthwise::supports, depthwise::seconds,
                                   make_plan<depthwise::DepthwisePlan>};

}  // namespace vkconv::cpu
