// The input as rows of the pixels a kernel computes with, whatever the operand type.
// Include once per instruction set (Highway's foreach_target).
#if defined(VKCONV_CPU_INPUT_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VKCONV_CPU_INPUT_ROWS_INL_H_
#undef VKCONV_CPU_INPUT_ROWS_INL_H_
#else
#define VKCONV_CPU_INPUT_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "core/geometry.h"
#include "core/view.h"
#include "cpu/bf16_parts-inl.h"
#include "cpu/output_row.h"
#include "cpu/pack-inl.h"
#include "cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The input rows (n, id, ih) of one task as pixels of type X: in place, or copied into scratch. A copy widens halves,
// unless X is T, or splits what has parts in X (bf16_parts.h). It has zeros where the kernel reaches past the ends of a
// row and behind channels that are to be more, and starts on a cache line: vectors that cross lines load at a quarter
// of the rate. Where taps are channels, each output has a pixel of its own: all that a row of taps reads.
template <class T, class X = Accumulator<T>>
class InputRows {
 public:
  // `rows` are output rows (n, od, oh) counted through, `columns` output columns; both hold one element at least. Of
  // the channels `read` are copied, to pixels of that many, or of `channels` where these are more.
  InputRows(const ConvProblem& p, const View<std::byte*>& input, Range rows, Range columns, std::byte* scratch,
            bool copy, Range read, std::int64_t channels = 0, bool taps_are_channels = false)
      : p_(p),
        input_(input),
        copied_(copy),
        taps_are_channels_(taps_are_channels),
        read_(read),
        channels_(std::max(channels, read.size())) {
    if (!copy) return;
    first_ = taps_are_channels ? columns.begin : columns.begin * p_.stride[2] - p_.pad_lo[2];
    width_ = taps_are_channels ? columns.size() : inputs_under(p_, 2, columns.size());
    copy_ = reinterpret_cast<X*>(scratch);
    collect(rows);
    if (taps_are_channels) pixel_.resize(static_cast<std::size_t>(p_.kernel[2] * read.size()));
    for (std::size_t i = 0; i < keys_.size(); ++i)
      copy_row(keys_[i], copy_ + static_cast<std::int64_t>(i) * width_ * channels_);
  }

  // Elements between pixels.
  std::int64_t pixel_stride() const { return copied_ ? channels_ : input_.stride[3]; }
  // Whether all values of a pixel that was split have parts, and whether all pixels' do.
  bool has_parts(const X* pixel) const { return all_have_parts() || !without_parts_[index_of(pixel)]; }
  bool all_have_parts() const { return without_parts_.empty(); }
  // Where channel 0 of pixel 0 of the row is, or would be.
  const X* row(std::int64_t n, std::int64_t d, std::int64_t h) const {
    if (!copied_)
      return reinterpret_cast<const X*>(input_.data) + n * input_.stride[0] + d * input_.stride[1] +
             h * input_.stride[2];
    const auto at = static_cast<std::int64_t>(place(key(n, d, h)));
    return copy_ + (at * width_ - first_) * channels_ - read_.begin;
  }

 private:
  std::int64_t key(std::int64_t n, std::int64_t d, std::int64_t h) const {
    return (n * p_.input[0] + d) * p_.input[1] + h;
  }

  void collect(Range rows) {
    bool ascending = true;
    OutputRow out(p_, rows.begin);
    for (std::int64_t r = rows.begin; r < rows.end; ++r, out.advance(p_))
      for (std::int64_t kd = out.kd.begin; kd < out.kd.end; ++kd)
        for (std::int64_t kh = out.kh.begin; kh < out.kh.end; ++kh) {
          const std::int64_t k = key(out.n, position_of(p_, 0, out.d, kd), position_of(p_, 1, out.h, kh));
          if (ascending && !keys_.empty() && k <= keys_.back()) {
            if (keys_[place(k)] == k) continue;
            ascending = false;
          }
          keys_.push_back(k);
        }
    if (ascending) return;
    std::sort(keys_.begin(), keys_.end());
    keys_.erase(std::unique(keys_.begin(), keys_.end()), keys_.end());
  }

  // Where a key is among ascending ones, if it is, or could be inserted. Most follow each other without a gap.
  std::size_t place(std::int64_t key) const {
    const auto near = static_cast<std::size_t>(key - keys_.front());
    if (near < keys_.size() && keys_[near] == key) return near;
    return static_cast<std::size_t>(std::lower_bound(keys_.begin(), keys_.end(), key) - keys_.begin());
  }

  static constexpr bool kWidens = std::is_same_v<X, Accumulator<T>>, kPads = !kWidens && std::is_same_v<X, T>;

  void copy_row(std::int64_t key, X* to) {
    const std::int64_t h = key % p_.input[1], d = key / p_.input[1] % p_.input[0], n = key / p_.input[1] / p_.input[0];
    const T* from = reinterpret_cast<const T*>(input_.data) + n * input_.stride[0] + d * input_.stride[1] +
                    h * input_.stride[2] + read_.begin;
    if constexpr (!kWidens)
      if (taps_are_channels_) return copy_taps(from, to);
    const std::int64_t begin = std::clamp<std::int64_t>(-first_, 0, width_);
    const std::int64_t end = std::clamp<std::int64_t>(p_.input[2] - first_, begin, width_);
    from += (first_ + begin) * input_.stride[3];
    std::fill(to, to + begin * channels_, X{});
    std::fill(to + end * channels_, to + width_ * channels_, X{});
    to += begin * channels_;
    if constexpr (kWidens)
      widen_pixels(from, end - begin, to);
    else if constexpr (kPads)
      pad_pixels(from, end - begin, to);
    else
      split_row(from, end - begin, to);
  }

