// Tiles of the dense kernel. Input pixels are read in place: a tile is rows of A that are stride * C apart, one slice
// a kernel row (or tap). Near a border each tap reaches a contiguous part of the tile's rows, so padded taps are
// skipped. Halves, and inputs worth it, are copied once a task into scratch rows with zeros at their ends and then read
// the same way; there padded taps are multiplied by zero, unless an infinite weight would make NaN of that.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "algorithms/implicit_gemm/dense_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "algorithms/implicit_gemm/dense.h"
#include "algorithms/implicit_gemm/dense_rows-inl.h"
#include "cpu/bf16_parts-inl.h"
#include "cpu/epilogue-inl.h"
#include "cpu/gemm-inl.h"
#include "cpu/gemm_kernels.h"
#include "cpu/input_rows-inl.h"
#include "cpu/pack-inl.h"
#include "cpu/scratch.h"
#include "cpu/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::HWY_NAMESPACE {

// One panel for the micro-kernel on operands of type X; rows in the order (KD, KH, KW, in), behind them the mark:
// whether all weights are finite, which only layouts with copied rows read, or have parts.
template <class T, class X>
void pack(const DenseLayout& s, const WeightView<std::byte*>& weight, std::int64_t panel, bool marked, X* to) {
  const ConvProblem& p = s.read;
  const std::int64_t first = s.first_channel(panel), count = s.channels(panel);
  const std::int64_t columns = s.packed_columns(panel), in = p.in_channels_per_group();
  const WeightView<const T*> w = typed<T>(weight, panel / s.panels);
  bool have_parts = true;
  if constexpr (std::is_same_v<X, Accumulator<T>>)
    pack_panel(w, p.kernel, in, first, count, to, columns);
  else if constexpr (std::is_same_v<X, T>)
    pack_pairs(w, p.kernel, in, s.taps_are_channels, s.in, first, count, to, columns);
  else
    have_parts = pack_parts(w, p.kernel, in, s.taps_are_channels, first, count, to, columns);
  const bool usable = s.parts > 1 ? have_parts : !marked || all_finite(to, s.mark(panel));
  const hn::CappedTag<Accumulator<T>, 1> one;
  store(hn::Set(one, usable ? 1 : 0), one, to + s.mark(panel));
}

template <class X, class A>
const GemmKernels<X, A>& kernels_of(const DenseLayout& s) {
  if constexpr (std::is_same_v<X, A>)
    return gemm_kernels<A>();
  else
    return bf16_kernels(s.unit, s.parts);
}

// T operand, Out output, X what the micro-kernel multiplies: the accumulator type, or bf16 and parts in that.
template <class T, class Out, class X>
class Dense {
 public:
  using A = Accumulator<T>;
  using Input = InputRows<T, X>;
  using Rows = DenseRows<T, X>;
  using Row = typename Rows::Row;

  // `packed` is null when every task packs the panels it uses.
  Dense(const DenseLayout& s, const Operands<Device>& a, const std::byte* packed)
      : s_(s), p_(s.p), a_(a), packed_(packed) {}

  void task(std::int64_t index, std::byte* scratch) const {
    const std::int64_t panel_chunk = index % s_.panel_chunks(), chunk = index / s_.panel_chunks();
    const Range rows = nth_part(s_.rows, chunk / s_.tile_chunks(), s_.row_chunks());
    const Range tiles = nth_part(s_.row_tiles, chunk % s_.tile_chunks(), s_.tile_chunks());
    const Range panels{panel_chunk * s_.task_panels, std::min(s_.all_panels(), (panel_chunk + 1) * s_.task_panels)};
    std::vector<Stretch> stretches;
    stretches.reserve(static_cast<std::size_t>(rows.size()));
    for (std::int64_t r = rows.begin; r < rows.end; ++r) stretches.push_back({r, s_.tile_pixels(tiles)});
    run(std::move(stretches), rows, s_.tile_pixels(tiles), panels, scratch);
    if (kernels_.release) kernels_.release();
  }

