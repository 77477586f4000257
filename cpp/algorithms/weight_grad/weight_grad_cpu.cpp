// weight_grad: the gradient with respect to the weight, for every geometry. The gradient of a tap is the product of
// the input pixels it reads, transposed, with the output gradient; register tiles of (one operand's channels) x
// (vectors of the other's) run down the pixels of a block and read both operands in place. Depthwise problems multiply
// lane by lane; small groups and pixels of few channels share vectors, in whose lanes a permutation spreads the other
// operand. Of few channels, what all taps read for an output are the channels of a patch, and one product does for all.
// It wins wherever winograd_weight_grad and weight_grad_pairs do not apply.
#include <algorithm>

#include "algorithms/registry_cpu.h"
#include "algorithms/weight_grad/weight_grad_partition.h"
#include "algorithms/weight_grad/weight_grad_support.h"
#include "core/dispatch.h"
#include "core/orientation.h"
#include "cpu/estimates.h"
#include "cpu/job.h"
#include "cpu/scratch.h"
#include "cpu/thread_pool.h"

namespace vkconv::cpu {
namespace weight_grad {
namespace {

// A run of lanes of a unit's vectors, and where their sums go: to[i * step] = sums[lane + i], i < count.
struct LaneRun {
  std::int64_t lane, to, step, count;
};

// Elements from a group's first weight to that of an input channel of a patch.
std::int64_t input_offset(const ConvProblem& source, const WeightView<std::byte*>& weight, std::int64_t channel) {
  const std::int64_t in = source.in_channels_per_group();
  return weight.offset(tap_at(source.kernel, channel / in)) + channel % in * weight.in;
}

// The channels of every vector that no later vector repeats, cut where a group ends, else in runs as long as possible.
std::vector<LaneRun> lane_runs(const ConvProblem& source, const Shape& s, const Unit& u,
                               const WeightView<std::byte*>& weight) {
  const bool patches = s.patches != PatchForm::none, outputs = s.form == Form::out_vectors;
  // Channels that lie evenly apart: those of a tap, of a group, or all.
  const std::int64_t in_group = patches || s.groups == 1 ? source.in_channels_per_group() : s.vector_channels;
  const bool lone = in_group == 1 && !patches;
  const std::int64_t evenly = outputs || lone ? s.vector_channels : in_group;
  const std::int64_t step = outputs ? weight.out : lone ? weight.group : weight.in;
  std::vector<LaneRun> runs;
  for (std::int64_t v = u.vectors.begin; v < u.vectors.end; ++v) {
    const std::int64_t end = std::min((v + 1) * s.vector_step, s.vector_channels);
    for (std::int64_t c = v * s.vector_step, next; c < end; c = next) {
      next = std::min(end, (c / evenly + 1) * evenly);
      const std::int64_t lane = (v - u.vectors.begin) * s.lanes + c - s.channel_of(v);
      const std::int64_t to =
          patches && !outputs ? input_offset(source, weight, c) : c / evenly * weight.group + c % evenly * step;
      LaneRun* const last = runs.empty() ? nullptr : &runs.back();
      if (last && last->lane + last->count == lane && last->to + last->count * step == to)
        last->count += next - c;
      else
        runs.push_back({lane, to, step, next - c});
    }
  }
  return runs;
}

// Writes the sums of a unit to the weight. Sums of several pixels in a vector are added.
template <class T, class Out>
void write_unit(const ConvProblem& p, const ConvProblem& source, const Shape& s, const Unit& u, const T* sums,
                const WeightView<std::byte*>& weight) {
  const std::vector<LaneRun> runs = lane_runs(source, s, u, weight);
  const bool patches = s.patches != PatchForm::none, outputs = s.form == Form::out_vectors;
  const auto row_offset = [&](std::int64_t row) {
    return outputs && patches ? input_offset(source, weight, row) : row * (outputs ? weight.in : weight.out);
  };
  Out* group = reinterpret_cast<Out*>(weight.data) + u.group * weight.group;
  for (std::int64_t tap = u.taps.begin; tap < u.taps.end; ++tap) {
    for (std::int64_t row = u.rows.begin; row < u.rows.end; ++row, sums += u.vectors.size() * s.lanes) {
      Out* at = group + weight.offset(tap_at(p.kernel, tap)) + row_offset(row);
      for (const LaneRun& run : runs) {
        if constexpr (std::is_same_v<T, Out>)
          if (run.step == 1 && s.pixels == 1) {
            std::copy_n(sums + run.lane, run.count, at + run.to);
            continue;
          }
        if constexpr (sizeof(Out) == 2 && sizeof(T) == 4)
          if (run.step == 1 && s.pixels == 1) {
            round_sums(sums + run.lane, run.count, p.output_dtype, reinterpret_cast<std::byte*>(at + run.to));
            continue;
          }
        for (std::int64_t i = 0; i < run.count; ++i) {
          T value = sums[run.lane + i];
          for (std::int64_t pixel = 1; pixel < s.pixels; ++pixel)
            value += sums[run.lane + i + pixel * s.vector_channels];
          at[run.to + i * run.step] = from_double<Out>(value);
        }
      }
    }
  }
}

// Input and output gradient may trade places: i t = o + k d - pad makes o = i t + (K - 1 - k) d - pad' with
// pad' = (K - 1) d - pad, a kernel of stride t mirrored. For a dilated input every pixel then meets every tap, where
// one of t does otherwise; it does not pay for small t and pixels a page apart, which fall into the same cache sets.
// Of small groups, the larger side lies along the vectors.
bool trades_places(const ConvProblem& p, std::int64_t lanes) {
  constexpr std::int64_t kPageBytes = 4096, kMaxStep = 8;
  if (p.stride != Extent3{1, 1, 1}) return false;
  const std::int64_t step = p.input_dilation[2], in = p.in_channels_per_group(), out = p.out_channels_per_group();
  if (!p.input_dilated()) return groups_fit_vector(p, lanes) && in < out;
  const std::int64_t step_bytes = step * p.out_channels * static_cast<std::int64_t>(size_bytes(p.dtype));
  return step > kMaxStep || step_bytes < kPageBytes;
}

// Patches of the operand of fewer channels are smaller.
bool has_fewer_outputs(const ConvProblem& p) { return p.stride == Extent3{1, 1, 1} && p.out_channels < p.in_channels; }

ConvProblem traded(ConvProblem p) {
  std::swap(p.input, p.output);
  std::swap(p.in_channels, p.out_channels);
  std::swap(p.stride, p.input_dilation);
  for (int a = 0; a < 3; ++a) p.pad_lo[a] = (p.kernel[a] - 1) * p.dilation[a] - p.pad_lo[a];
  return p;
}

constexpr std::int64_t kFewPixels = 7;  // of a row

// The problem as it is solved: axes in the order that gives the tiles long rows of pixels, operands traded.
struct Placed {
  Orientation orientation;
  bool trades = false;
  Posed posed;

