// Tiles of the dense kernel. Input pixels are read in place: a tile is rows of A that are stride * C apart, one slice
// a kernel row (or tap). Near a border each tap reaches a contiguous part of the tile's rows, so padded taps are
// skipped, not multiplied by zero. Halves are widened once a task into scratch rows and then read the same way.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "algorithms/implicit_gemm/dense_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <algorithm>
#include <type_traits>

#include "algorithms/implicit_gemm/dense.h"
#include "cpu/bf16_dot.h"
#include "cpu/epilogue-inl.h"
#include "cpu/gemm-inl.h"
#include "cpu/gemm_kernels.h"
#include "cpu/input_rows-inl.h"
#include "cpu/pack-inl.h"
#include "cpu/scratch.h"
#include "cpu/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::HWY_NAMESPACE {

// One panel for the micro-kernel on operands of type X; rows in the order (KD, KH, KW, in).
template <class T, class X>
void pack(const DenseLayout& s, const WeightView<std::byte*>& weight, std::int64_t panel, X* to) {
  const ConvProblem& p = s.p;
  const std::int64_t first = s.first_channel(panel), count = s.channels(panel);
  const std::int64_t columns = count <= s.tile.lanes ? s.tile.lanes : s.columns, in = p.in_channels_per_group();
  const WeightView<const T*> w = typed<T>(weight, panel / s.panels);
  if constexpr (std::is_same_v<X, Accumulator<T>>)
    pack_panel(w, p.kernel, in, first, count, to, columns);
  else
    pack_pairs(w, p.kernel, in, first, count, to, columns);
}

// T operand, Out output, X what the micro-kernel multiplies: the accumulator type, or bf16 for its dot product.
template <class T, class Out, class X>
class Dense {
 public:
  using A = Accumulator<T>;
  using Input = InputRows<T, X>;

  Dense(const DenseLayout& s, const Operands<Device>& a) : s_(s), p_(s.p), a_(a) {}

  void task(std::int64_t index, std::byte* scratch) const {
    const std::int64_t panel_chunk = index % s_.panel_chunks(), chunk = index / s_.panel_chunks();
    const std::int64_t first_row = chunk / s_.tile_chunks() * s_.chunk_rows;
    const std::int64_t first_tile = chunk % s_.tile_chunks() * s_.chunk_tiles;
    const Range rows{first_row, std::min(s_.rows, first_row + s_.chunk_rows)};
    const Range tiles{first_tile, std::min(s_.row_tiles, first_tile + s_.chunk_tiles)};
    if (tiles.size() == 0) return;
    const Range pixels{tile_begin(p_.output[2], tiles.begin), tile_begin(p_.output[2], tiles.end)};
    const Input input(p_, a_.input, rows, pixels, scratch + s_.panel_bytes);
    const std::int64_t end = std::min(s_.all_panels(), (panel_chunk + 1) * s_.task_panels);
    for (std::int64_t panel = panel_chunk * s_.task_panels; panel < end; ++panel)
      if (s_.channels(panel) <= s_.tile.lanes)
        run_panel<1>(panel, input, rows, tiles, scratch);
      else
        run_panel<2>(panel, input, rows, tiles, scratch);
  }

 private:
  const X* packed(std::int64_t panel, std::byte* scratch) const {
    if (a_.prepared)
      return reinterpret_cast<const X*>(a_.prepared->data.pointer() + static_cast<std::size_t>(panel) * s_.panel_bytes);
    pack<T>(s_, a_.weight, panel, reinterpret_cast<X*>(scratch));
    return reinterpret_cast<const X*>(scratch);
  }

  template <int kVectors>
  void run_panel(std::int64_t panel, const Input& input, Range rows, Range tiles, std::byte* scratch) const {
    const std::int64_t columns = kVectors * s_.tile.lanes, group = panel / s_.panels;
    const X* b = packed(panel, scratch);
    const std::int64_t channel = group * p_.out_channels_per_group() + s_.first_channel(panel);
    HWY_ALIGN A sums[kMaxRows * kVectors * HWY_MAX_BYTES / sizeof(A)];
    for (std::int64_t r = rows.begin; r < rows.end; ++r) {
      const OutputRow row(p_, r);
      for (std::int64_t t = tiles.begin; t < tiles.end; ++t) {
        const Range w{tile_begin(p_.output[2], t), tile_begin(p_.output[2], t + 1)};
        const TileStore<A, Out> to = tile_store<A, Out>(p_, a_, row, w.begin, channel);
        GemmTile<X, A> tile;
        const bool in_place = plain_ && s_.channels(panel) == columns;
        tile.c = in_place ? reinterpret_cast<A*>(to.out) : sums;
        tile.ldc = in_place ? to.out_stride : columns;
        tile.block = block_terms(s_.terms);
        sum_tile<kVectors>(row, w, input, group * p_.in_channels_per_group(), b, tile);
        if (!in_place) store_tile(sums, columns, w.size(), s_.channels(panel), to, p_.epilogue);
      }
    }
  }

