// Unfolding and multiplying one tile of rows.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "algorithms/unfold_gemm/unfold_gemm_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <algorithm>
#include <cmath>

#include "algorithms/unfold_gemm/unfold.h"
#include "cpu/epilogue-inl.h"
#include "cpu/gemm_kernels.h"
#include "cpu/pack-inl.h"
#include "cpu/scratch.h"
#include "cpu/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::HWY_NAMESPACE {

// One output pixel: its place and the taps it meets.
struct Pixel {
  std::int64_t n, d, h, w;
  MetTaps kd, kh, kw;
  Pixel(const UnfoldLayout& s, std::int64_t row) {
    const Extent3& out = s.p.output;
    w = row % out[2], h = row / out[2] % out[1], d = row / (out[2] * out[1]) % out[0],
    n = row / (out[2] * out[1] * out[0]);
    kd = s.taps[0].at(d), kh = s.taps[1].at(h), kw = s.taps[2].at(w);
  }
  std::int64_t met() const { return kd.count() * kh.count() * kw.count(); }
};

template <class T, class Out>
class Unfold {
 public:
  using A = Accumulator<T>;

  Unfold(const UnfoldLayout& s, const Operands<Device>& a, const A* packed) : s_(s), p_(s.p), a_(a), packed_(packed) {}

  std::int64_t tiles() const { return ceil_div(s_.rows, s_.tile_rows); }

  void task(std::int64_t index, A* scratch) const {
    const std::int64_t group = index / tiles(), first = index % tiles() * s_.tile_rows;
    const Range rows{first, std::min(s_.rows, first + s_.tile_rows)};
    A *unfolded = scratch, *sums = unfolded + s_.tile_rows * s_.terms, *block = sums + s_.tile_rows * s_.columns;
    for (std::int64_t r = rows.begin; r < rows.end; ++r)
      unfold(Pixel(s_, r), group, unfolded + (r - rows.begin) * s_.terms);
    for (std::int64_t panel = 0; panel < s_.panels; ++panel) {
      multiply(group, panel, unfolded, rows.size(), sums, block);
      skip_holes(group, panel, unfolded, rows, sums, block);
      finish(group, panel, rows, sums);
    }
  }

 private:
  // The window of one pixel, zeros where no input element is.
  void unfold(const Pixel& at, std::int64_t group, A* row) const {
    const std::int64_t in = p_.in_channels_per_group();
    if (at.met() < p_.taps()) std::fill_n(row, s_.terms, A{0});
    const auto& x = a_.input.stride;
    const T* from = reinterpret_cast<const T*>(a_.input.data) + at.n * x[0] + group * in;
    // Taps along W that meet neighbours in memory are one run.
    const bool runs = at.kw.step == 1 && at.kw.advance == 1 && x[3] == in;
    Pixel starts = at;
    if (runs) starts.kw.end = std::min(at.kw.end, at.kw.first + 1);
    for_each_met(starts, [&](std::int64_t tap, const Extent3& element) {
      widen_run(from + element[0] * x[1] + element[1] * x[2] + element[2] * x[3], (runs ? at.kw.count() : 1) * in,
                row + tap * in);
    });
  }

  template <class F>
  void for_each_met(const Pixel& at, F&& f) const {
    Extent3 e;
    e[0] = at.kd.element;
    for (std::int64_t d = at.kd.first; d < at.kd.end; d += at.kd.step, e[0] += at.kd.advance) {
      e[1] = at.kh.element;
      for (std::int64_t h = at.kh.first; h < at.kh.end; h += at.kh.step, e[1] += at.kh.advance) {
        e[2] = at.kw.element;
        for (std::int64_t w = at.kw.first; w < at.kw.end; w += at.kw.step, e[2] += at.kw.advance)
          f((d * p_.kernel[1] + h) * p_.kernel[2] + w, e);
      }
    }
  }

  // Calls f(terms, rows of the panel) for consecutive blocks of `all` terms, packing each into `scratch` when no packed
  // weights exist. Blocks are whole chains.
  template <class F>
  void for_each_block(std::int64_t group, std::int64_t panel, Range all, A* scratch, F&& f) const {
    if (packed_) return f(all, packed_ + ((group * s_.panels + panel) * s_.terms + all.begin) * s_.columns);
    for (std::int64_t k = all.begin; k < all.end; k += s_.pack_terms) {
      const Range terms{k, std::min(all.end, k + s_.pack_terms)};
      pack_terms(typed<T>(a_.weight, group), p_.kernel, p_.in_channels_per_group(), terms, panel * s_.columns,
                 channels(panel), scratch, s_.columns);
      f(terms, static_cast<const A*>(scratch));
    }
  }

  // Sums are made in chains of block_terms() from the first term on, whatever the block.
  void multiply(std::int64_t group, std::int64_t panel, const A* unfolded, std::int64_t rows, A* sums, A* block) const {
    for_each_block(group, panel, {0, s_.terms}, block, [&](Range terms, const A* b) {
      add_chains(unfolded + terms.begin, b, terms.size(), rows, sums, terms.begin > 0);
    });
  }

  // sums = or += the products of `terms` terms of a and b.
  void add_chains(const A* a, const A* b, std::int64_t terms, std::int64_t rows, A* sums, bool accumulate) const {
    const int vectors = static_cast<int>(s_.columns / s_.lanes), together = kernels_.chains_together(vectors);
    const GemmTile<A> tile{{}, s_.terms, sums, s_.columns};
    GemmSlice<A> slices[kMostChains];
    GemmTerms<A> chains[kMostChains];
    int count = 0;
    for (std::int64_t k = 0; k < terms; k += block_) {
      slices[count] = {a + k, b + k * s_.columns};
      chains[count] = {&slices[count], 1, std::min(block_, terms - k)};
      if (++count < together && k + block_ < terms) continue;
      kernels_.chains(tile, chains, count, rows, vectors, accumulate, nullptr);
      accumulate = true;
      count = 0;
    }
  }