  std::size_t index_of(const X* pixel) const { return static_cast<std::size_t>((pixel - copy_) / channels_); }

  // A row whose values do not all have parts is split again, pixel by pixel, to find those.
  void split_row(const T* from, std::int64_t pixels, X* to) {
    if (split_pixels(from, input_.stride[3], read_.size(), pixels, to, channels_)) return;
    for (std::int64_t i = 0; i < pixels; ++i)
      split_pixel(from + i * input_.stride[3], read_.size(), to + i * channels_);
  }
  void split_pixel(const T* from, std::int64_t count, X* to) {
    if (split_pixels(from, 0, count, 1, to, channels_)) return;
    without_parts_.resize(keys_.size() * static_cast<std::size_t>(width_));
    without_parts_[index_of(to)] = true;
  }

  // The values of a pixel of its own, and zeros behind them.
  void copy_pixel(const T* from, std::int64_t count, X* to) {
    if constexpr (kPads)
      copy_padded(from, count, to);
    else
      split_pixel(from, count, to);
  }

  void widen_pixels(const T* from, std::int64_t pixels, X* to) const {
    const bool dense = input_.stride[3] == read_.size();
    const std::int64_t runs = dense ? 1 : pixels;
    const std::int64_t length = dense ? pixels * read_.size() : read_.size();
    for (std::int64_t i = 0; i < runs; ++i, from += input_.stride[3], to += length) widen_run(from, length, to);
  }

  static constexpr std::int64_t kWord = 4;  // values

  // Pads the first pixels, of kWords words each, where all of those are this row's; the next pixel overwrites what is
  // behind this one's own. Returns their number.
  template <int kWords>
  std::int64_t pad_words(const T* from, std::int64_t pixels, X* to) const {
    const std::int64_t in = read_.size();
    if (channels_ > kWords * kWord) return 0;
    std::uint64_t own[kWords];
    for (std::int64_t j = 0; j < kWords; ++j) {
      const std::int64_t values = std::clamp<std::int64_t>(in - j * kWord, 0, kWord);
      own[j] = values == kWord ? ~std::uint64_t{0} : (std::uint64_t{1} << (16 * values)) - 1;
    }
    const std::int64_t count = std::max<std::int64_t>(0, pixels - kWords * kWord);
    for (std::int64_t i = 0; i < count; ++i) {
      std::uint64_t words[kWords];
      std::memcpy(words, from + i * in, sizeof words);
      for (int j = 0; j < kWords; ++j) words[j] &= own[j];
      std::memcpy(to + i * channels_, words, sizeof words);
    }
    return count;
  }

  // Zeros follow the channels of every pixel.
  void pad_pixels(const T* from, std::int64_t pixels, X* to) const {
    static_assert(sizeof(T) == 2);
    const std::int64_t in = read_.size();
    std::int64_t i = 0;
    for (; fills_vectors() && i < pixels; ++i) copy_padded(from + i * input_.stride[3], in, to + i * channels_);
    if (!fills_vectors() && input_.stride[3] == in)
      i = channels_ <= kWord ? pad_words<1>(from, pixels, to) : pad_words<2>(from, pixels, to);
    for (; i < pixels; ++i) {
      std::copy_n(from + i * input_.stride[3], in, to + i * channels_);
      std::fill(to + i * channels_ + in, to + (i + 1) * channels_, X{});
    }
  }

  // Pixel after pixel, from pixel 0 of a row.
  void copy_taps(const T* row, X* to) {
    const std::int64_t in = read_.size(), step = p_.dilation[2] * input_.stride[3], taps = p_.kernel[2];
    const Range whole = step == in ? whole_outputs(p_, 2) : Range{};
    for (std::int64_t w = first_; w < first_ + width_; ++w, to += channels_) {
      const T* from = row + (w * p_.stride[2] - p_.pad_lo[2]) * input_.stride[3];
      if (whole.contains(w)) {
        copy_pixel(from, taps * in, to);
        continue;
      }
      const Range inside = taps_inside(p_, 2, w);
      std::fill(pixel_.begin(), pixel_.end(), T{});
      for (std::int64_t k = inside.begin; k < inside.end; ++k) std::copy_n(from + k * step, in, pixel_.data() + k * in);
      copy_pixel(pixel_.data(), taps * in, to);
    }
  }

  using Bits = hn::ScalableTag<std::uint16_t>;  // of halves
  bool fills_vectors() const { return channels_ % static_cast<std::int64_t>(hn::Lanes(Bits())) == 0; }
  // `count` values, and zeros behind them.
  void copy_padded(const T* from, std::int64_t count, X* to) const {
    const Bits d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    for (std::int64_t i = 0; i < channels_; i += lanes) {
      const auto some = hn::FirstN(d, static_cast<std::size_t>(std::clamp<std::int64_t>(count - i, 0, lanes)));
      const auto v = hn::MaskedLoad(some, d, reinterpret_cast<const std::uint16_t*>(from) + i);
      hn::StoreU(v, d, reinterpret_cast<std::uint16_t*>(to) + i);
    }
  }

  const ConvProblem& p_;
  const View<std::byte*>& input_;
  const bool copied_, taps_are_channels_;
  const Range read_;                // channels that are copied
  const std::int64_t channels_;     // of a copied pixel
  std::vector<std::int64_t> keys_;  // of the copied rows, ascending
  X* copy_ = nullptr;
  std::vector<T> pixel_;                // whose taps are channels
  std::vector<bool> without_parts_;     // by copied pixel; empty: none
  std::int64_t first_ = 0, width_ = 0;  // copied columns
};

}  // namespace vkconv::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
