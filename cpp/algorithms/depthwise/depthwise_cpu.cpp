// depthwise: every channel has its own filters (groups == in_channels, any multiplier). No sum crosses channels, so a
// matrix product has nothing to share; the kernels hold weights and several output columns in registers and run at
// the rate of the FMA units or of memory. Wins whenever it applies. Weights are read as [tap][channel]. Of a dilated
// input the phases take turns (depthwise_phases.h).
#include <algorithm>
#include <vector>

#include "algorithms/depthwise/depthwise_blocking.h"
#include "algorithms/registry_cpu.h"
#include "cpu/estimates.h"
#include "cpu/half_vectors.h"
#include "cpu/job.h"
#include "cpu/lines.h"
#include "cpu/streaming.h"
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
      : DepthwisePlan(p, with_vectors_of(p, context.traits), context.workspace_limit_bytes) {}

  std::string describe() const override { return "depthwise"; }
  std::size_t workspace_bytes() const override { return blocking_.workspace_bytes(); }
  std::string weight_layout() const override { return "depthwise" + orientation_.axes_text(); }

  std::size_t prepared_bytes() const override { return blocking_.weight_bytes; }
  PreparedWeights<Device> prepare_in(std::byte* to, Device::Stream&,
                                     const WeightView<std::byte*>& weight) const override {
    pack_all(phases_.whole, orientation_.apply(weight), blocking_.weight_row_length, to);
    return {to};
  }

  void execute(Device::Stream&, const Operands<Device>& given, std::byte* workspace) const override {
    const std::vector<Call> calls = calls_of(orientation_.apply(given), workspace);
    const ConvProblem& p = phases_.largest;
    const std::int64_t rows = total_rows(p, blocking_), tasks = blocking_.tasks;
    thread_pool().run(tasks, [&](std::int64_t task) {
      std::byte* scratch =
          workspace + blocking_.weight_bytes + static_cast<std::size_t>(task) * blocking_.scratch_bytes;
      const Range share = nth_part(rows, task, tasks);
      for (std::int64_t part = 0; part < blocking_.channel_blocks; ++part)
        for (std::int64_t row = share.begin; row < share.end;) {
          check_job();
          const Block block = block_at(p, blocking_, row, share.end - row, part);
          for (const Call& call : calls) {
            const Block own = part_of_phase(call.p, block);
            if (own.oh.size() > 0) run_block(call, own, scratch);
          }
          row += block.oh.size();
        }
    });
  }

 private:
  DepthwisePlan(const ConvProblem& p, const Device::Traits& traits, std::size_t limit)
      : orientation_(row_orientation(p, lanes_of(traits, p.dtype))),
        phases_(orientation_.apply(p)),
        blocking_(choose_blocking(phases_, traits, limit)),
        half_vectors_(traits.vector_bytes == kHalfVectorBytes && has_half_vectors()) {}

  // One for each phase; weights are those prepared, or packed into the workspace.
  std::vector<Call> calls_of(const Operands<Device>& operands, std::byte* workspace) const {
    const ConvProblem& whole = phases_.whole;
    const std::int64_t length = blocking_.weight_row_length;
    if (!operands.prepared) pack_all(whole, operands.weight, length, workspace);
    const std::byte* packed = operands.prepared ? operands.prepared->data : workspace;
    const Extent3 tap{whole.kernel[1] * whole.kernel[2] * length, whole.kernel[2] * length, length};
    std::vector<Call> calls;
    calls.reserve(phases_.list.size());
    for (const auto& [problem, slice] : phases_.list) {
      PackedWeights weights{packed, {}};
      for (std::size_t a = 0; a < 3; ++a) {
        weights.data += slice.tap_start[a] * tap[a] * accumulator_bytes(whole.dtype);
        weights.tap[a] = slice.tap_step[a] * tap[a];
      }
      calls.push_back({problem, sliced(operands, slice, whole), weights, blocking_.mode, half_vectors_,
                       blocking_.stream, blocking_.align_inputs, blocking_.narrow});
    }
    return calls;
  }

  Orientation orientation_;
  Phases phases_;  // with their axes in the order of the orientation
  Blocking blocking_;
  bool half_vectors_;  // of the kernels
};

Support supports(const ConvProblem& p, const Context<Device>& context) {
  if (Support s = forward_support(p); !s) return s;
  if (!p.depthwise()) return Support::no("groups differ from the input channels");
  const Device::Traits traits = with_vectors_of(p, context.traits);
  const std::int64_t lanes = lanes_of(traits, p.dtype);
  if (p.input_dilated()) {
    if (p.out_channels < lanes) return Support::no("the input is dilated and its channels fill no vector");
    if (p.out_channels_per_group() > 1)
      return Support::no("the input is dilated and its channels have several filters");
    if (Support s = TransposePhases::supports(p, traits); !s) return s;
  }
  const Phases phases = row_orientation(p, lanes).apply(p);
  if (phases.dilated() && phases.empty()) return Support::no("the input is dilated and some outputs see no tap");
  const std::size_t least = choose_blocking(phases, traits, 0).workspace_bytes();
  return workspace_support("weights and a staged row", least, context);
}

// Lines and columns of the input that blocks copy, once for each, over those that there are.
double times_copied(const ConvProblem& p, const Blocking& b) {
  const std::int64_t rows = std::clamp<std::int64_t>(total_rows(p, b) / b.tasks, 1, b.band);
  const std::int64_t columns = ceil_div(p.output[2], b.column_blocks);
  const auto copied = [&](int axis, std::int64_t outputs) {
    const std::int64_t read = std::min(inputs_under(p, axis, outputs), p.input[axis]);
    return static_cast<double>(ceil_div(p.output[axis], outputs) * read) / static_cast<double>(p.input[axis]);
  };
  return copied(0, 1) * copied(1, rows) * copied(2, columns);
}

