#include <atomic>

#include "algorithms/weight_grad/weight_grad.h"
#include "algorithms/weight_grad_pairs/weight_grad_pairs.h"
#include "core/dispatch.h"
#include "cpu/bf16_rows.h"
#include "cpu/job.h"
#include "cpu/scratch.h"
#include "cpu/thread_pool.h"

namespace vkconv::cpu::weight_grad_pairs {
namespace {

using Bits = std::uint16_t;  // of a bf16
using Bf16 = hwy::bfloat16_t;

constexpr std::int64_t kPackedTerms = 64;  // together
constexpr std::int64_t kPanel = 2 * kDotTile.lanes;

// Where the sums of a group begin, for one tap or those side by side: panel by panel, so that a tile's lie together.
std::int64_t sums_of(const ConvProblem& p, const Layout& s, std::int64_t group, std::int64_t tap) {
  return (group * p.kernel[0] * s.plane_taps() + tap) * p.out_channels_per_group() * s.columns_of_run;
}

// One task: a part of the pixels for a split of the output channels, in chunks that stay in the thread's cache.
class Task {
 public:
  Task(const ConvProblem& p, const Layout& s, const Operands<Device>& a, std::byte* slot, float* sums)
      : p_(p),
        s_(s),
        a_(a),
        gradients_(reinterpret_cast<Bits*>(slot)),
        inputs_(reinterpret_cast<Bits*>(slot + s.gradient_bytes())),
        sums_(sums) {}

  // False: some values are not finite.
  bool run(Range blocks, Range outputs) {
    outputs_ = outputs;
    groups_ = {outputs.begin / p_.out_channels_per_group(), ceil_div(outputs.end, p_.out_channels_per_group())};
    const std::int64_t in_sequence = s_.blocks_in_sequence();
    for (std::int64_t b = blocks.begin, next; b < blocks.end && finite_; b = next) {
      check_job();
      next = std::min({b + s_.chunk_slices / s_.together, blocks.end, (b / in_sequence + 1) * in_sequence});
      sequence_ = b / in_sequence, first_ = b % in_sequence * s_.together;
      count_ = std::min((next - b) * s_.together, s_.sequence - first_);
      for (std::int64_t i = 0; i < count_; ++i) pack_gradients(i);
      const std::int64_t planes = plane(count_ - 1, p_.kernel[0] - 1) + 1;
      for (std::int64_t i = 0; i < planes; ++i) pack_inputs(i);
      multiply(b > blocks.begin);
    }
    if (kernels_.release) kernels_.release();
    return finite_;
  }

 private:
  struct Slice {
    std::int64_t n, depth, line, column;  // the first line, and its first output
  };

  // The i-th of the chunk.
  Slice slice(std::int64_t i) const {
    const std::int64_t index = sequence_ * s_.sequence + first_ + i;
    const std::int64_t other = index / p_.output[0], part = other % s_.parts();
    return {other / s_.parts(), index % p_.output[0], part / s_.segments * s_.lines, part % s_.segments * s_.width};
  }
  // The plane of the input that tap `tap` of the i-th slice's depth reads, among those of the chunk.
  std::int64_t plane(std::int64_t i, std::int64_t tap) const {
    return p_.kernel[0] > 1 ? i * p_.stride[0] + tap * p_.dilation[0] : i;
  }
  // The output channels of the task in a group, counted in it.
  Range outputs_of(std::int64_t group) const {
    const std::int64_t out = p_.out_channels_per_group(), first = group * out;
    return common({outputs_.begin - first, outputs_.end - first}, {0, out});
  }

