// The input rows under a task of image_filter: planes of widened pixels, zeros where there is no input.
// Include once per instruction set (Highway's foreach_target).
#if defined(VKCONV_IMAGE_FILTER_STAGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VKCONV_IMAGE_FILTER_STAGE_INL_H_
#undef VKCONV_IMAGE_FILTER_STAGE_INL_H_
#else
#define VKCONV_IMAGE_FILTER_STAGE_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "algorithms/image_filter/image_filter.h"
#include "core/view.h"
#include "cpu/output_row.h"
#include "cpu/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::image_filter::HWY_NAMESPACE {
using namespace vkconv::cpu::HWY_NAMESPACE;

// v[i] = the widened from[j * n + i] for all j < lanes and i < n.
template <class T, int n, class D>
HWY_INLINE void separate(D d, const T* from, hn::Vec<D> (&v)[n]) {
  static_assert(1 <= n && n <= 4);
  using Bits = std::conditional_t<sizeof(T) == 2, std::uint16_t, T>;
  const hn::Rebind<Bits, D> in;
  const auto* bits = reinterpret_cast<const Bits*>(from);
  hn::Vec<decltype(in)> read[n];
  if constexpr (n == 1) read[0] = hn::LoadU(in, bits);
  if constexpr (n == 2) hn::LoadInterleaved2(in, bits, read[0], read[1]);
  if constexpr (n == 3) hn::LoadInterleaved3(in, bits, read[0], read[1], read[2]);
  if constexpr (n == 4) hn::LoadInterleaved4(in, bits, read[0], read[1], read[2], read[3]);
  unroll<n>([&](auto i) __attribute__((always_inline)) {
    if constexpr (sizeof(T) == 2)
      v[i] = widen_half<T>(d, read[i]);
    else
      v[i] = read[i];
  });
}

template <class T>
class Stage {
 public:
  using A = Accumulator<T>;

  Stage(const Layout& s, const View<std::byte*>& input)
      : s_(s), p_(s.p), input_(input), separates_(input.stride[3] == s.p.in_channels && s.separates_planes()) {}

  // The rows under output rows h and columns w, of the taps along D of `at`.
  void copy(const OutputRow& at, Range h, Range w, A* staged) const {
    const std::int64_t step = p_.stride[2], left = w.begin * step - p_.pad_lo[2];
    const std::int64_t begin = std::min(ceil_div(std::max<std::int64_t>(-left, 0), step), s_.staged_width);
    const std::int64_t whole = (p_.input[2] - std::min(left, p_.input[2])) / step;
    const Groups groups{left, {begin, std::clamp(whole, begin, s_.staged_width)}};
    const Range rows = positions_under(p_, 1, h), inside = common(rows, {0, p_.input[1]});
    for (std::int64_t kd = at.kd.begin; kd < at.kd.end; ++kd) {
      const T* plane = reinterpret_cast<const T*>(input_.data) + at.n * input_.stride[0] +
                       position_of(p_, 0, at.d, kd) * input_.stride[1];
      for (std::int64_t row = inside.begin; row < inside.end; ++row)
        copy_row(plane + row * input_.stride[2], groups,
                 staged + (kd * s_.staged_rows + row - rows.begin) * s_.row_stride());
    }
  }

 private:
  // As many pixels of a row as the stride has, from pixel `left` on, are a group, an element of every plane. Those of
  // `inside` are inside the input.
  struct Groups {
    std::int64_t left;
    Range inside;
  };

  void copy_row(const T* row, const Groups& groups, A* to) const {
    const std::int64_t width = s_.staged_width, pixel = input_.stride[3];
    const auto [begin, end] = groups.inside;
    for (std::int64_t phase = 0; phase < s_.phases; ++phase)
      for (std::int64_t c = 0; c < p_.in_channels; ++c) {
        A* const plane = to + (phase * p_.in_channels + c) * width;
        const auto border = [&](std::int64_t group) {
          const std::int64_t at = groups.left + group * p_.stride[2] + phase;
          plane[group] = at >= 0 && at < p_.input[2] ? widened(row + at * pixel + c) : 0;
        };
        std::fill_n(plane, begin, A{0});
        std::fill(plane + end, plane + width, A{0});
        if (begin > 0) border(begin - 1);
        if (end < width) border(end);
      }
    const T* const inside = row + (groups.left + begin * p_.stride[2]) * pixel;
    if (separates_ && copy_vectors(hn::ScalableTag<A>(), inside, end - begin, to + begin)) return;
    for (std::int64_t phase = 0; phase < s_.phases; ++phase)
      for (std::int64_t c = 0; c < p_.in_channels; ++c) {
        A* const plane = to + (phase * p_.in_channels + c) * width + begin;
        const T* from = inside + phase * pixel + c;
        for (std::int64_t i = 0; i < end - begin; ++i) plane[i] = widened(from + i * p_.stride[2] * pixel);
      }
  }

  // Some groups of dense pixels, by vectors of D or shorter ones; false where they are too few.
  template <class D>
  bool copy_vectors(D d, const T* from, std::int64_t groups, A* to) const {
    if (s_.planes() == 1) return widen_run(from, groups, to), true;
    if (groups < static_cast<std::int64_t>(hn::Lanes(d))) {
      if constexpr (hn::MaxLanes(d) > 4) return copy_vectors(hn::Half<D>(), from, groups, to);
      return false;
    }
    unroll<kMostIn>([&](auto i) {
      if (s_.separated() == i + 1)
        s_.phases == 2 ? copy_pairs<i + 1>(d, from, groups, to) : copy_groups<i + 1>(d, from, groups, to);
    });
    return true;
  }

  // Vectors of groups one after the other, the last among those before.
  template <class F>
  static void for_vectors(std::int64_t groups, std::int64_t lanes, F step) {
    for (std::int64_t i = 0; i + lanes <= groups; i += lanes) step(i);
    step(groups - lanes);
  }

  // Of as many planes.
  template <int n, class D>
  HWY_NOINLINE void copy_groups(D d, const T* from, std::int64_t groups, A* to) const {
    for_vectors(groups, static_cast<std::int64_t>(hn::Lanes(d)), [&](std::int64_t i) HWY_ATTR {
      hn::Vec<D> v[n];
      separate<T>(d, from + i * n, v);
      unroll<n>([&](auto plane)
                    __attribute__((always_inline)) { hn::StoreU(v[plane], d, to + plane * s_.staged_width + i); });
    });
  }

  // Of as many channels and two phases.
  template <int n, class D>
  HWY_NOINLINE void copy_pairs(D d, const T* from, std::int64_t groups, A* to) const {
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    for_vectors(groups, lanes, [&](std::int64_t i) HWY_ATTR {
      hn::Vec<D> first[n], second[n];
      separate<T>(d, from + 2 * i * n, first);
      separate<T>(d, from + (2 * i + lanes) * n, second);
      unroll<n>([&](auto c) __attribute__((always_inline)) {
        hn::StoreU(hn::ConcatEven(d, second[c], first[c]), d, to + c * s_.staged_width + i);
        hn::StoreU(hn::ConcatOdd(d, second[c], first[c]), d, to + (n + c) * s_.staged_width + i);
      });
    });
  }

  const Layout& s_;
  const ConvProblem& p_;
  const View<std::byte*>& input_;
  const bool separates_;
};

}  // namespace vkconv::cpu::image_filter::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
