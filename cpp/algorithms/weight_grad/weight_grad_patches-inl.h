// Patches: what the taps read for an output, side by side, as the channels of a pixel of a pointwise problem; zero
// where that is padding. Neither the ends of rows nor kernel rows have register tiles of their own then, which is what
// layers of few channels gain. Included once per instruction set.
#if defined(VKCONV_WEIGHT_GRAD_PATCHES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VKCONV_WEIGHT_GRAD_PATCHES_INL_H_
#undef VKCONV_WEIGHT_GRAD_PATCHES_INL_H_
#else
#define VKCONV_WEIGHT_GRAD_PATCHES_INL_H_
#endif

#include <algorithm>
#include <array>
#include <type_traits>
#include <vector>

#include "algorithms/weight_grad/weight_grad.h"
#include "algorithms/weight_grad/weight_grad_patches.h"
#include "cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::weight_grad::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Of a block of outputs of one group, whose first input channel `x` begins with. In is the type of the input, T that of
// the sums.
template <class T, class In>
class Patches {
 public:
  // Of the kernel rows `rows`.
  Patches(const ConvProblem& p, const In* x, const std::array<std::int64_t, 5>& stride, const Shape& shape,
          const Range& rows)
      : p_(p),
        x_(x),
        stride_(stride),
        rows_(rows),
        composed_(shape.patches == PatchForm::composed),
        in_(p.in_channels_per_group()),
        lanes_(shape.lanes),
        whole_(whole_outputs(p, 2)),
        inputs_(static_cast<std::size_t>(shape.patches == PatchForm::none ? 0 : rows.size() * shape.lines_per_block)) {}

  // Makes the inputs that the rows read for some outputs of the lines, each once, in a copy or where it is; returns the
  // end of the copies.
  T* load(const OutputLine* lines, std::int64_t count, const Range& outputs, T* to) {
    const Range read = positions_under(p_, 2, outputs);
    const std::int64_t length = patch_row(p_, lanes_, outputs.size());
    const bool in_place =
        std::is_same_v<T, In> && !composed_ && stride_[3] == in_ && read.begin >= 0 && read.end <= p_.input[2];
    const T* padding = nullptr;
    for (std::int64_t l = 0; l < count; ++l)
      for_rows(lines[l], [&](std::int64_t r, const In* from) {
        Input& made = inputs_[index(l, r)];
        // A later kernel row may have read it for the line before.
        const std::int64_t later = r + p_.stride[1];
        if (from && l > 0 && later < rows_.end && input(l - 1, later).from == from) {
          made = input(l - 1, later);
        } else if (from && in_place) {
          if constexpr (std::is_same_v<T, In>) made = {from, from + read.begin * in_};
        } else if (!from && padding) {
          made = {nullptr, padding};
        } else {
          load_row(from, read, to);
          made = {from, to};
          if (!from) padding = to;
          to += length;
        }
      });
    return to;
  }

  // What kernel row `r` reads for the block's line.
  const T* row(std::int64_t line, std::int64_t r) const { return input(line, r).row; }

  // The line's patches for so many outputs, `pitch` elements apart: patch_elements() or more.
  void compose(std::int64_t line, std::int64_t outputs, T* to, std::int64_t pitch) const {
    const std::int64_t vector = patch_vector(p_, lanes_);
    if (vector == 4) return compose_in(hn::CappedTag<T, 4>(), line, outputs, to, pitch);
    if (vector == 8) return compose_in(hn::CappedTag<T, 8>(), line, outputs, to, pitch);
    compose_in(hn::ScalableTag<T>(), line, outputs, to, pitch);
  }

  // Outputs of a line whose patches have no padding.
  Range whole(std::int64_t line) const {
    for (std::int64_t r = rows_.begin; r < rows_.end; ++r)
      if (!input(line, r).from) return {0, 0};
    return whole_;
  }

