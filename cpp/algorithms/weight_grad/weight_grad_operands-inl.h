// The operands of a block of pixels: read in place, or copied to scratch. Included once per instruction set.
#if defined(VKCONV_WEIGHT_GRAD_OPERANDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VKCONV_WEIGHT_GRAD_OPERANDS_INL_H_
#undef VKCONV_WEIGHT_GRAD_OPERANDS_INL_H_
#else
#define VKCONV_WEIGHT_GRAD_OPERANDS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "algorithms/weight_grad/weight_grad.h"
#include "algorithms/weight_grad/weight_grad_patches-inl.h"
#include "algorithms/weight_grad/weight_grad_walk.h"
#include "cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::weight_grad::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// What the kernels read: line l, column c at base[l] + (c - first) * pixel, from `channel` on.
template <class T>
struct Columns {
  const T* base[kBlockPixels];
  std::int64_t first = 0, pixel = 0, channel = 0;
  bool in_place = false;
  const T* at(std::int64_t line, std::int64_t column) const { return base[line] + (column - first) * pixel; }
};

// In is the type of the operands, T that of the sums.
template <class T, class In>
class BlockOperands {
 public:
  BlockOperands(const Job& job, const Unit& unit, T* scratch)
      : p_(job.p),
        source_(job.source),
        shape_(job.shape),
        scratch_(scratch),
        x_channels_(shape_.groups == 1 ? p_.in_channels : p_.in_channels_per_group()),
        dy_channels_(shape_.groups == 1 ? p_.out_channels : p_.out_channels_per_group()),
        channels_(unit_channels(p_, shape_, unit)),
        kernel_rows_(patch_kernel_rows(job.source, channels_.x)),
        x_(job.operands.input),
        dy_(job.operands.output),
        x_base_(reinterpret_cast<const In*>(x_.data) + unit.group * job.source.in_channels_per_group()),
        dy_base_(reinterpret_cast<const In*>(dy_.data) + unit.group * dy_channels_),
        patches_(source_, x_base_, x_.stride, shape_, kernel_rows_) {}

 protected:
  // A block begins: the lines from `first` on.
  void find_lines(std::int64_t first) {
    OutputLine at{first / p_.output[1] / p_.output[0], first / p_.output[1] % p_.output[0], first % p_.output[1]};
    block_lines_ = std::min(shape_.lines_per_block, shape_.lines - first);
    for (std::int64_t l = 0; l < block_lines_; ++l) {
      block_[l] = at;
      if (++at.h < p_.output[1]) continue;
      at.h = 0;
      if (++at.d < p_.output[0]) continue;
      at.d = 0, ++at.n;
    }
  }

  // f(line, input depth) for the lines whose depth tap kd is inside the input.
  template <class F>
  void for_lines(std::int64_t kd, F f) const {
    for (std::int64_t l = 0; l < block_lines_; ++l)
      if (const std::int64_t d = input_index(p_, 0, block_[l].d, kd); d >= 0) f(block_[l], d);
  }

  std::int64_t pitch(const Range& channels) const { return copy_pitch(p_, shape_, channels.size()); }

  // The lines of the block whose kernel row (kd, kh) reads inside the input.
  void collect_lines(std::int64_t kernel_row) {
    line_count_ = 0;
    for_lines(kernel_row / p_.kernel[1], [&](const OutputLine& at, std::int64_t d) {
      const std::int64_t h = input_index(p_, 1, at.h, kernel_row % p_.kernel[1]);
      if (h < 0) return;
      places_[line_count_] = at;
      lines_[line_count_++] = {input_line(at.n, d, h), output_line(at)};
    });
  }

  // Both operands, what the unit reads of them, padded to whole vectors.
  void load(Columns<T>& x, Columns<T>& dy) {
    if (shape_.staged) {
      T* rest = stage_outputs(dy);
      stage(x, rest, input_columns(), channels_.x, pitch(channels_.x), x_.stride[3], x_of);
    } else if constexpr (std::is_same_v<T, In>) {
      x.pixel = x_.stride[3];
      for (std::int64_t l = 0; l < line_count_; ++l) x.base[l] = lines_[l].x;
      find_outputs(dy);
    }
  }

