// Sums of a weight gradient with several groups, or pixels, in a vector: Form::groups. Included once per instruction
// set.
#if defined(VKCONV_WEIGHT_GRAD_GROUP_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VKCONV_WEIGHT_GRAD_GROUP_SUMS_INL_H_
#undef VKCONV_WEIGHT_GRAD_GROUP_SUMS_INL_H_
#else
#define VKCONV_WEIGHT_GRAD_GROUP_SUMS_INL_H_
#endif

#include <algorithm>
#include <array>
#include <vector>

#include "algorithms/weight_grad/weight_grad_groups.h"
#include "algorithms/weight_grad/weight_grad_lane_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::weight_grad::HWY_NAMESPACE {

// Of one unit. In is the type of the operands, T that of the sums.
template <class T, class In>
class GroupSums : protected LaneSums<T, In> {
 protected:
  using Base = LaneSums<T, In>;
  using Operands = BlockOperands<T, In>;
  using Columns = weight_grad::HWY_NAMESPACE::Columns<T>;
  using Base::unit_, Base::row_length_;
  using Operands::outputs_, Operands::taps_, Operands::line_count_;
  using Operands::p_, Operands::shape_, Operands::x_channels_, Operands::dy_channels_;

  GroupSums(const Job& job, const Unit& unit, T* scratch) : Base(job, unit, scratch) {
    if (shape_.form == Form::groups) find_permutations();
  }

  // The taps of a kernel row over a block, whose sums are at `sums`.
  void run_groups(T* sums) {
    Columns x, dy;
    this->load_side_by_side(x, dy);
    const bool dilated_input = p_.input_dilation[2] > 1;
    const std::int64_t most_taps = dilated_input ? 1 : most_group_taps(std::min(unit_.rows.size(), kMaxGroupRows));
    const std::int64_t parts = ceil_div(taps_.size(), most_taps);
    for (std::int64_t part = 0; part < parts; ++part) {
      const Range some = nth_part(taps_.size(), part, parts);
      const Range taps{taps_.begin + some.begin, taps_.begin + some.end};
      run_group_taps(x, dy, taps, sums + some.begin * unit_.rows.size() * row_length_);
    }
  }

 private:
  // The first channel of the output gradient that meets a vector, and the lanes' elements behind it, in row 0.
  struct Permutation {
    std::int64_t channel;
    std::array<typename GroupTile<T>::Index, HWY_MAX_BYTES / sizeof(T)> index;
  };

  void find_permutations() {
    const std::int64_t in = p_.in_channels_per_group(), out = p_.out_channels_per_group();
    const std::int64_t most = std::max<std::int64_t>(0, p_.out_channels - shape_.lanes);
    for (std::int64_t v = unit_.vectors.begin; v < unit_.vectors.end; ++v) {
      Permutation& to = permutations_.emplace_back();
      to.channel = std::min(v * shape_.vector_step / in * out, most);
      for (std::int64_t i = 0; i < shape_.lanes; ++i) {
        // A vector of several pixels has all channels: the next pixel's groups follow.
        const std::int64_t group = (shape_.channel_of(v) + i) / in;
        const std::int64_t element = std::clamp<std::int64_t>(group * out - to.channel, 0, shape_.lanes - out);
        to.index[static_cast<std::size_t>(i)] = static_cast<typename GroupTile<T>::Index>(element);
      }
    }
  }

  void run_group_taps(const Columns& x, const Columns& dy, const Range& taps, T* sums) {
    GroupTile<T> tile;
    OuterSlice<T> lines[kBlockPixels];
    Walk first = walk(p_, 2, taps.begin, outputs_);
    if (p_.input_dilation[2] == 1) {
      first = {outputs_.begin, 1, position_of(p_, 2, outputs_.begin, taps.begin), p_.stride[2], 0};
      const Range inner = interior();
      tile.inner = {inner.begin - outputs_.begin, inner.end - outputs_.begin};
      for (std::int64_t k = taps.begin; k < taps.end; ++k) {
        const Walk w = walk(p_, 2, k, outputs_);
        tile.begin[k - taps.begin] = w.out - outputs_.begin;
        tile.end[k - taps.begin] = w.out - outputs_.begin + w.count;
      }
    } else {
      tile.inner = {0, first.count};
      tile.begin[0] = 0, tile.end[0] = first.count;
    }
    for (std::int64_t l = 0; l < line_count_; ++l) lines[l] = {dy.at(l, first.out), x.at(l, first.in)};
    tile.lines = lines, tile.line_count = line_count_;
    tile.x_step = first.in_step * x.pixel, tile.dy_step = first.out_step * dy.pixel;
    tile.tap_step = p_.dilation[2] * x.pixel;
    tile.pixels = shape_.pixels;
    tile.x_pixel = std::min(x_channels_, shape_.lanes), tile.dy_pixel = std::min(dy_channels_, shape_.lanes);
    tile.whole_end = whole_vectors_end(x, dy, taps, tile.inner.end, first);
    tile.tap_ldc = unit_.rows.size() * row_length_, tile.row_ldc = row_length_;
    run_group_tiles(tile, taps.size(), sums);
  }

  // The end of the outputs, counted from the first of the block, that may be read in whole vectors: they hold inner
  // ones only, and what they read behind them lies in the same line, or in scratch.
  std::int64_t whole_vectors_end(const Columns& x, const Columns& dy, const Range& taps, std::int64_t inner_end,
                                 const Walk& first) const {
    std::int64_t end = inner_end - shape_.pixels + 1;
    const auto limit = [&](const Columns& c, std::int64_t channels, std::int64_t columns, std::int64_t column,
                           std::int64_t step) {
      if (!c.in_place || channels >= shape_.lanes) return;
      end = std::min(end, floor_div(columns - ceil_div(shape_.lanes, channels) - column, step) + 1);
    };
    limit(dy, dy_channels_, p_.output[2], first.out, first.out_step);
    limit(x, x_channels_, p_.input[2], first.in + (taps.size() - 1) * p_.dilation[2], first.in_step);
    return end;
  }

  void run_group_tiles(GroupTile<T>& tile, std::int64_t taps, T* sums) {
    const std::int64_t rows = unit_.rows.size(), parts = ceil_div(rows, kMaxGroupRows);
    for (std::int64_t v = unit_.vectors.begin; v < unit_.vectors.end; ++v) {
      const Permutation& p = permutations_[static_cast<std::size_t>(v - unit_.vectors.begin)];
      tile.x_channel = shape_.channel_of(v), tile.dy_channel = p.channel;
      tile.index = p.index.data();
      for (std::int64_t i = 0; i < parts; ++i) {
        const Range some = nth_part(rows, i, parts);
        tile.row = unit_.rows.begin + some.begin;
        tile.c = sums + some.begin * row_length_ + (v - unit_.vectors.begin) * shape_.lanes;
        run_group_tile(some.size(), taps, tile);
      }
    }
  }

  // Outputs of the block that have all taps of a kernel row inside the line.
  Range interior() const {
    const Range inner = common(outputs_, whole_outputs(p_, 2));
    return inner.size() > 0 ? inner : Range{outputs_.end, outputs_.end};
  }

  std::vector<Permutation> permutations_;  // of the unit's vectors
};

}  // namespace vkconv::cpu::weight_grad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