  void pack_gradients(std::int64_t index) {
    const Slice slice = this->slice(index);
    const auto& stride = a_.output.stride;
    const Bits* first = reinterpret_cast<const Bits*>(a_.output.data) + slice.n * stride[0] + slice.depth * stride[1] +
                        slice.line * stride[2] + slice.column * stride[3];
    const std::int64_t lines = std::min(s_.lines, p_.output[1] - slice.line);
    const Range columns{0, std::min(s_.width, p_.output[2] - slice.column)};
    rows_.assign(static_cast<std::size_t>(s_.terms), nullptr);
    for (std::int64_t line = 0; line < lines; ++line) set_rows(line, columns, first + line * stride[2], stride[3]);
    for (std::int64_t t = 0; t < s_.terms; t += kPackedTerms)
      for (std::int64_t g = groups_.begin; g < groups_.end; ++g) {
        const Range outputs = outputs_of(g);
        finite_ &= transpose_rows(rows_.data() + t, std::min(kPackedTerms, s_.terms - t),
                                  g * p_.out_channels_per_group() + outputs.begin, outputs.size(),
                                  gradients_at(index, g) + t, s_.gradient_pitch);
      }
  }

  // The terms of some columns of a line: values from `first`, that of column 0, on.
  void set_rows(std::int64_t line, Range columns, const Bits* first, std::int64_t step) {
    const Bits** row = rows_.data() + line * s_.pitch;
    for (std::int64_t c = columns.begin; c < columns.end; ++c) row[c] = first + c * step;
  }

  // Of the task's output channels of a group.
  Bits* gradients_at(std::int64_t slice, std::int64_t group) const {
    return gradients_ + (group - groups_.begin) * s_.task_outputs * s_.gradient_pitch + slice * s_.terms;
  }

  void pack_inputs(std::int64_t plane) {
    const bool deep = p_.kernel[0] > 1;
    const Slice slice = this->slice(deep ? 0 : plane);
    const std::int64_t d = position_of(p_, 0, slice.depth, 0) + (deep ? plane : 0);
    if (d < 0 || d >= p_.input[0]) return;  // no product reads it
    const auto& stride = a_.input.stride;
    const Bits* from = reinterpret_cast<const Bits*>(a_.input.data) + slice.n * stride[0] + d * stride[1];
    for (std::int64_t run = 0; run < s_.runs(); ++run) {
      const std::int64_t h = s_.rows.first[static_cast<std::size_t>(run / s_.columns.count())];
      const std::int64_t w = s_.columns.first[static_cast<std::size_t>(run % s_.columns.count())];
      pack_run(from, h + slice.line * p_.stride[1], w + slice.column * p_.stride[2], run_at(plane, run, 0));
    }
  }

  // What the slice reads from position (h, w) of a plane on.
  void pack_run(const Bits* plane, std::int64_t h, std::int64_t w, Bits* to) {
    const std::int64_t lines = s_.rows.most_shift + s_.lines, in = p_.in_channels_per_group();
    rows_.assign(static_cast<std::size_t>(std::max(s_.run_terms, lines * s_.pitch)), nullptr);
    if (s_.taps_are_channels) composed_.resize(static_cast<std::size_t>(lines * s_.pitch * s_.channels));
    for (std::int64_t line = 0; line < lines; ++line)
      if (const std::int64_t ih = h + line * p_.stride[1]; 0 <= ih && ih < p_.input[1])
        set_input_rows(line, plane + ih * a_.input.stride[2], w);
    for (std::int64_t t = 0; t < s_.run_terms; t += kPackedTerms)
      for (std::int64_t g = groups_.begin; g < groups_.end; ++g) {
        Bits* const group = to + (g - groups_.begin) * s_.run_elements();
        for (std::int64_t c = 0; c < s_.columns_of_run; c += kPanel) {
          const std::int64_t columns = std::min(kPanel, s_.columns_of_run - c);
          finite_ &= pair_rows(rows_.data() + t, std::min(kPackedTerms, s_.run_terms - t), g * in + c, s_.channels - c,
                               columns, group + c * s_.run_terms + t * columns);
        }
      }
  }

