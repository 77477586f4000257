// The grouped kernel: walks the rows of outputs in pairs, gathers the taps that their tiles meet, and packs weights.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "algorithms/implicit_gemm/grouped_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "algorithms/implicit_gemm/grouped_tiles-inl.h"
#include "cpu/epilogue-inl.h"
#include "cpu/gemm.h"
#include "cpu/input_rows-inl.h"
#include "cpu/scratch.h"
#include "cpu/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::HWY_NAMESPACE {

template <class T, class Out>
class Grouped {
 public:
  using A = Accumulator<T>;
  using Index = hwy::MakeSigned<A>;
  // Halves are copied with zeros at their ends: borders are few.
  static constexpr bool kPairedBorders = std::is_same_v<A, Out>;

  Grouped(const GroupedLayout& s, const Operands<Device>& a, const A* packed) : s_(s), p_(s.p), a_(a) {
    sources_.resize(static_cast<std::size_t>(s.vectors * p_.in_channels_per_group() * s.lanes));
    bool in_blocks = true;
    for (std::int64_t v = 0; v < s.vectors; ++v) in_blocks = find_sources(v) && in_blocks;
    if (folds_) own_lanes_.resize(static_cast<std::size_t>(s.lanes));
    std::iota(own_lanes_.begin(), own_lanes_.end(), Index{0});
    in_blocks_ = kFastBlocks && (in_blocks || folds_);
    if (in_blocks_)
      for (Index& index : folds_ ? own_lanes_ : sources_) index = bytes_in_block(index);
    for (std::int64_t v = 0; v < s.vectors; ++v) {
      zero_ends_ = zero_ends_ && packed[s.mark(v)] != 0;
      vectors_.push_back(
          {s.window(v), reach(v), folds_ ? own_lanes_.data() : sources(v), packed + v * s.terms() * s.lanes});
    }
  }

  void task(std::int64_t chunk, std::byte* scratch) const {
    const Range rows{chunk * s_.chunk_rows, std::min(s_.rows, (chunk + 1) * s_.chunk_rows)};
    const InputRows<T> input(p_, a_.input, rows, {0, p_.output[2]}, scratch, s_.copied, {0, p_.in_channels});
    const std::int64_t tiles = ceil_div(p_.output[2], kGroupedPixels);
    TileTaps<A> lists[3];  // of the first row, the second, and both
    for (TileTaps<A>& taps : lists) {
      taps.step = p_.stride[2] * input.pixel_stride();
      taps.in_channels = s_.lane_inputs();
      taps.stride = p_.stride[2];
      taps.row_taps = p_.stride[1] * p_.kernel[2];
    }
    for (std::int64_t r = rows.begin, height; r < rows.end; r += height) {
      const OutputRow row(p_, r);
      height = pairs_ && r + 1 < rows.end && row.h + 1 < p_.output[1] ? 2 : 1;
      for (TileTaps<A>& taps : lists) taps.clear();
      for (std::int64_t t = 0; t < tiles; ++t) {
        const Range w = nth_part(p_.output[2], t, tiles);
        const std::int64_t together = w.size() >= kFewestPaired && (kPairedBorders || inside(w)) ? height : 1;
        for (std::int64_t i = 0; i < height; i += together) {
          TileTaps<A>& taps = lists[together == 2 ? 2 : i];
          const OutputRow at(p_, r + i);
          if (taps.empty()) {
            collect(at, together, input, taps);
            if (s_.fetched && looks_ahead(together)) look_ahead(at, together, input, taps);
          }
          taps.first = w.begin;
          tile(at, together, w, taps);
        }
      }
    }
  }