  // The output gradient beside patches, and the rows that these come from.
  void load_outputs(Columns<T>& dy) {
    if constexpr (std::is_same_v<T, In>)
      if (!shape_.staged) return find_outputs(dy);
    stage_outputs(dy);
  }
  void load_patches() {
    unused_ =
        patches_.load(places_, line_count_, outputs_, scratch_ + line_count_ * outputs_.size() * pitch(channels_.dy));
  }

  // The patches of kernel row `r`, and those of all, which load_patches() has made ready.
  void find_patches(std::int64_t r, Columns<T>& x) const {
    x.first = outputs_.begin, x.channel = r * patch_row_channels(source_);
    x.pixel = source_.stride[2] * source_.in_channels_per_group();
    for (std::int64_t l = 0; l < line_count_; ++l) x.base[l] = patches_.row(l, r);
  }
  void compose_patches(Columns<T>& x) const {
    x.first = outputs_.begin, x.channel = kernel_rows_.begin * patch_row_channels(source_);
    x.pixel = copy_pitch(p_, shape_, shape_.patch);
    T* to = unused_;
    for (std::int64_t l = 0; l < line_count_; ++l, to += outputs_.size() * x.pixel) {
      patches_.compose(l, outputs_.size(), to, x.pixel);
      x.base[l] = to;
    }
  }

  // The product of a value that is not finite and padding would be NaN. Takes such values out, and calls
  // f(output channel, patch channel, product) for each with what its patch has beside padding.
  template <class F>
  void take_from_padding(Columns<T>& dy, F f) {
    if (padding_meets_finite(dy)) return;
    if (!shape_.staged) stage_outputs(dy);
    for (std::int64_t l = 0; l < line_count_; ++l)
      for_padded(l, [&](std::int64_t o) {
        T* values = const_cast<T*>(dy.at(l, o)) - dy.channel;
        for (std::int64_t c = channels_.dy.begin; c < channels_.dy.end; ++c) {
          if (std::isfinite(values[c])) continue;
          const T value = std::exchange(values[c], T{0});
          patches_.for_inside(l, o, [&](std::int64_t channel, T x) { f(c, channel, x * value); });
        }
      });
  }

  // Both operands, for vectors that may reach into the next pixel when pixels lie side by side.
  void load_side_by_side(Columns<T>& x, Columns<T>& dy) {
    T* rest = place(dy, scratch_, outputs_, dy_channels_, dy_.stride[3], dy_of);
    place(x, rest, input_columns(), x_channels_, x_.stride[3], x_of);
  }

  const In* input_line(std::int64_t n, std::int64_t d, std::int64_t h) const {
    if (shape_.patches != PatchForm::none) return nullptr;  // it has no pixels of the patches
    return x_base_ + n * x_.stride[0] + d * x_.stride[1] + h * x_.stride[2];
  }
  const In* output_line(const OutputLine& at) const {
    return dy_base_ + at.n * dy_.stride[0] + at.d * dy_.stride[1] + at.h * dy_.stride[2];
  }

  const ConvProblem& p_;
  const ConvProblem& source_;  // of patches, else p_
  const Shape& shape_;
  T* const scratch_;
  const std::int64_t x_channels_, dy_channels_;  // of a pixel
  const UnitChannels channels_;                  // copied
  const Range kernel_rows_;                      // of the unit's patches
  const View<std::byte*>& x_;
  const View<std::byte*>& dy_;
  Range outputs_{}, taps_{};  // columns of the block, taps along W of the kernel row
  std::int64_t line_count_ = 0;

 private:
  struct Line {
    const In* x;   // column 0
    const In* dy;  // column 0
  };

  static const In* x_of(const Line& line) { return line.x; }
  static const In* dy_of(const Line& line) { return line.dy; }

  void find_outputs(Columns<In>& dy) const {
    dy.pixel = dy_.stride[3];
    for (std::int64_t l = 0; l < line_count_; ++l) dy.base[l] = lines_[l].dy;
  }

  T* stage_outputs(Columns<T>& dy) {
    return stage(dy, scratch_, outputs_, channels_.dy, pitch(channels_.dy), dy_.stride[3], dy_of);
  }