// What blocks take, in multiply-adds of a vector, by regression on Zen 4. Vectors over channels: an output begins and
// ends, a tile of a row and its vectors do, a line of taps that is inside the input does; a vector is copied, with its
// channels repeated or as it is; inputs that no other tap shares are loaded for each.
double vector_operations(const ConvProblem& p, const Blocking& b, const Device::Traits& t, std::int64_t lanes) {
  constexpr double kOutput = 5, kTile = 40, kLine = 7, kRepeated = 5, kCopied = 1;
  constexpr std::int64_t kNarrow = 8, kWide = 14, kLineTaps = 7;  // columns of a tile, taps of a line
  const std::int64_t step = std::min(dense_step(p, 2), p.output[2]), columns = ceil_div(p.output[2], step);
  const bool shared = dense_stride(p, 2) <= 2;
  const bool wide = dense_stride(p, 2) != 2 && columns > 2 * kNarrow;
  const auto tiles = static_cast<double>(step * ceil_div(columns, wide ? kWide : kNarrow));
  const double inside = share_inside(p, 0) * share_inside(p, 1);  // of the lines
  const auto vectors = static_cast<double>(ceil_div(p.out_channels, lanes));
  const double taps = inside * static_cast<double>(p.taps());
  const double together = takes_row_pairs(p) ? 2 : 1;
  const double height = static_cast<double>(p.kernel[1]) + (together - 1) * static_cast<double>(p.stride[1]);
  const double lines =
      static_cast<double>(p.kernel[0] * ceil_div(p.kernel[2], shared ? kLineTaps : 1)) * height * inside;
  const double row = vectors * static_cast<double>(p.output[2]) * (taps * (shared ? 1 : 2) + kOutput) +
                     tiles * (kTile + vectors * (kTile + kLine * lines) / together);
  // L2 has no room for repeated channels where the arrays fill it.
  const bool room = p.bytes_moved() <= own_cache_bytes(t);
  const double slower = room ? 1 : t.cache_bytes_per_second / t.shared_cache_bytes_per_second;
  const double copy = p.out_channels_per_group() > 1 ? kRepeated * slower : kCopied;
  const double copied = b.mode == Mode::direct ? 0 : copy * vectors * times_copied(p, b);
  return static_cast<double>(p.batch * p.output[0] * p.output[1]) * row +
         static_cast<double>(p.batch * p.input_pixels()) * copied;
}

// The same of vectors over columns and channels, which cross cache lines: the rest of a row, which fills no tile, goes
// by single vectors, and pixels are copied by themselves where their channels repeat or their columns are sorted.
double flat_vector_operations(const ConvProblem& p, const Blocking& b, const Device::Traits& t, std::int64_t lanes) {
  constexpr double kLoad = 0.5, kOutput = 9, kTap = 8, kRow = 120, kLine = 120, kCopied = 4, kPixel = 6,
                   kNarrowPixel = 2.5;  // of four channels at most
  const std::int64_t row = p.output[2] * p.out_channels, tile = kFlatVectors * lanes;
  const auto tiles = static_cast<double>(row / tile + ceil_div(row % tile, lanes));
  const auto vectors = static_cast<double>(ceil_div(row, lanes)), taps = static_cast<double>(p.taps());
  const bool together = p.kernel[1] > 1 && p.stride[1] == 1 && p.dilation[1] == 1;
  const double loads = vectors * (kLoad * taps + kOutput) + tiles * taps * kTap / (together ? kMaxFlatRows : 1) + kRow;
  const bool by_pixel = p.out_channels > p.in_channels || p.stride[2] > 1;
  const double alone = !by_pixel ? 0 : p.out_channels <= 4 ? kNarrowPixel : kPixel;
  const double of_pixel = kCopied * static_cast<double>(p.out_channels) / static_cast<double>(lanes) + alone;
  const double of_line = static_cast<double>(p.input[2]) * of_pixel + kLine;
  const auto rows = static_cast<double>(p.batch * p.output[0] * p.output[1]);
  const double copied = static_cast<double>(p.batch * p.input[0] * p.input[1]) * of_line * times_copied(p, b);
  return rows * vectors * taps + other_operations(t) * (rows * loads + copied);
}

double seconds(const ConvProblem& given, const Context<Device>& context) {
  const Device::Traits t = with_vectors_of(given, context.traits);
  const std::int64_t lanes = lanes_of(t, given.dtype);
  const Phases phases = row_orientation(given, lanes).apply(given);
  const Blocking b = choose_blocking(phases, t, context.workspace_limit_bytes);
  double operations = 0;
  for (const auto& [p, slice] : phases.list)
    operations += b.mode == Mode::flat ? flat_vector_operations(p, b, t, lanes) : vector_operations(p, b, t, lanes);
  const double compute = operations / vector_products_per_second(t, given.dtype) * uneven_share(t, b.tasks);
  return section_seconds(t, compute, given.bytes_moved(), b.tasks);
}

}  // namespace
}  // namespace depthwise

const Algorithm<Device> kDepthwise{"depthwise", depthwise::supports, depthwise::seconds,
                                   make_plan<depthwise::DepthwisePlan>};

}  // namespace vkconv::cpu