 private:
  // Where the lanes of vector v find the channels of their groups; a lane without an output has weights of zero.
  // Whether each does in its own block.
  bool find_sources(std::int64_t v) {
    constexpr Index kBlockLanes = kBlockBytes / sizeof(A);
    const std::int64_t in = p_.in_channels_per_group(), out = p_.out_channels_per_group(), used = s_.outputs_of(v);
    Index* to = sources_.data() + v * in * s_.lanes;
    bool in_blocks = true;
    std::int64_t source = s_.first_input(v) - s_.window(v), of_group = v * s_.outputs % out;
    for (Index lane = 0; lane < s_.lanes; ++lane) {
      for (std::int64_t c = 0; c < in; ++c) {
        const Index from = lane < used ? static_cast<Index>(source + c) : lane;
        in_blocks = in_blocks && from / kBlockLanes == lane / kBlockLanes;
        to[c * s_.lanes + lane] = from;
      }
      if (++of_group == out) of_group = 0, source += in;
    }
    return in_blocks;
  }

  static Index bytes_in_block(Index lane) {
    std::uint8_t bytes[sizeof(A)];
    std::iota(bytes, bytes + sizeof(A), static_cast<std::uint8_t>(lane * sizeof(A) % kBlockBytes));
    Index index;
    std::memcpy(&index, bytes, sizeof(A));
    return index;
  }

  const Index* sources(std::int64_t v) const { return sources_.data() + v * p_.in_channels_per_group() * s_.lanes; }

  std::int64_t reach(std::int64_t v) const {
    return (v + 1 < s_.vectors ? s_.first_input(v + 1) : p_.in_channels) - s_.window(v);
  }

  // Whether the taps of all outputs `w` of a row are inside the input along W, or on zeros of the copy.
  bool inside(Range w) const { return zero_ends_ || reads_inside(p_, 2, w); }

  // The taps along W of kernel row (d, h), which reads the line x: in runs of those a stride apart, dilated ones alone.
  void collect_line(const A* x, std::int64_t d, std::int64_t h, Range rows, std::int64_t pixel_stride,
                    TileTaps<A>& taps) const {
    const std::int64_t stride = p_.stride[2], step = p_.dilation[2] == 1 ? stride : p_.kernel[2];
    for (std::int64_t phase = 0; phase < std::min(step, p_.kernel[2]); ++phase)
      for (std::int64_t k = phase, count; k < p_.kernel[2]; k += count * step) {
        count = std::min<std::int64_t>(kGroupedTaps, ceil_div(p_.kernel[2] - k, step));
        const std::int64_t column = k * p_.dilation[2] - p_.pad_lo[2];
        const Range inside{ceil_div(-column, stride), floor_div(p_.input[2] - 1 - column, stride) + 1};
        const std::int64_t tap = (d * p_.kernel[1] + h) * p_.kernel[2] + k;
        taps.runs[count - 1].push_back({x + column * pixel_stride, inside, tap, rows});
      }
  }

  // The lines that `rows` rows of outputs from `at` on meet.
  void collect(const OutputRow& at, std::int64_t rows, const InputRows<T>& input, TileTaps<A>& taps) const {
    for (std::int64_t d = at.kd.begin; d < at.kd.end; ++d)
      for (std::int64_t h = 0; h < p_.kernel[1] + (rows - 1) * p_.stride[1]; ++h) {
        const std::int64_t line = position_of(p_, 1, at.h, h);
        if (line < 0 || line >= p_.input[1]) continue;
        const A* x = input.row(at.n, position_of(p_, 0, at.d, d), line);
        collect_line(x, d, h, {h < p_.kernel[1] ? 0 : 1, h < p_.stride[1] ? 1 : rows}, input.pixel_stride(), taps);
      }
  }

  // Rows that do not go in pairs pay for it where no stride makes the fetches many beside the products.
  bool looks_ahead(std::int64_t rows) const { return pairs_ ? rows == 2 : p_.stride[1] == 1 && p_.stride[2] == 1; }

  // The lines that as many rows of outputs below those `rows` at `at` are the first to meet.
  void look_ahead(const OutputRow& at, std::int64_t rows, const InputRows<T>& input, TileTaps<A>& taps) const {
    const std::int64_t first = (at.h + rows - 1) * p_.stride[1] + dilated(p_.kernel[1], p_.dilation[1]) - p_.pad_lo[1];
    for (std::int64_t line = first; line < std::min(first + rows * p_.stride[1], p_.input[1]); ++line)
      taps.ahead.push_back(input.row(at.n, at.d * p_.stride[0] - p_.pad_lo[0], line));
  }