  // The terms of a line of the input, from column `w` of it on: of one tap, or of all that are side by side.
  void set_input_rows(std::int64_t line, const Bits* from, std::int64_t w) {
    const std::int64_t pixel = a_.input.stride[3], taps = s_.taps_are_channels ? p_.kernel[2] : 1, step = p_.stride[2];
    const std::int64_t reach = (taps - 1) * p_.dilation[2];
    const auto columns = [&](std::int64_t first, std::int64_t end) {  // whose positions are in [first, end)
      return common({ceil_div(first - w, step), ceil_div(end - w, step)}, {0, s_.pitch});
    };
    Range whole = columns(0, p_.input[2] - reach);
    if (taps > 1 && (p_.dilation[2] > 1 || pixel != p_.in_channels)) whole.end = whole.begin;
    set_rows(line, whole, from + w * pixel, step * pixel);
    if (taps == 1) return;
    const Range some = columns(-reach, p_.input[2]);
    for (std::int64_t c = some.begin; c < some.end; ++c)
      if (!whole.contains(c)) {
        Bits* to = composed_.data() + (line * s_.pitch + c) * s_.channels;
        rows_[static_cast<std::size_t>(line * s_.pitch + c)] = to;
        compose(from, w + c * step, to);
      }
  }

  // The channels of all taps from column `w` of a line on.
  void compose(const Bits* from, std::int64_t w, Bits* to) const {
    const std::int64_t in = p_.in_channels;
    for (std::int64_t k = 0; k < p_.kernel[2]; ++k, w += p_.dilation[2], to += in)
      if (0 <= w && w < p_.input[2])
        std::copy_n(from + w * a_.input.stride[3], in, to);
      else
        std::fill_n(to, in, Bits{0});
  }

  Bits* run_at(std::int64_t plane, std::int64_t run, std::int64_t group) const {
    return inputs_ + ((plane * s_.runs() + run) * s_.task_groups + group) * s_.run_elements();
  }

  // All taps of a panel along H one after another, so that it stays in L1.
  void multiply(bool adds) {
    for (std::int64_t group = groups_.begin; group < groups_.end; ++group)
      for (std::int64_t d = 0; d < p_.kernel[0]; ++d)
        for (std::int64_t w = 0; w < s_.columns.tap_count(); ++w)
          for (std::int64_t c = 0; c < s_.columns_of_run; c += kPanel)
            for (std::int64_t h = 0; h < s_.rows.tap_count(); ++h) multiply_tap(group, {d, h, w}, c, adds);
  }

  void multiply_tap(std::int64_t group, const Extent3& tap, std::int64_t channel, bool adds) {
    const Place& h = s_.rows.taps[static_cast<std::size_t>(tap[1])];
    const Place& w = s_.columns.taps[static_cast<std::size_t>(tap[2])];
    const std::int64_t run = h.run * s_.columns.count() + w.run, shift = h.shift * s_.pitch + w.shift;
    const std::int64_t columns = std::min(kPanel, s_.columns_of_run - channel);
    const Range outputs = outputs_of(group);
    const std::int64_t index = (tap[0] * s_.rows.tap_count() + tap[1]) * s_.columns.tap_count() + tap[2];
    GemmTile<Bf16, float> tile;
    tile.terms.kc = s_.terms;
    tile.lda = s_.gradient_pitch;
    tile.c = sums_ + sums_of(p_, s_, group, index) + channel * p_.out_channels_per_group() + outputs.begin * columns;
    tile.ldc = columns;
    tile.block = kBlock;
    for (std::int64_t first = 0; first < count_; first += s_.together) {
      slices_.clear();
      for (std::int64_t i = first; i < std::min(first + s_.together, count_); ++i) {
        if (input_index(p_, 0, slice(i).depth, tap[0]) < 0) continue;
        const Bits* a = gradients_at(i, group);
        const Bits* b = run_at(plane(i, tap[0]), run, group - groups_.begin) + channel * s_.run_terms + shift * columns;
        slices_.push_back({reinterpret_cast<const Bf16*>(a), reinterpret_cast<const Bf16*>(b)});
      }
      if (slices_.empty()) continue;
      tile.terms.slices = slices_.data();
      tile.terms.slice_count = static_cast<std::int64_t>(slices_.size());
      kernels_.tile(tile, outputs.size(), static_cast<int>(columns / kDotTile.lanes), adds);
      adds = true;
    }
    if (!adds) std::fill_n(tile.c, outputs.size() * columns, 0.0F);
  }