  // The zero of a hole times an infinite weight is NaN: rows that show one are summed again over the taps they meet.
  void skip_holes(std::int64_t group, std::int64_t panel, const A* unfolded, Range rows, A* sums, A* block) const {
    for (std::int64_t r = rows.begin; r < rows.end; ++r) {
      A* row_sums = sums + (r - rows.begin) * s_.columns;
      if (std::none_of(row_sums, row_sums + s_.columns, [](A v) { return std::isnan(v); })) continue;
      const Pixel at(s_, r);
      if (at.met() == p_.taps()) continue;
      std::fill_n(row_sums, s_.columns, A{0});
      const std::int64_t in = p_.in_channels_per_group();
      for_each_met(at, [&](std::int64_t tap, const Extent3&) {
        for_each_block(group, panel, {tap * in, (tap + 1) * in}, block, [&](Range terms, const A* b) {
          add_chains(unfolded + (r - rows.begin) * s_.terms + terms.begin, b, terms.size(), 1, row_sums, true);
        });
      });
    }
  }

  // Stores runs of rows that are neighbours along W.
  void finish(std::int64_t group, std::int64_t panel, Range rows, const A* sums) const {
    const std::int64_t channel = group * p_.out_channels_per_group() + panel * s_.columns;
    for (std::int64_t r = rows.begin, run; r < rows.end; r += run) {
      const std::int64_t w = r % p_.output[2];
      run = std::min(rows.end - r, p_.output[2] - w);
      const auto to = tile_store<A, Out>(p_, a_, OutputRow(p_, r / p_.output[2]), w, channel);
      store_tile(sums + (r - rows.begin) * s_.columns, s_.columns, run, channels(panel), to, p_.epilogue);
    }
  }

  std::int64_t channels(std::int64_t panel) const {
    return std::min(s_.columns, p_.out_channels_per_group() - panel * s_.columns);
  }

  const UnfoldLayout& s_;
  const ConvProblem& p_;
  const Operands<Device>& a_;
  const A* packed_;
  const GemmKernels<A>& kernels_ = gemm_kernels<A>();
  const std::int64_t block_ = block_terms(s_.terms);
};

// A task is a part of a panel, so that every thread has one.
template <class T>
void pack_as(const UnfoldLayout& s, const WeightView<std::byte*>& weight, std::byte* packed) {
  constexpr std::int64_t kLeastTerms = 256;
  const std::int64_t panels = s.p.groups * s.panels;
  const std::int64_t wanted = ceil_div(std::int64_t{thread_pool().size()}, panels);
  const std::int64_t parts = std::clamp<std::int64_t>(s.terms / kLeastTerms, 1, wanted);
  thread_pool().run(panels * parts, [&](std::int64_t task) {
    const std::int64_t panel = task / parts, first = panel % s.panels * s.columns;
    const Range terms = nth_part(s.terms, task % parts, parts);
    pack_terms(typed<T>(weight, panel / s.panels), s.p.kernel, s.p.in_channels_per_group(), terms, first,
               std::min(s.columns, s.p.out_channels_per_group() - first),
               reinterpret_cast<Accumulator<T>*>(packed) + (panel * s.terms + terms.begin) * s.columns, s.columns);
  });
}

template <class T, class Out>
void run_as(const UnfoldLayout& s, const Operands<Device>& a, std::byte* workspace) {
  const std::byte* packed = a.prepared ? a.prepared->data : nullptr;
  const std::size_t slot_bytes = static_cast<std::size_t>(s.slot_elements()) * sizeof(Accumulator<T>);
  if (!packed && s.shared_weights) {
    std::byte* to = workspace + slot_bytes * static_cast<std::size_t>(s.slots);
    pack_as<T>(s, a.weight, to);
    packed = to;
  }
  const Unfold<T, Out> unfold(s, a, reinterpret_cast<const Accumulator<T>*>(packed));
  ScratchSlots(workspace, slot_bytes, s.slots)
      .run(unfold.tiles() * s.p.groups,
           [&](std::int64_t t, std::byte* scratch) { unfold.task(t, reinterpret_cast<Accumulator<T>*>(scratch)); });
}

void RunUnfold(const UnfoldLayout& s, const Operands<Device>& a, std::byte* workspace) {
  with_types(s.p, [&](auto in, auto out) { run_as<decltype(in), decltype(out)>(s, a, workspace); });
}

void PackUnfold(const UnfoldLayout& s, const WeightView<std::byte*>& weight, std::byte* packed) {
  with_types(s.p, [&](auto in, auto) { pack_as<decltype(in)>(s, weight, packed); });
}

}  // namespace vkconv::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace vkconv::cpu {

HWY_EXPORT(RunUnfold);
HWY_EXPORT(PackUnfold);

void run_unfold(const UnfoldLayout& s, const Operands<Device>& a, std::byte* workspace) {
  HWY_DYNAMIC_DISPATCH(RunUnfold)(s, a, workspace);
}
void pack_unfold(const UnfoldLayout& s, const WeightView<std::byte*>& weight, std::byte* packed) {
  HWY_DYNAMIC_DISPATCH(PackUnfold)(s, weight, packed);
}

}  // namespace vkconv::cpu
#endif
