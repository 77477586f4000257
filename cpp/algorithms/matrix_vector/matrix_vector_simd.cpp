// Windows times weights: where terms lie side by side by the tiles of the narrow kernel, whose pixels are the rows of
// the matrix here and whose weights the windows; where rows do, column by column. Sum r is made of one sum for every
// lane l of a vector, over the terms k with k modulo the lanes = l, in chains of kChainSteps terms, which are added
// last.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "algorithms/matrix_vector/matrix_vector_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include <algorithm>

#include "algorithms/implicit_gemm/narrow_tiles.h"
#include "algorithms/matrix_vector/matrix_vector.h"
#include "cpu/epilogue-inl.h"
#include "cpu/pack-inl.h"
#include "cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::matrix_vector::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using namespace cpu::HWY_NAMESPACE;  // NOLINT: the helpers compiled for this instruction set

template <class T, class Out>
class MatrixVector {
 public:
  using A = Accumulator<T>;

  MatrixVector(const Layout& s, const Operands<Device>& a, A* windows)
      : s_(s), p_(s.p), a_(a), windows_(windows), side_by_side_(terms_lie_side_by_side()) {}

  // A window of all groups, terms in the order (KD, KH, KW, in).
  void copy_window(std::int64_t vector) const {
    const std::int64_t in = p_.in_channels_per_group();
    const Place at = place(vector, 0);
    const auto& stride = a_.input.stride;
    const T* from = reinterpret_cast<const T*>(a_.input.data) + at.row.n * stride[0];
    for (std::int64_t tap = 0; tap * in < s_.terms; ++tap) {
      const Extent3 k = tap_at(p_.kernel, tap), o{at.row.d, at.row.h, at.w};
      const T* x = from;
      for (int a = 0; a < 3 && !s_.spread; ++a) x += position_of(p_, a, o[a], k[a]) * stride[1 + a];
      for (std::int64_t group = 0; group < p_.groups; ++group)
        widen_run(x + group * in, in, window(group, vector) + tap * in);
    }
  }

  void task(std::int64_t index, std::byte* scratch) const {
    const std::int64_t first = index % s_.tasks_a_part() * s_.task_rows, part = index / s_.tasks_a_part() % s_.parts;
    const Range rows{first, std::min(p_.out_channels_per_group(), first + s_.task_rows)};
    const std::int64_t group = index / s_.tasks_a_part() / s_.parts;
    const T* weight = reinterpret_cast<const T*>(a_.weight.data) + group * a_.weight.group;
    if (s_.spread) weight += a_.weight.offset(tap_of(part));
    const bool columns = a_.weight.out == 1 && !side_by_side_;
    const std::int64_t step = columns ? kColumns : kRowsTogether;
    for (std::int64_t r = rows.begin; r < rows.end; r += step) {
      const Block block{group, part, {r, std::min(rows.end, r + step)}, weight + r * a_.weight.out};
      columns ? sum_columns(block, reinterpret_cast<A*>(scratch)) : sum_rows(block, reinterpret_cast<T*>(scratch));
    }
  }

 private:
  struct Place {
    OutputRow row;
    std::int64_t w;
  };
  // Rows of the matrix of one group and part; `weight` is at the first.
  struct Block {
    std::int64_t group, part;
    Range rows;
    const T* weight;
  };

  Place place(std::int64_t vector, std::int64_t part) const {
    const std::int64_t pixel = s_.spread ? vector * s_.parts + part : vector;
    return {OutputRow(p_, pixel / p_.output[2]), pixel % p_.output[2]};
  }
  // The one that an output of a spread kernel meets.
  Extent3 tap_of(std::int64_t part) const {
    const Place at = place(0, part);
    return {at.row.kd.begin, at.row.kh.begin, taps_inside(p_, 2, at.w).begin};
  }
  A* window(std::int64_t group, std::int64_t vector) const {
    return windows_ + (group * s_.vectors + vector) * s_.terms;
  }