  // Outputs `w` of one row, or of two.
  void tile(const OutputRow& at, std::int64_t rows, Range w, const TileTaps<A>& taps) const {
    HWY_ALIGN A sums[2][kGroupedPixels * HWY_MAX_BYTES / sizeof(A)];
    // Vectors whose lanes are all outputs go in one call of the kernel.
    const std::int64_t whole = in_registers_ && s_.outputs == s_.lanes ? p_.out_channels / s_.lanes : 0;
    for (std::int64_t v = 0, end; v < s_.vectors; v = end) {
      end = std::max(v + 1, whole);
      const std::int64_t count = s_.outputs_of(v), channel = v * s_.outputs;
      const bool at_once = in_registers_ && count == s_.lanes;
      TileStore<A, Out> stores[2];
      GroupedSums<A, Out> to[2];
      OutputRow row = at;
      for (std::int64_t i = 0; i < rows; ++i, ++row.h) {
        stores[i] = tile_store<A, Out>(p_, a_, row, w.begin, channel);
        to[i].sums = sums[i], to[i].stride = s_.lanes;
        to[i].out = at_once ? stores[i].out : nullptr, to[i].out_stride = stores[i].out_stride;
        to[i].bounding = &bounding_, to[i].channel = channel;
      }
      run_kernel(rows, w, taps, std::span(vectors_).subspan(v, end - v), to);
      for (std::int64_t i = 0; i < rows && !at_once; ++i) {
        if (folds_) fold_groups(sources(v), p_.in_channels_per_group(), w.size(), sums[i]);
        store_tile(sums[i], s_.lanes, w.size(), count, stores[i], p_.epilogue);
      }
    }
  }

  void run_kernel(std::int64_t rows, Range w, const TileTaps<A>& taps, std::span<const ChannelVector<A>> vectors,
                  const GroupedSums<A, Out>* to) const {
    using Pixels = std::make_integer_sequence<int, kGroupedPixels>;
    // Tiles of other types by themselves are always checked: kernels without would cost more to compile than they win.
    constexpr bool kAlwaysChecked = kFewForms || !std::is_same_v<Out, float>;
    static constexpr auto kBorder = grouped_table<A, Out, true, false>(Pixels());
    static constexpr auto kInside = grouped_table<A, Out, kAlwaysChecked, false>(Pixels());
    const auto size = static_cast<std::size_t>(w.size() - 1);
    if constexpr (kFastBlocks) {
      static constexpr auto kBlocksBorder = grouped_table<A, Out, true, true>(Pixels());
      static constexpr auto kBlocksInside = grouped_table<A, Out, kAlwaysChecked, true>(Pixels());
      if (in_blocks_) return (inside(w) ? kBlocksInside : kBlocksBorder)[size](taps, vectors, block_, to[0]);
    }
    if constexpr (kRowPairs) {
      using Paired = std::make_integer_sequence<int, kGroupedPixels + 1 - kFewestPaired>;
      static constexpr auto kPairs = grouped_pairs<A, Out, false>(Paired());
      static constexpr auto kBorderPairs = grouped_pairs<A, Out, kPairedBorders>(Paired());
      if (rows == 2) return (inside(w) ? kPairs : kBorderPairs)[size + 1 - kFewestPaired](taps, vectors, to);
    }
    (inside(w) ? kInside : kBorder)[size](taps, vectors, block_, to[0]);
  }

  const GroupedLayout& s_;
  const ConvProblem& p_;
  const Operands<Device>& a_;
  const bool one_chain_ = 3 * s_.terms() <= 4 * kBlockTerms;  // a third more at most, as in gemm.h
  const std::int64_t block_ = one_chain_ ? s_.terms() : block_terms(s_.terms());
  const bool folds_ = s_.folds();
  const bool in_registers_ = only_bounds(p_.epilogue);  // the kernels store outputs themselves
  const Bounding<A> bounding_ = bounding<A>(p_.epilogue, a_.bias);
  const bool pairs_ = kRowPairs && p_.dilation[1] == 1 && p_.kernel[1] > p_.stride[1] && one_chain_;
  bool zero_ends_ = s_.copied;    // of the rows, and all weights are finite
  bool in_blocks_ = false;        // lanes find their inputs in their own blocks, which is faster
  std::vector<Index> sources_;    // [vector][in channel][lanes]
  std::vector<Index> own_lanes_;  // the permutation that leaves all lanes where they are
  std::vector<ChannelVector<A>> vectors_;
};