  // Stretches within `pixels` of `rows`.
  void run(std::vector<Stretch> stretches, Range rows, Range pixels, Range panels, std::byte* scratch) const {
    const Range groups{panels.begin / s_.panels, ceil_div(panels.end, s_.panels)};
    const std::int64_t in = s_.read.in_channels_per_group();
    const Input input(s_.read, a_.input, rows, pixels, scratch, s_.copied, {groups.begin * in, groups.end * in},
                      s_.in * groups.size(), s_.taps_are_channels);
    std::vector<Stretch> rest;
    if (!input.all_have_parts()) stretches = Rows(s_, input, stretches).in_parts(rest);
    const Rows outputs(s_, input, stretches);
    const auto run_undivided = [&](const std::vector<Stretch>& some, Range of_panels) {
      if constexpr (kSplits)
        Dense<T, Out, A>(*s_.undivided, a_, nullptr).run(some, rows, pixels, of_panels, scratch + s_.stage_bytes);
    };
    for (std::int64_t first = panels.begin, count; first < panels.end; first += count) {
      count = std::min(s_.panels_together(first, direct_ && kPartialVectors), panels.end - first);
      const X* packed = packed_panels(first, count, scratch);
      // Where some cannot be used, panels go alone: the bits of one do not depend on its neighbours'.
      if (const Panels together = panels_of(first, count, packed); together.usable) {
        run_panels(together, outputs, input);
        continue;
      }
      for (std::int64_t i = first; i < first + count; ++i) {
        const Panels one = panels_of(i, 1, packed + (i - first) * s_.panel_stride(sizeof(X)));
        if (kSplits && !one.usable)
          run_undivided(stretches, {i, i + 1});
        else
          run_panels(one, outputs, input);
      }
    }
    if (!rest.empty()) run_undivided(rest, panels);
  }

 private:
  static constexpr bool kSplits = !std::is_same_v<X, T> && !std::is_same_v<X, A>;
  using Tile = GemmTile<X, A>;
  using Finish = GemmFinish<X, A>;
  // Whether the micro-kernel can store a part of a vector, and whether it rounds to the output's type.
  static constexpr bool kPartialVectors = kMaskedMemory && std::is_same_v<X, A>;
  static constexpr bool kRounds = !std::is_same_v<Out, A> && std::is_same_v<Out, typename Finish::Rounded>;
  static constexpr std::int64_t kMostSums = std::is_same_v<X, A> ? kMostRowsTogether : kMostRows;  // rows times panels

  // Panels that meet a tile together, and their outputs.
  struct Panels {
    const X* b;
    std::int64_t count, input_channel, output_channel, channels;
    bool usable;           // the marks of all
    std::int64_t vectors;  // of one
    bool whole;            // the channels fill them
  };

  const X* packed_panels(std::int64_t first, std::int64_t count, std::byte* scratch) const {
    const std::int64_t stride = s_.panel_stride(sizeof(X));
    if (packed_) return reinterpret_cast<const X*>(packed_) + first * stride;
    auto* own = reinterpret_cast<X*>(scratch + s_.panels_begin());
    for (std::int64_t i = 0; i < count; ++i) pack<T>(s_, a_.weight, first + i, s_.copied, own + i * stride);
    return own;
  }

  Panels panels_of(std::int64_t first, std::int64_t count, const X* packed) const {
    const std::int64_t group = first / s_.panels, stride = s_.panel_stride(sizeof(X));
    Panels made{packed,
                count,
                group * p_.in_channels_per_group(),
                group * p_.out_channels_per_group() + s_.first_channel(first),
                s_.channels(first, count),
                true,
                s_.packed_columns(first) / s_.tile.lanes,
                false};
    made.whole = made.channels == count * made.vectors * s_.tile.lanes;
    for (std::int64_t i = 0; i < count; ++i) made.usable &= widened(packed + i * stride + s_.mark(first)) != 0;
    return made;
  }

  void run_panels(const Panels& panels, const Rows& rows, const Input& input) const {
    if (panels.vectors == 1) return run_rows<1>(panels, rows, input);
    if (panels.vectors == 2) return run_rows<2>(panels, rows, input);
    run_rows<(kMaxThreeRows > 0 ? 3 : 2)>(panels, rows, input);
  }