  bool terms_lie_side_by_side() const {
    std::int64_t run = p_.in_channels_per_group();
    if (run > 1 && a_.weight.in != 1) return false;
    for (std::size_t axis = 3; axis-- > 0 && !s_.spread; run *= p_.kernel[axis])
      if (p_.kernel[axis] > 1 && a_.weight.tap[axis] != run) return false;
    return true;
  }

  void finish(const Block& block, std::int64_t vector, const A* sums) const {
    const Place at = place(vector, block.part);
    const std::int64_t channel = block.group * p_.out_channels_per_group() + block.rows.begin;
    store_tile(sums, 0, 1, block.rows.size(), tile_store<A, Out>(p_, a_, at.row, at.w, channel), p_.epilogue);
  }

  // ---- lanes are terms

  // Rows of the matrix with their terms side by side.
  void copy_rows(const Block& block, T* to) const {
    const std::int64_t in = p_.in_channels_per_group();
    for (std::int64_t tap = 0; tap * in < s_.terms; ++tap) {
      const T* from = block.weight + (s_.spread ? 0 : a_.weight.offset(tap_at(p_.kernel, tap)));
      for (std::int64_t c = 0; c < in; ++c)
        for (std::int64_t r = 0; r < block.rows.size(); ++r)
          to[r * s_.terms + tap * in + c] = from[r * a_.weight.out + c * a_.weight.in];
    }
  }

  void sum_rows(const Block& block, T* scratch) const {
    if (!side_by_side_) copy_rows(block, scratch);
    const T* weight = side_by_side_ ? block.weight : scratch;
    const std::int64_t row_step = side_by_side_ ? a_.weight.out : s_.terms;
    TermRuns<T> terms;
    terms.weight_stride = s_.terms;
    for (std::int64_t k = 0; k < s_.terms; k += kChain) {
      terms.runs.push_back({weight + k, window(block.group, 0) + k, std::min(kChain, s_.terms - k)});
      terms.ends.push_back(terms.runs.size());
    }
    const auto one = tiles_.one[static_cast<std::size_t>(s_.vectors - 1)];
    const auto several = tiles_.several_of(s_.vectors, row_step);
    const std::int64_t count = block.rows.size();
    A sums[(kRowsTogether + 4) * kMostVectors], turned[kRowsTogether];
    std::int64_t r = 0;
    for (; r + several.pixels <= count; r += several.pixels)
      several.tile(terms, r * row_step, row_step, sums + r * s_.vectors);
    for (; r < count; ++r) one(terms, r * row_step, row_step, sums + r * s_.vectors);
    for (std::int64_t vector = 0; vector < s_.vectors; ++vector) {
      for (r = 0; r < count; ++r) turned[r] = sums[r * s_.vectors + vector];
      finish(block, vector, turned);
    }
  }

  // ---- lanes are rows

  // The sums of a vector's lanes: [vector][lane][kColumns], and behind them those of the chains.
  void sum_columns(const Block& block, A* scratch) const {
    const std::int64_t in = p_.in_channels_per_group(), size = s_.vectors * kLanes * kColumns;
    A *total = scratch, *chain = scratch + size;
    std::fill_n(total, 2 * size, A{0});
    for (std::int64_t k = 0, count; k < s_.terms; k += count) {
      // Terms of one tap, from a lane to the last one.
      const std::int64_t lane = k % kLanes;
      count = std::min({s_.terms - k, in - k % in, kLanes - lane});
      const T* weight =
          block.weight + (s_.spread ? 0 : a_.weight.offset(tap_at(p_.kernel, k / in))) + k % in * a_.weight.in;
      for (std::int64_t vector = 0; vector < s_.vectors; ++vector) {
        const A* x = window(block.group, vector) + k;
        A* sums = chain + (vector * kLanes + lane) * kColumns;
        const std::int64_t whole = count == kLanes ? add_lanes(weight, x, block.rows.size(), sums) : 0;
        for (std::int64_t i = 0; i < count; ++i)
          add_term(weight + i * a_.weight.in, x[i], {whole, block.rows.size()}, sums + i * kColumns);
      }
      if ((k + count) % kChain != 0 && k + count < s_.terms) continue;
      for (std::int64_t i = 0; i < size; ++i) total[i] += chain[i], chain[i] = 0;
    }
    for (std::int64_t vector = 0; vector < s_.vectors; ++vector)
      finish(block, vector, add_lane_sums(total + vector * kLanes * kColumns));
  }