  // The sums of one tile: taps along W that reach the same rows of the tile go together.
  template <int kVectors>
  void sum_tile(const OutputRow& row, Range w, const Input& input, std::int64_t channel, const X* b,
                GemmTile<X, A> tile) const {
    const std::int64_t first = w.begin * p_.stride[2] - p_.pad_lo[2];
    const std::int64_t last = (w.end - 1) * p_.stride[2] - p_.pad_lo[2] + (p_.kernel[2] - 1) * p_.dilation[2];
    if (first >= 0 && last < p_.input[2] && !row.outside())
      return sum_taps<kVectors>(row, {0, p_.kernel[2]}, w.begin, w.size(), input, channel, b, tile, false);
    for (std::int64_t r = 0; r < w.size(); ++r) std::fill_n(tile.c + r * tile.ldc, kVectors * s_.tile.lanes, A{0});
    if (row.outside()) return;
    const auto reach = [&](std::int64_t k) {
      const Range all = s_.tap_reach[static_cast<std::size_t>(k)];
      return Range{std::max(all.begin, w.begin), std::min(all.end, w.end)};
    };
    for (std::int64_t k = 0, next; k < p_.kernel[2]; k = next) {
      const Range rows = reach(k);
      for (next = k + 1; next < p_.kernel[2]; ++next)
        if (const Range r = reach(next); r.begin != rows.begin || r.end != rows.end) break;
      if (rows.size() == 0) continue;
      GemmTile<X, A> part = tile;
      part.c += (rows.begin - w.begin) * tile.ldc;
      sum_taps<kVectors>(row, {k, next}, rows.begin, rows.size(), input, channel, b, part, true);
    }
  }

  // Adds taps kw of `taps` over the `rows` outputs from w on; all of them are inside the input.
  template <int kVectors>
  void sum_taps(const OutputRow& row, Range taps, std::int64_t w, std::int64_t rows, const Input& input,
                std::int64_t channel, const X* b, GemmTile<X, A> tile, bool accumulate) const {
    constexpr int kBatch = 64;
    const std::int64_t pixel = input.pixel_stride(), in = p_.in_channels_per_group(),
                       columns = kVectors * s_.tile.lanes;
    const bool whole_row = p_.dilation[2] == 1 && pixel == in;  // taps along W are one run of memory
    tile.kc = whole_row ? taps.size() * in : in;
    tile.lda = p_.stride[2] * pixel;
    GemmSlice<X> slices[kBatch];
    tile.slices = slices;
    tile.slice_count = 0;
    const auto flush = [&] {
      if (tile.slice_count == 0) return;
      if constexpr (std::is_same_v<X, A>)
        kernels_.tile(tile, rows, kVectors, accumulate);
      else
        bf16_dot_tile(tile, static_cast<int>(rows), kVectors, accumulate);
      accumulate = true;
      tile.slice_count = 0;
    };
    for (std::int64_t d = row.kd.begin; d < row.kd.end; ++d)
      for (std::int64_t h = row.kh.begin; h < row.kh.end; ++h) {
        const X* x = input.row(row.n, row.d * p_.stride[0] + d * p_.dilation[0] - p_.pad_lo[0],
                               row.h * p_.stride[1] + h * p_.dilation[1] - p_.pad_lo[1]) +
                     (w * p_.stride[2] - p_.pad_lo[2]) * pixel + channel;
        const X* panel = b + (d * p_.kernel[1] + h) * p_.kernel[2] * in * columns;
        for (std::int64_t k = taps.begin; k < taps.end; k += whole_row ? taps.size() : 1) {
          slices[tile.slice_count++] = {x + k * p_.dilation[2] * pixel, panel + k * in * columns};
          if (tile.slice_count == kBatch) flush();
        }
      }
    flush();
  }

  const DenseLayout& s_;
  const ConvProblem& p_;
  const Operands<Device>& a_;
  const GemmKernels<A>& kernels_ = gemm_kernels<A>();
  const bool plain_ = stores_sums<A, Out>(p_.epilogue);  // sums can be made in the output itself
};

template <class T, class Out, class X>
void run_as(const DenseLayout& s, const Operands<Device>& a, std::byte* workspace) {
  const Dense<T, Out, X> dense(s, a);
  ScratchSlots slots(workspace, s.slot_bytes(), s.slots);
  thread_pool().run(s.row_chunks() * s.tile_chunks() * s.panel_chunks(), [&](std::int64_t t) {
    const auto scratch = slots.borrow();
    dense.task(t, scratch.data());
  });
}

// f(operand, output, multiplied) with zeros of the types of a layout.
template <class F>
void with_dense_types(const DenseLayout& s, F f) {
  with_types(s.p, [&](auto in, auto out) {
    using T = decltype(in);
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
    if constexpr (std::is_same_v<T, hwy::bfloat16_t>)
      if (s.dot) return f(in, out, in);
#endif
    f(in, out, Accumulator<T>{});
  });
}

void RunDense(const DenseLayout& s, const Operands<Device>& a, std::byte* workspace) {
  with_dense_types(
      s, [&](auto in, auto out, auto x) { run_as<decltype(in), decltype(out), decltype(x)>(s, a, workspace); });
}

void PackDense(const DenseLayout& s, const WeightView<std::byte*>& weight, std::byte* packed) {
  with_dense_types(s, [&](auto in, auto, auto x) {
    thread_pool().run(s.all_panels(), [&](std::int64_t panel) {
      std::byte* to = packed + static_cast<std::size_t>(panel) * s.panel_bytes;
      pack<decltype(in)>(s, weight, panel, reinterpret_cast<decltype(x)*>(to));
    });
  });
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