  template <int kVectors>
  void run_rows(const Panels& panels, const Rows& rows, const Input& input) const {
    const bool direct = direct_ && (panels.whole || kPartialVectors);
    const bool in_one = direct && bounds_ && s_.terms <= kBlockTerms;
    for (const Row& row : rows) {
      const std::int64_t tiles = ceil_div(row.pixels.size(), s_.tile_width());
      const std::int64_t most = in_one ? tiles : s_.tiles_together(panels.count);
      const auto pixels = [&](std::int64_t begin, std::int64_t end) {
        return Range{row.pixels.begin + row.pixels.size() * begin / tiles,
                     row.pixels.begin + row.pixels.size() * end / tiles};
      };
      for (std::int64_t t = 0, next; t < tiles; t = next) {
        next = std::min(t + most, tiles);
        if (row.outside() || !takes_all_taps(pixels(t, t + 1), panels)) next = t + 1;
        while (next > t + 1 && !takes_all_taps(pixels(t, next), panels)) --next;
        run_tiles<kVectors>(panels, row, pixels(t, next), input, direct);
      }
    }
  }

  // Tiles whose outputs are `w`: by the micro-kernel alone if they may be direct, and their sums are few chains or fill
  // vectors. What is added to a part of a vector waits for the pixel before, whose store reaches as far.
  template <int kVectors>
  void run_tiles(const Panels& panels, const Row& row, Range w, const Input& input, bool may_be_direct) const {
    const std::int64_t columns = panels.count * kVectors * s_.tile.lanes;
    constexpr std::int64_t kFewChains = kVectors > 1 ? 4 : 1;
    const bool all_taps = takes_all_taps(w, panels) && !row.outside();
    const bool direct = may_be_direct && (panels.whole || (all_taps && s_.terms <= kFewChains * block()));
    HWY_ALIGN A sums[kMostSums * kVectors * HWY_MAX_BYTES / sizeof(A)];
    const TileStore<A, Out> to = tile_store<A, Out>(p_, a_, row, w.begin, panels.output_channel);
    Tile tile;
    tile.c = direct && !kRounds ? reinterpret_cast<A*>(to.out) : sums;
    tile.ldc = direct && !kRounds ? to.out_stride : columns;
    const Finish finish = finish_of(to);
    if (direct && !plain_) tile.finish = &finish;
    tile.block = block();
    tile.panels = panels.count;
    tile.panel_stride = s_.panel_stride(sizeof(X));
    if (panels.output_channel == 0 && s_.fetched) tile.rows_ahead = w.size();
    if (direct) tile.last_lanes = panels.channels % s_.tile.lanes;
    if (all_taps)
      sum_taps<kVectors>(row, {0, p_.kernel[2]}, w.begin, w.size(), input, panels, tile, false);
    else
      sum_border<kVectors>(row, w, input, panels, tile);
    if (!direct) store_tile(sums, columns, w.size(), panels.channels, to, p_.epilogue);
    if (direct && !bounds_) activate_rows(tile.c, tile.ldc, w.size(), panels.channels, p_.epilogue);
  }

  // Longest chains of terms. Pairs' longer ones are for outputs of 16 bits, whose rounding covers theirs; a tile adds
  // its terms to a sum in two additions, and those of parts in two that round to the sum's size.
  std::int64_t block() const {
    const bool pairs = s_.unit != Bf16Unit::none && !std::is_same_v<Out, A>;
    const std::int64_t together = s_.unit == Bf16Unit::tiles ? kTileTerms / 2 : 1, all = s_.terms / s_.parts;
    return (pairs ? dot_block_terms(all) : block_terms(ceil_div(all, together))) * together * s_.parts;
  }

  Finish finish_of(const TileStore<A, Out>& to) const {
    Finish f;
    f.addend = to.addend, f.addend_stride = to.addend_stride, f.bias = to.bias;
    if (bounds_) f.low = static_cast<A>(bounds_->low), f.high = static_cast<A>(bounds_->high);
    if constexpr (kRounds) f.rounded = to.out, f.rounded_stride = to.out_stride;
    return f;
  }