  Placed(const ConvProblem& problem, std::int64_t lanes) {
    place(problem, lanes);
    const Shape s = choose_shape(posed, lanes);
    const bool wants_taps = s.form == Form::lanes || s.form == Form::groups || s.patches != PatchForm::none;  // along W
    if (wants_taps && posed.source.kernel[2] > 1) return;
    if (wants_taps && posed.source.kernel[1] > 1 && posed.source.output[1] >= kFewPixels)
      orientation.axes = {0, 2, 1};
    else
      orientation = long_rows(problem, kFewPixels);
    place(orientation.apply(problem), lanes);
  }

  Operands<Device> apply(Operands<Device> a) const {
    a = orientation.apply(a);
    if (!trades) return a;
    std::swap(a.input, a.output);
    a.weight = a.weight.mirrored(posed.source.kernel, posed.p.output_dtype).transposed();
    return a;
  }

 private:
  void place(const ConvProblem& oriented, std::int64_t lanes) {
    trades = oriented.input_dilated() ? trades_places(oriented, lanes) : has_fewer_outputs(oriented);
    posed = by_patches(trades ? traded(oriented) : oriented, lanes);
    if (posed.patches != PatchForm::none) return;
    trades = trades_places(oriented, lanes);
    posed.p = posed.source = trades ? traded(oriented) : oriented;
    posed.traded = trades;
  }
};

class WeightGradPlan final : public Plan<Device> {
 public:
  WeightGradPlan(const ConvProblem& p, const Context<Device>& context)
      : placed_(p, lanes_of(context.traits, p.dtype)),
        q_(choose_partition(placed_.posed, context.traits, context.workspace_limit_bytes)) {}

  std::string describe() const override { return "weight_grad"; }
  std::size_t workspace_bytes() const override { return q_.workspace_bytes(); }

  void execute(Device::Stream&, const Operands<Device>& a, std::byte* workspace) const override {
    const Operands<Device> operands = placed_.apply(a);
    p_.dtype == DType::f64 ? run<double>(operands, workspace) : run<float>(operands, workspace);
  }

 private:
  template <class T>
  void run(const Operands<Device>& operands, std::byte* workspace) const {
    const Job job{p_, placed_.posed.source, operands, q_.shape, q_.from_memory};
    ScratchSlots slots(workspace + q_.partial_bytes(), q_.slot_bytes(), q_.slots);
    const std::int64_t lane_step = q_.shape.form == Form::out_vectors ? operands.weight.out : operands.weight.in;
    if (q_.shape.storable && lane_step == 1) return store_units(job, slots);
    q_.by_chunk ? sum_chunks<T>(job, slots, workspace) : sum_units<T>(job, slots);
  }