struct LaneWeight {
  std::int64_t lane, offset;  // of its first weight, in elements
};

// The lanes of vector v that have weights, in `to`, which has room for all.
inline std::span<const LaneWeight> lane_weights(const GroupedLayout& s, const WeightView<std::byte*>& w, std::int64_t v,
                                                LaneWeight* to) {
  const std::int64_t in = s.p.in_channels_per_group(), out = s.p.out_channels_per_group();
  const std::int64_t first = v * s.outputs, used = s.outputs_of(v);
  std::size_t count = 0;
  if (s.folds())
    for (std::int64_t c = first * in; c < (first + used) * in; ++c)
      to[count++] = {c - s.window(v), c / in * w.group + c % in * w.in};
  else
    for (std::int64_t o = first; o < first + used; ++o) to[count++] = {o - first, o / out * w.group + o % out * w.out};
  return {to, count};
}

template <class T>
void pack_as(const GroupedLayout& s, const WeightView<std::byte*>& weight, std::byte* packed) {
  const ConvProblem& p = s.p;
  auto* all = reinterpret_cast<Accumulator<T>*>(packed);
  thread_pool().run(s.vectors, [&](std::int64_t v) {
    auto* const first = all + v * s.terms() * s.lanes;
    auto* to = first;
    LaneWeight lanes[HWY_MAX_BYTES / sizeof(Accumulator<T>)];
    const auto weights = lane_weights(s, weight, v, lanes);
    for (std::int64_t tap = 0; tap < p.taps(); ++tap) {
      const T* from = reinterpret_cast<const T*>(weight.data) + weight.offset(tap_at(p.kernel, tap));
      for (std::int64_t c = 0; c < s.lane_inputs(); ++c, from += weight.in, to += s.lanes) {
        std::fill_n(to, s.lanes, Accumulator<T>{0});
        for (const auto& [lane, offset] : weights) to[lane] = widened(from + offset);
      }
    }
    all[s.mark(v)] = all_finite(first, to - first) ? 1 : 0;
  });
}

template <class T, class Out>
void run_as(const GroupedLayout& s, const Operands<Device>& a, std::byte* workspace) {
  std::byte* packed = a.prepared ? a.prepared->data : workspace;
  if (!a.prepared) pack_as<T>(s, a.weight, packed);
  const Grouped<T, Out> grouped(s, a, reinterpret_cast<const Accumulator<T>*>(packed));
  ScratchSlots slots(workspace + s.packed_bytes, s.stage_bytes, s.slots);
  slots.run(s.chunks(), [&](std::int64_t t, std::byte* scratch) { grouped.task(t, scratch); });
}

void RunGrouped(const GroupedLayout& s, const Operands<Device>& a, std::byte* workspace) {
  with_types(s.p, [&](auto in, auto out) { run_as<decltype(in), decltype(out)>(s, a, workspace); });
}

void PackGrouped(const GroupedLayout& s, const WeightView<std::byte*>& weight, std::byte* packed) {
  with_types(s.p, [&](auto in, auto) { pack_as<decltype(in)>(s, weight, packed); });
}

}  // namespace vkconv::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace vkconv::cpu {

HWY_EXPORT(RunGrouped);
HWY_EXPORT(PackGrouped);

void run_grouped(const GroupedLayout& s, const Operands<Device>& a, std::byte* workspace) {
  HWY_DYNAMIC_DISPATCH(RunGrouped)(s, a, workspace);
}
void pack_grouped(const GroupedLayout& s, const WeightView<std::byte*>& weight, std::byte* packed) {
  HWY_DYNAMIC_DISPATCH(PackGrouped)(s, weight, packed);
}

}  // namespace vkconv::cpu
#endif