  // Whether the outputs `w` read no padding along W, or zeros of the copy that may be multiplied.
  bool takes_all_taps(Range w, const Panels& panels) const {
    return (s_.copied && panels.usable) || reads_inside(s_.read, 2, w);
  }

  // The sums of tiles that reach padding: taps along W that reach the same rows go together.
  template <int kVectors>
  void sum_border(const Row& row, Range w, const Input& input, const Panels& panels, Tile& tile) const {
    const std::int64_t columns = panels.count * kVectors * s_.tile.lanes;
    for (std::int64_t r = 0; r < w.size(); ++r)
      std::fill_n(tile.c + r * tile.ldc, tile.last_lanes > 0 ? panels.channels : columns, A{0});
    const auto finish = std::exchange(tile.finish, nullptr);
    A* const c = tile.c;
    if constexpr (std::is_same_v<X, T> && !std::is_same_v<X, A>)
      if (s_.taps_are_channels) sum_inside<kVectors>(row, w, input, panels, tile);
    const auto reach = [&](std::int64_t k) { return common(s_.tap_reach[static_cast<std::size_t>(k)], w); };
    const std::int64_t taps = s_.taps_are_channels || row.outside() ? 0 : p_.kernel[2];
    for (std::int64_t k = 0, next; k < taps; k = next) {
      const Range rows = reach(k);
      for (next = k + 1; next < p_.kernel[2]; ++next)
        if (const Range r = reach(next); r.begin != rows.begin || r.end != rows.end) break;
      if (rows.size() == 0) continue;
      tile.c = c + (rows.begin - w.begin) * tile.ldc;
      sum_taps<kVectors>(row, {k, next}, rows.begin, rows.size(), input, panels, tile, true);
    }
    tile.c = c;
    tile.finish = finish;
    if (finish) kernels_.tile(tile, w.size(), kVectors, true);
  }

  // Adds the taps inside the input, one by one, where they are channels.
  template <int kVectors>
  void sum_inside(const Row& row, Range w, const Input& input, const Panels& panels, const Tile& tile) const {
    const std::int64_t columns = kVectors * s_.tile.lanes, in = s_.read.in_channels_per_group();
    for (std::int64_t r = 0; r < w.size(); ++r) {
      const Range taps = taps_inside(s_.read, 2, w.begin + r);
      for (const auto& line : row.lines)
        for (std::int64_t k = taps.begin * in; k < taps.end * in; ++k) {
          const A x = widened(line.x + (w.begin + r) * input.pixel_stride() + k);
          for (std::int64_t i = 0; i < panels.count; ++i) {
            const X* b = panels.b + i * s_.panel_stride(sizeof(X)) + (line.term + k / 2 * 2) * columns + k % 2;
            A* sums = tile.c + r * tile.ldc + i * columns;
            for (std::int64_t o = 0; o < columns; ++o) sums[o] += x * widened(b + 2 * o);
          }
        }
    }
  }

  // Adds taps kw of `taps` over the `rows` outputs from w on; all of them are inside the input.
  template <int kVectors>
  void sum_taps(const Row& row, Range taps, std::int64_t w, std::int64_t rows, const Input& input, const Panels& panels,
                Tile& tile, bool accumulate) const {
    constexpr int kBatch = 64;
    const std::int64_t pixel = input.pixel_stride(), in = s_.in, columns = kVectors * s_.tile.lanes;
    // Taps along W are one run of memory, whatever is copied of several groups.
    const bool whole_row = p_.dilation[2] == 1 && pixel == in && p_.groups == 1;
    tile.terms.kc = whole_row ? taps.size() * in : in;
    tile.lda = p_.stride[2] * pixel;
    GemmSlice<X> slices[kBatch];
    tile.terms.slices = slices;
    tile.terms.slice_count = 0;
    const auto finish = std::exchange(tile.finish, nullptr);
    for (const auto& line : row.lines) {
      const X* x = line.x + w * p_.stride[2] * pixel + panels.input_channel;
      const X* panel = panels.b + line.term * columns;
      for (std::int64_t k = taps.begin; k < taps.end; k += whole_row ? taps.size() : 1) {
        if (tile.terms.slice_count == kBatch) {
          kernels_.tile(tile, rows, kVectors, accumulate);
          accumulate = true;
          tile.terms.slice_count = 0;
        }
        slices[tile.terms.slice_count++] = {x + k * p_.dilation[2] * pixel, panel + k * in * columns};
      }
    }
    tile.finish = finish;
    kernels_.tile(tile, rows, kVectors, accumulate);
    tile.terms = {};
  }