  void store_units(const Job& job, ScratchSlots& slots) const {
    slots.run(q_.units(), [&](std::int64_t i, std::byte* scratch) { store(job, unit_at(p_, q_, i), scratch); });
  }

  template <class T>
  void sum_units(const Job& job, ScratchSlots& slots) const {
    slots.run(q_.units(), [&](std::int64_t i, std::byte* total) {
      const Unit unit = unit_at(p_, q_, i);
      std::byte *sums = total + q_.sums_bytes, *part = sums + q_.sums_bytes;
      for (std::int64_t chunk = 0; chunk < q_.shape.chunks; ++chunk) {
        check_job();
        accumulate(job, unit, chunk, chunk == 0 ? total : sums, part, part + q_.sums_bytes);
        if (chunk > 0) add<T>(sums, total);
      }
      write(unit, reinterpret_cast<const T*>(total), job.operands.weight);
    });
  }

  // Chunks are tasks, whose sums wait in the workspace.
  template <class T>
  void sum_chunks(const Job& job, ScratchSlots& slots, std::byte* workspace) const {
    const auto partial = [&](std::int64_t unit, std::int64_t chunk) {
      return workspace + static_cast<std::size_t>(unit * q_.shape.chunks + chunk) * q_.sums_bytes;
    };
    slots.run(q_.tasks, [&](std::int64_t task, std::byte* scratch) {
      const std::int64_t unit = task % q_.units(), chunk = task / q_.units();
      accumulate(job, unit_at(p_, q_, unit), chunk, partial(unit, chunk), scratch + q_.sums_bytes,
                 scratch + 3 * q_.sums_bytes);
    });
    thread_pool().run(q_.units(), [&](std::int64_t unit) {
      for (std::int64_t chunk = 1; chunk < q_.shape.chunks; ++chunk) add<T>(partial(unit, chunk), partial(unit, 0));
      write(unit_at(p_, q_, unit), reinterpret_cast<const T*>(partial(unit, 0)), job.operands.weight);
    });
  }

  template <class T>
  void add(const std::byte* sums, std::byte* total) const {
    const T* from = reinterpret_cast<const T*>(sums);
    T* to = reinterpret_cast<T*>(total);
    for (std::size_t i = 0; i < q_.sums_bytes / sizeof(T); ++i) to[i] += from[i];
  }

  template <class T>
  void write(const Unit& unit, const T* sums, const WeightView<std::byte*>& weight) const {
    with_type(p_.output_dtype, [&](auto zero) {
      write_unit<T, decltype(zero)>(p_, placed_.posed.source, q_.shape, unit, sums, weight);
    });
  }

  Placed placed_;
  const ConvProblem& p_ = placed_.posed.p;
  Partition q_;
};

Support supports(const ConvProblem& p, const Context<Device>& context) {
  if (Support s = weight_grad_support(p); !s) return s;
  const Placed placed(p, lanes_of(context.traits, p.dtype));
  const std::size_t least = choose_partition(placed.posed, context.traits, 0).workspace_bytes();
  return workspace_support("the smallest running sums", least, context);
}

// Of the peak of multiply-adds, for tiles of lanes and groups: loads, permutations and latency.
double share_of_lanes(const ConvProblem& p, const Shape& s) {
  constexpr double kFullTile = 0.75;
  const double filled = double(s.vector_channels * s.pixels) / double(s.vectors * s.lanes);
  if (s.form == Form::lanes) return kFullTile * filled * 0.5;
  const double sums = double(std::min(s.rows, kMaxGroupRows) * std::min(p.kernel[2], most_group_taps(s.rows)));
  return kFullTile * filled * sums / (sums + 6);
}

double seconds(const ConvProblem& problem, const Context<Device>& context) {
  const auto& t = context.traits;
  const std::int64_t lanes = lanes_of(t, problem.dtype);
  const Posed posed = Placed(problem, lanes).posed;
  const ConvProblem& p = posed.p;
  const double products = double(p.taps() * p.in_channels_per_group() * p.out_channels_per_group()) / double(lanes);
  const double share = posed.cost > 0 ? products / posed.cost : share_of_lanes(p, choose_shape(posed, lanes));
  return section_seconds(t, p.flops() / (share * flops_per_second(t, accumulator(p.dtype))), problem.bytes_moved());
}

}  // namespace
}  // namespace weight_grad

const Algorithm<Device> kWeightGrad{"weight_grad", weight_grad::supports, weight_grad::seconds,
                                    make_plan<weight_grad::WeightGradPlan>};

}  // namespace vkconv::cpu