  // Calls f(channel, value) for the patch of output `o` of a line, padding left out.
  template <class F>
  void for_inside(std::int64_t line, std::int64_t o, F f) const {
    const Range taps = taps_inside(p_, 2, o);
    const std::int64_t first = o * p_.stride[2] - p_.pad_lo[2];
    for (std::int64_t r = rows_.begin; r < rows_.end; ++r) {
      const In* from = input(line, r).from;
      for (std::int64_t k = taps.begin; from && k < taps.end; ++k)
        for (std::int64_t c = 0; c < in_; ++c)
          f((r * p_.kernel[2] + k) * in_ + c,
            cpu::HWY_NAMESPACE::widened(from + (first + k * p_.dilation[2]) * stride_[3] + c));
    }
  }

 private:
  struct Input {
    const In* from;  // column 0, or null where the row is padding
    const T* row;    // from the first column on that is read
  };

  std::size_t index(std::int64_t line, std::int64_t r) const {
    return static_cast<std::size_t>(line * rows_.size() + r - rows_.begin);
  }
  const Input& input(std::int64_t line, std::int64_t r) const { return inputs_[index(line, r)]; }

  // Calls f(kernel row, the input row that it reads for a line, null where that is padding).
  template <class F>
  void for_rows(const OutputLine& line, F f) const {
    std::int64_t kd = rows_.begin / p_.kernel[1], kh = rows_.begin % p_.kernel[1];
    for (std::int64_t r = rows_.begin; r < rows_.end; ++r) {
      const std::int64_t id = position_of(p_, 0, line.d, kd);
      const std::int64_t ih = position_of(p_, 1, line.h, kh);
      const bool inside = id >= 0 && id < p_.input[0] && ih >= 0 && ih < p_.input[1];
      f(r, inside ? x_ + line.n * stride_[0] + id * stride_[1] + ih * stride_[2] : nullptr);
      if (++kh == p_.kernel[1]) kh = 0, ++kd;
    }
  }

  // Positions `read` of a row.
  void load_row(const In* from, const Range& read, T* to) const {
    const Range inside = common(read, {0, from ? p_.input[2] : 0});
    const std::int64_t count = inside.size() * in_;
    T* const end = to + read.size() * in_;
    if (count == 0) return std::fill(to, end, T{0});
    T* const begin = to + (inside.begin - read.begin) * in_;
    for (; to < begin; ++to) *to = T{0};
    for (to = begin + count; to < end; ++to) *to = T{0};
    from += inside.begin * stride_[3];
    if (stride_[3] == in_) return cpu::HWY_NAMESPACE::widen_run(from, count, begin);
    for (std::int64_t i = 0; i < inside.size(); ++i)
      cpu::HWY_NAMESPACE::widen_run(from + i * stride_[3], in_, begin + i * in_);
  }

  // In whole vectors, whose ends the next run covers.
  template <class D>
  void compose_in(D d, std::int64_t line, std::int64_t outputs, T* to, std::int64_t pitch) const {
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const std::int64_t run = patch_run(p_), step = p_.stride[2] * in_, dilation = p_.dilation[2];
    const std::int64_t channels = patch_row_channels(p_);
    for (std::int64_t r = rows_.begin; r < rows_.end; ++r)
      for (std::int64_t i = 0; i < channels; i += run, to += run)
        for (std::int64_t c = 0; c < run; c += lanes) {
          const T* HWY_RESTRICT from = row(line, r) + i * dilation + c;
          T* HWY_RESTRICT at = to + c;
          for (std::int64_t o = 0; o < outputs; ++o, from += step, at += pitch) hn::StoreU(hn::LoadU(d, from), d, at);
        }
  }

  const ConvProblem& p_;
  const In* x_;
  const std::array<std::int64_t, 5>& stride_;
  const Range rows_;
  const bool composed_;
  const std::int64_t in_, lanes_;  // channels of a group
  const Range whole_;
  std::vector<Input> inputs_;  // line by line
};

}  // namespace vkconv::cpu::weight_grad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