  const DenseLayout& s_;
  const ConvProblem& p_;
  const Operands<Device>& a_;
  const std::byte* packed_;
  const GemmKernels<X, A>& kernels_ = kernels_of<X, A>(s_);
  const std::optional<Bounds> bounds_ = bounds_of(p_.epilogue);
  // Whether the outputs are the sums, and whether the micro-kernel can store them. It rounds after the activation, and
  // keeps sums of several chains in the output meanwhile, which may be the addend.
  const bool plain_ = only_rounds(p_.epilogue) && !kRounds;
  const bool in_place_ = p_.epilogue.addend && a_.addend.data == a_.output.data;
  const bool direct_ = kRounds ? bounds_.has_value() : std::is_same_v<Out, A> && !in_place_;
};

template <class T, class X>
void pack_all(const DenseLayout& s, const WeightView<std::byte*>& weight, bool marked, std::byte* packed) {
  thread_pool().run(s.all_panels(), [&](std::int64_t panel) {
    pack<T>(s, weight, panel, marked, reinterpret_cast<X*>(packed + static_cast<std::size_t>(panel) * s.panel_bytes));
  });
}

template <class T, class Out, class X>
void run_as(const DenseLayout& s, const Operands<Device>& a, std::byte* workspace) {
  const std::byte* packed = a.prepared ? a.prepared->data : s.shared_weights ? workspace : nullptr;
  if (!a.prepared && s.shared_weights) pack_all<T, X>(s, a.weight, s.copied, workspace);
  const Dense<T, Out, X> dense(s, a, packed);
  ScratchSlots slots(workspace + s.shared_bytes(), s.slot_bytes(), s.slots);
  slots.run(s.row_chunks() * s.tile_chunks() * s.panel_chunks(),
            [&](std::int64_t t, std::byte* scratch) { dense.task(t, scratch); });
}

// f(operand, output, multiplied) with zeros of the types of a layout.
template <class F>
void with_dense_types(const DenseLayout& s, F f) {
  with_types(s.p, [&](auto in, auto out) {
    using T = decltype(in);
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
    if constexpr (!std::is_same_v<T, double>)
      if (s.unit != Bf16Unit::none) return f(in, out, hwy::bfloat16_t{});
#endif
    f(in, out, Accumulator<T>{});
  });
}

void RunDense(const DenseLayout& s, const Operands<Device>& a, std::byte* workspace) {
  with_dense_types(
      s, [&](auto in, auto out, auto x) { run_as<decltype(in), decltype(out), decltype(x)>(s, a, workspace); });
}

void PackDense(const DenseLayout& s, const WeightView<std::byte*>& weight, std::byte* packed) {
  with_dense_types(s, [&](auto in, auto, auto x) { pack_all<decltype(in), decltype(x)>(s, weight, true, packed); });
}

}  // namespace vkconv::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace vkconv::cpu {

HWY_EXPORT(RunDense);
HWY_EXPORT(PackDense);

void run_dense(const DenseLayout& s, const Operands<Device>& a, std::byte* workspace) {
  HWY_DYNAMIC_DISPATCH(RunDense)(s, a, workspace);
}
void pack_dense(const DenseLayout& s, const WeightView<std::byte*>& weight, std::byte* packed) {
  HWY_DYNAMIC_DISPATCH(PackDense)(s, weight, packed);
}

}  // namespace vkconv::cpu
#endif