  // A term for every lane, for the rows that fill vectors. Returns how many these are.
  std::int64_t add_lanes(const T* weight, const A* x, std::int64_t rows, A* sums) const {
    constexpr std::int64_t kAhead = 2 * kLanes;  // terms
    const AccumulatorTag<T> d;
    std::int64_t r = 0;
    for (; r + kLanes <= rows; r += kLanes)
      unroll<kLanes>([&](auto l) __attribute__((always_inline)) {
        // Terms may be pages apart: the hardware foresees none of them, and in L1 they would share a few sets.
        fetch_line<kIntoL2>(weight + (l + kAhead) * a_.weight.in + r);
        A* sum = sums + l * kColumns + r;
        hn::StoreU(hn::MulAdd(load(d, weight + l * a_.weight.in + r), hn::Set(d, x[l]), hn::LoadU(d, sum)), d, sum);
      });
    return r;
  }

  static void add_term(const T* weight, A x, Range rows, A* sums) {
    const AccumulatorTag<T> d;
    for (std::int64_t r = rows.begin; r < rows.end; r += kLanes) {
      const auto count = static_cast<std::size_t>(std::min(kLanes, rows.end - r));
      hn::StoreU(hn::MulAdd(load_n(d, weight + r, count), hn::Set(d, x), hn::LoadU(d, sums + r)), d, sums + r);
    }
  }

  // Adds the lanes as add_across_lanes() does: pairs in blocks of 16 bytes, then blocks half the vector apart.
  static const A* add_lane_sums(A* lanes) {
    constexpr std::int64_t kBlock = 16 / sizeof(A);
    const auto add = [&](std::int64_t to, std::int64_t from) {
      for (std::int64_t r = 0; r < kColumns; ++r) lanes[to * kColumns + r] += lanes[from * kColumns + r];
    };
    for (std::int64_t first = 0; first < kLanes; first += kBlock)
      for (std::int64_t apart = kBlock / 2; apart > 0; apart /= 2)
        for (std::int64_t i = 0; i < apart; ++i) add(first + i, first + i + apart);
    for (std::int64_t apart = kLanes / 2; apart >= kBlock; apart /= 2)
      for (std::int64_t first = 0; first < apart; first += kBlock) add(first, first + apart);
    return lanes;
  }

  static constexpr std::int64_t kLanes = hn::MaxLanes(AccumulatorTag<T>());
  static constexpr std::int64_t kChain = kChainSteps * kLanes;
  const Layout& s_;
  const ConvProblem& p_;
  const Operands<Device>& a_;
  A* windows_;
  const bool side_by_side_;  // the weights are read in place
  const NarrowTiles<T>& tiles_ = narrow_tiles<T>();
};

void Run(const Layout& s, const Operands<Device>& a, std::byte* workspace) {
  with_types(s.p, [&](auto in, auto out) {
    using T = decltype(in);
    const MatrixVector<T, decltype(out)> product(s, a, reinterpret_cast<Accumulator<T>*>(workspace));
    for (std::int64_t vector = 0; vector < s.vectors; ++vector) product.copy_window(vector);
    ScratchSlots slots(workspace + s.window_bytes(), s.slot_bytes(), s.slots);
    slots.run(s.tasks(), [&](std::int64_t t, std::byte* scratch) { product.task(t, scratch); });
  });
}

}  // namespace vkconv::cpu::matrix_vector::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace vkconv::cpu::matrix_vector {

HWY_EXPORT(Run);

void run(const Layout& s, const Operands<Device>& a, std::byte* workspace) {
  HWY_DYNAMIC_DISPATCH(Run)(s, a, workspace);
}

}  // namespace vkconv::cpu::matrix_vector
#endif
