// The operands of a block of pixels: read in place, or copied to scratch. Included once per instruction set.
#if defined(VKCONV_WEIGHT_GRAD_OPERANDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VKCONV_WEIGHT_GRAD_OPERANDS_INL_H_
#undef VKCONV_WEIGHT_GRAD_OPERANDS_INL_H_
#else
#define VKCONV_WEIGHT_GRAD_OPERANDS_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "algorithms/weight_grad/weight_grad.h"
#include "algorithms/weight_grad/weight_grad_walk.h"
#include "cpu/pack-inl.h"

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
        shape_(job.shape),
        x_channels_(shape_.groups == 1 ? p_.in_channels : p_.in_channels_per_group()),
        dy_channels_(shape_.groups == 1 ? p_.out_channels : p_.out_channels_per_group()),
        channels_(unit_channels(p_, shape_, unit)),
        x_(job.operands.input),
        dy_(job.operands.output),
        x_base_(reinterpret_cast<const In*>(x_.data) + unit.group * x_channels_),
        dy_base_(reinterpret_cast<const In*>(dy_.data) + unit.group * dy_channels_),
        scratch_(scratch) {}

 protected:
  // The lines of the block whose kernel row (kd, kh) reads inside the input.
  void collect_lines(std::int64_t first, std::int64_t kernel_row) {
    const std::int64_t kd = kernel_row / p_.kernel[1], kh = kernel_row % p_.kernel[1];
    std::int64_t oh = first % p_.output[1], od = first / p_.output[1] % p_.output[0],
                 n = first / p_.output[1] / p_.output[0];
    line_count_ = 0;
    for (std::int64_t left = std::min(shape_.lines_per_block, shape_.lines - first); left > 0; --left) {
      const std::int64_t id = input_index(p_, 0, od, kd), ih = input_index(p_, 1, oh, kh);
      if (id >= 0 && ih >= 0)
        lines_[line_count_++] = {x_base_ + n * x_.stride[0] + id * x_.stride[1] + ih * x_.stride[2],
                                 dy_base_ + n * dy_.stride[0] + od * dy_.stride[1] + oh * dy_.stride[2]};
      if (++oh < p_.output[1]) continue;
      oh = 0;
      if (++od < p_.output[0]) continue;
      od = 0, ++n;
    }
  }

  // Both operands, what the unit reads of them, padded to whole vectors.
  void load(Columns<T>& x, Columns<T>& dy) {
    if (shape_.staged) {
      // The rows of merged taps follow one another.
      const auto pitch = [&](const Range& channels) { return copy_pitch(p_, shape_, channels.size()); };
      const std::int64_t x_pixel = shape_.merged ? x_channels_ : pitch(channels_.x);
      T* rest = stage(dy, scratch_, outputs_, channels_.dy, pitch(channels_.dy), dy_.stride[3], dy_of);
      stage(x, rest, input_columns(), channels_.x, x_pixel, x_.stride[3], x_of);
    } else if constexpr (std::is_same_v<T, In>) {
      find(x, dy);
    }
  }

  // Both operands where they are.
  void find(Columns<In>& x, Columns<In>& dy) const {
    x.pixel = x_.stride[3], dy.pixel = dy_.stride[3];
    for (std::int64_t l = 0; l < line_count_; ++l) x.base[l] = lines_[l].x, dy.base[l] = lines_[l].dy;
  }

  // Both operands, for vectors that may reach into the next pixel when pixels lie side by side.
  void load_side_by_side(Columns<T>& x, Columns<T>& dy) {
    T* rest = place(dy, scratch_, outputs_, dy_channels_, dy_.stride[3], dy_of);
    place(x, rest, input_columns(), x_channels_, x_.stride[3], x_of);
  }

  const ConvProblem& p_;
  const Shape& shape_;
  const std::int64_t x_channels_, dy_channels_;  // of a pixel
  const UnitChannels channels_;                  // copied
  Range outputs_{}, taps_{};                     // columns of the block, taps along W of the kernel row
  std::int64_t line_count_ = 0;

 private:
  struct Line {
    const In* x;   // column 0
    const In* dy;  // column 0
  };

  static const In* x_of(const Line& line) { return line.x; }
  static const In* dy_of(const Line& line) { return line.dy; }

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

  const View<std::byte*>& x_;
  const View<std::byte*>& dy_;
  const In* x_base_;
  const In* dy_base_;
  T* scratch_;
  Line lines_[kBlockPixels];
};

}  // namespace vkconv::cpu::weight_grad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