  const ConvProblem& p_;
  const Layout& s_;
  const Operands<Device>& a_;
  Bits *gradients_, *inputs_;
  float* sums_;
  const GemmKernels<Bf16, float>& kernels_ = bf16_kernels(s_.unit);
  Range outputs_{}, groups_{};                         // of the task
  std::int64_t sequence_ = 0, first_ = 0, count_ = 0;  // of the chunk: its slices in a sequence
  bool finite_ = true;
  std::vector<const Bits*> rows_;        // of the terms of a slice or a run
  std::vector<Bits> composed_;           // of taps side by side, where some are outside the input
  std::vector<GemmSlice<Bf16>> slices_;  // of a product
};

// Gradients of a tap's channels, from element `at` of the weight on.
void write_run(const ConvProblem& p, const float* sums, std::int64_t count, const WeightView<std::byte*>& weight,
               std::int64_t at) {
  with_type(p.output_dtype, [&](auto zero) {
    using Out = decltype(zero);
    Out* to = reinterpret_cast<Out*>(weight.data) + at;
    if constexpr (sizeof(Out) == 2)
      if (weight.in == 1) return weight_grad::round_sums(sums, count, p.output_dtype, reinterpret_cast<std::byte*>(to));
    for (std::int64_t c = 0; c < count; ++c) to[c * weight.in] = from_double<Out>(sums[c]);
  });
}

// Adds the parts of an output channel's sums, and writes them.
void write(const ConvProblem& p, const Layout& s, std::int64_t group, std::int64_t row, float* sums,
           const WeightView<std::byte*>& weight) {
  const std::int64_t part_size = s.sum_count(p), taps = s.taps_are_channels ? p.kernel[2] : 1, in = s.channels / taps;
  std::vector<float> total(static_cast<std::size_t>(s.columns_of_run));
  for (std::int64_t tap = 0; tap < p.taps(); tap += taps) {
    const float* panel = sums + sums_of(p, s, group, tap / taps);
    for (std::int64_t c = 0; c < s.columns_of_run; c += kPanel, panel += p.out_channels_per_group() * kPanel) {
      const std::int64_t columns = std::min(kPanel, s.columns_of_run - c);
      float* const to = std::copy_n(panel + row * columns, columns, total.data() + c) - columns;
      for (std::int64_t part = 1; part < s.pixel_parts; ++part) {
        const float* from = panel + row * columns + part * part_size;
        for (std::int64_t i = 0; i < columns; ++i) to[i] += from[i];
      }
    }
    for (std::int64_t k = 0; k < taps; ++k)
      write_run(p, total.data() + k * in, in, weight,
                group * weight.group + row * weight.out + weight.offset(tap_at(p.kernel, tap + k)));
  }
}

}  // namespace

bool run(const ConvProblem& p, const Layout& s, const Operands<Device>& a, std::byte* workspace) {
  auto* sums = reinterpret_cast<float*>(workspace);
  ScratchSlots slots(workspace + s.sum_bytes(p), s.slot_bytes(), s.slots);
  std::atomic<bool> finite{true};
  slots.run(s.pixel_parts * s.splits, [&](std::int64_t i, std::byte* slot) {
    const std::int64_t part = i / s.splits;
    Task task(p, s, a, slot, sums + part * s.sum_count(p));
    const Range blocks = nth_part(s.blocks(), part, s.pixel_parts);
    if (!task.run(blocks, s.split_outputs(p, i % s.splits))) finite.store(false, std::memory_order_relaxed);
  });
  if (!finite) return false;
  const std::int64_t rows = p.out_channels_per_group();
  thread_pool().run(p.out_channels, [&](std::int64_t i) { write(p, s, i / rows, i % rows, sums, a.weight); });
  return true;
}

}  // namespace vkconv::cpu::weight_grad_pairs