  // Calls f for the outputs of a line of the block whose patches have padding.
  template <class F>
  void for_padded(std::int64_t line, F f) const {
    const Range whole = patches_.whole(line);
    for (std::int64_t o = outputs_.begin; o < std::min(outputs_.end, whole.begin); ++o) f(o);
    for (std::int64_t o = std::max(outputs_.begin, whole.end); o < outputs_.end; ++o) f(o);
  }

  bool padding_meets_finite(const Columns<T>& dy) const {
    using cpu::HWY_NAMESPACE::load_n;
    const hn::ScalableTag<T> d;
    const std::int64_t count = channels_.dy.size(), whole = count / shape_.lanes * shape_.lanes;
    const auto rest = static_cast<std::size_t>(count - whole);
    auto zero = hn::Zero(d);  // 0 times every value: NaN from one that is not finite on
    for (std::int64_t l = 0; l < line_count_; ++l)
      for_padded(l, [&](std::int64_t o) HWY_ATTR {
        const T* values = dy.at(l, o) + channels_.dy.begin - dy.channel;
        for (std::int64_t c = 0; c < whole; c += shape_.lanes)
          zero = hn::MulAdd(hn::LoadU(d, values + c), hn::Zero(d), zero);
        if (rest > 0) zero = hn::MulAdd(load_n(d, values + whole, rest), hn::Zero(d), zero);
      });
    return hn::AllTrue(d, hn::Eq(zero, hn::Zero(d)));
  }

  // Copies columns [range) of all lines, some channels of each, padded to `pixel`. Returns the end of the copy.
  template <class Pick>
  T* stage(Columns<T>& to, T* scratch, const Range& range, const Range& copied, std::int64_t pixel,
           std::int64_t pixel_stride, Pick line) {
    to.first = range.begin;
    to.pixel = pixel;
    to.channel = copied.begin;
    const std::int64_t channels = copied.size();
    const bool dense = pixel == channels && pixel_stride == channels;
    const std::int64_t runs = dense ? std::min<std::int64_t>(range.size(), 1) : range.size();
    const std::int64_t length = dense ? range.size() * channels : channels;
    for (std::int64_t l = 0; l < line_count_; ++l) {
      to.base[l] = scratch;
      const In* from = line(lines_[l]) + range.begin * pixel_stride + copied.begin;
      for (std::int64_t i = 0; i < runs; ++i, from += pixel_stride, scratch += dense ? length : pixel) {
        cpu::HWY_NAMESPACE::widen_run(from, length, scratch);
        if (channels < shape_.lanes) std::fill(scratch + channels, scratch + pixel, T{0});
      }
    }
    return scratch;
  }

  template <class Pick>
  T* place(Columns<T>& to, T* scratch, const Range& range, std::int64_t channels, std::int64_t pixel_stride,
           Pick line) {
    if constexpr (std::is_same_v<T, In>)
      if (channels >= shape_.lanes || pixel_stride == channels) {
        to.pixel = pixel_stride, to.in_place = true;
        for (std::int64_t l = 0; l < line_count_; ++l) to.base[l] = line(lines_[l]);
        return scratch;
      }
    return stage(to, scratch, range, {0, channels}, channels, pixel_stride, line) + shape_.lanes;
  }

  // Input columns that the taps of this kernel row read for the outputs of the block.
  Range input_columns() const {
    Range r{p_.input[2], 0};
    for (std::int64_t k = taps_.begin; k < taps_.end; ++k) {
      const Walk w = walk(p_, 2, k, outputs_);
      if (w.count == 0) continue;
      r.begin = std::min(r.begin, w.in);
      r.end = std::max(r.end, w.in + (w.count - 1) * w.in_step + 1);
    }
    return {r.begin, std::max(r.begin, r.end)};
  }

  const In* x_base_;
  const In* dy_base_;
  Patches<T, In> patches_;
  T* unused_ = nullptr;  // of the scratch, behind the rows of patches
  Line lines_[kBlockPixels];
  OutputLine block_[kBlockPixels], places_[kBlockPixels];
  std::int64_t block_lines_ = 0;
};

}  // namespace vkconv::cpu::weight_grad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
