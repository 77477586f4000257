// Walks the rows and columns of a block with the register tiles. Included once per instruction set.
#if defined(VKCONV_DEPTHWISE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VKCONV_DEPTHWISE_ROWS_INL_H_
#undef VKCONV_DEPTHWISE_ROWS_INL_H_
#else
#define VKCONV_DEPTHWISE_ROWS_INL_H_
#endif

#include <vector>

#include "algorithms/depthwise/depthwise_pairs-inl.h"
#include "algorithms/depthwise/depthwise_stage-inl.h"
#include "cpu/streaming.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::depthwise::HWY_NAMESPACE {

// The input of one image as the tiles read it: element (d, h, w, o) at data + (d - first[0]) * stride[0] + ... + o,
// o an output channel from `channel` on, w before `columns_end`.
template <class In>
struct Source {
  const In* data;
  Extent3 first, stride;
  std::int64_t channel, columns_end;
  const In* line(std::int64_t d, std::int64_t h) const {
    return data + (d - first[0]) * stride[0] + (h - first[1]) * stride[1] - channel;
  }
};

template <class In>
Source<In> direct_source(const Call& call, const Block& b) {
  const View<std::byte*>& x = call.operands.input;
  return {reinterpret_cast<const In*>(x.data) + b.n * x.stride[0],
          {0, 0, 0},
          {x.stride[1], x.stride[2], x.stride[3]},
          0,
          call.p.input[2]};
}

template <class T>
Source<T> staged_source(const Call& call, const Block& b, std::byte* scratch) {
  const Region r = block_region(call.p, b);
  T* staged = reinterpret_cast<T*>(scratch);
  stage_any<T>(call, b.n, r, staged);
  const std::int64_t line = r.line_length();
  return {staged,
          {r.depths.begin, r.rows.begin, r.columns.begin},
          {line * r.rows.size(), line, r.pixel},
          r.channels.begin,
          r.columns.end};
}

template <class In>
class RowWalk {
  using T = Accumulator<In>;

 public:
  RowWalk(const Call& call, const Block& block, const Source<In>& source)
      : call_(call), p_(call.p), b_(block), x_(source), kd_(taps_inside(p_, 0, block.od)) {
    step_ = dense_step(p_, 2);
    tile_.stride = dense_stride(p_, 2);
    tile_.kernel_width = p_.kernel[2];
    tile_.pixel = p_.dilation[2] * x_.stride[2];
    tile_.weight_row = call.weights.tap[2];
    tile_.weight_line = call.weights.tap[1];
    tile_.channels = b_.channels;
    tile_.peel = call.align_inputs ? unaligned_channels() : 0;
    Sink<T>& s = tile_.sink;
    s.epilogue = &p_.epilogue;
    s.out_type = p_.output_dtype;
    s.bounding = bounding<T>(p_.epilogue, call.operands.bias);
    s.out_pixel = step_ * call.operands.output.stride[3];
    s.addend_pixel = step_ * call.operands.addend.stride[3];
    const DType read = call.mode == Mode::direct ? p_.dtype : accumulator(p_.dtype);
    s.plain = only_bounds(p_.epilogue) && p_.output_dtype == read;
    // Half lines on their way past the caches leave the core before their other halves come, at half the rate.
    s.stream = HWY_MAX_BYTES >= kLineBytes && call.stream && s.plain && std::is_same_v<In, T> &&
               whole_vectors(call.operands.output, p_.output_dtype, b_.channels, HWY_MAX_BYTES);
    s.fetch = call.stream && !s.stream;
  }

  void run() {
    if constexpr (!kFewForms)
      if (takes_row_pairs(p_) && pairs_of_width<In>(p_.kernel[2])) return run_pairs();
    for (std::int64_t oh = b_.oh.begin; oh < b_.oh.end; ++oh) run_row(oh);
  }

 private:
  void run_pairs() {
    const std::int64_t below = dense_step(p_, 1);
    for (std::int64_t first = b_.oh.begin; first < std::min(b_.oh.begin + below, b_.oh.end); ++first)
      for (std::int64_t oh = first; oh < b_.oh.end; oh += 2 * below)
        oh + below < b_.oh.end ? run_pair(oh, oh + below) : run_row(oh);
  }

  // f(first output column, columns of all tiles, columns of a tile) for each run of equal tiles of a row; cut(left)
  // is the width of the next tile.
  template <class Cut, class F>
  void for_columns(Cut cut, F f) {
    for (std::int64_t first = b_.ow.begin; first < std::min(b_.ow.begin + step_, b_.ow.end); ++first) {
      const std::int64_t columns = ceil_div(b_.ow.end - first, step_);
      for (std::int64_t begin = 0, end = 0; begin < columns; begin = end) {
        const std::int64_t tile = cut(columns - begin);
        while (end < columns && cut(columns - end) == tile) end = std::min(end + tile, columns);
        f(first + begin * step_, end - begin, tile);
      }
    }
  }

  void run_row(std::int64_t oh) {
    lines_.clear();
    const Range kh = taps_inside(p_, 1, oh);
    for (std::int64_t d = kd_.begin; d < kd_.end; ++d)
      for (std::int64_t h = kh.begin; h < kh.end; ++h) lines_.push_back(line(d, h, oh));
    tile_.lines = lines_.data();
    tile_.line_count = static_cast<std::int64_t>(lines_.size());
    const auto cut = [&](std::int64_t left) {
      return row_tile_columns(left, tile_.stride, tile_.kernel_width, call_.narrow);
    };
    for_columns(cut, [&](std::int64_t ow, std::int64_t width, std::int64_t columns) {
      place(ow, width);
      look_ahead(oh, 1, 1, columns);
      aim(tile_.sink, oh, ow);
      find_row_tiles<In>(tile_.kernel_width, tile_.stride, columns)(tile_);
    });
  }

  // Output rows `upper` and `lower`: the input rows of all taps of the one, and of the last taps of the other.
  void run_pair(std::int64_t upper, std::int64_t lower) {
    lines_.clear();
    for (std::int64_t d = kd_.begin; d < kd_.end; ++d)
      for (std::int64_t h = 0; h < p_.kernel[1] + dense_stride(p_, 1); ++h) {
        const std::int64_t ih = position_of(p_, 1, upper, h);
        lines_.push_back(line(d, h, upper));
        if (ih < 0 || ih >= p_.input[1]) lines_.back().x = nullptr;
      }
    tile_.lines = lines_.data();
    tile_.line_count = static_cast<std::int64_t>(lines_.size());
    const bool square = kd_.size() == 1 && p_.kernel[1] == p_.kernel[2] &&
                        std::ranges::all_of(lines_, [](const Line<In>& l) { return l.x != nullptr; });
    for_columns(pair_tile_columns, [&](std::int64_t ow, std::int64_t width, std::int64_t columns) {
      place(ow, width);
      look_ahead(upper, lower - upper, 2, columns);
      PairTile<In> pair{tile_, tile_.sink, p_.kernel[1], square};
      aim(pair.upper.sink, upper, ow);
      aim(pair.lower, lower, ow);
      run_pair_tiles(pair, columns);
    });
  }

  // Channels of the block before the first that is aligned in every line: where there is one, and the additional vector
  // that this takes is one of many.
  std::int64_t unaligned_channels() const {
    constexpr std::int64_t kMany = 8;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(AccumulatorTag<In>()));
    const std::int64_t bytes = lanes * static_cast<std::int64_t>(sizeof(In));
    std::int64_t strides = 0;
    for (const std::int64_t stride : x_.stride) strides |= stride * static_cast<std::int64_t>(sizeof(In));
    if (strides % bytes != 0 || b_.channels.size() < kMany * lanes) return 0;
    const auto begin = reinterpret_cast<std::intptr_t>(x_.line(x_.first[0], x_.first[1]) + b_.channels.begin);
    return (-begin & (bytes - 1)) / static_cast<std::int64_t>(sizeof(In));
  }

  // Kernel row (kd, kh) of output row oh.
  Line<In> line(std::int64_t kd, std::int64_t kh, std::int64_t oh) const {
    const auto* weights = reinterpret_cast<const T*>(call_.weights.data);
    return {x_.line(position_of(p_, 0, b_.od, kd), position_of(p_, 1, oh, kh)),
            weights + kd * call_.weights.tap[0] + kh * call_.weights.tap[1]};
  }

  // Moves the tile to `width` columns from ow on.
  void place(std::int64_t ow, std::int64_t width) {
    const std::int64_t column = ow * p_.stride[2] - p_.pad_lo[2];  // of position 0
    tile_.left = -column;
    tile_.right = x_.columns_end - column;
    if (p_.dilation[2] > 1) {
      tile_.left = ceil_div(tile_.left, p_.dilation[2]);
      tile_.right = ceil_div(tile_.right, p_.dilation[2]);
    }
    tile_.origin = (column - x_.first[2]) * x_.stride[2];
    tile_.width = width;
  }

  // What the tiles after those of output row oh (two rows: of oh and oh + below) are the first to read at this column:
  // the same lines of the next depth, the last lines of the next rows, or columns further on where there is one row.
  void look_ahead(std::int64_t oh, std::int64_t below, std::int64_t rows, std::int64_t columns) {
    tile_.ahead[0] = tile_.ahead[1] = nullptr;
    // Within L3 rows are as fast or faster without.
    if (!call_.stream || call_.mode != Mode::direct || kd_.size() == 0) return;
    std::int64_t id = position_of(p_, 0, b_.od, kd_.end - 1);
    if (p_.output[1] == 1) {
      tile_.ahead[0] = x_.line(id, 0) + tile_.origin + (columns * tile_.stride + tile_.kernel_width - 1) * tile_.pixel;
      return;
    }
    std::int64_t last = position_of(p_, 1, oh + (rows - 1) * below, p_.kernel[1] - 1);
    if (p_.output[0] > 1 && p_.kernel[0] > 1)
      id += p_.stride[0];
    else
      last += rows * below * p_.stride[1];
    if (id >= p_.input[0]) return;
    for (std::int64_t i = 0; i < std::min<std::int64_t>(2, rows * p_.stride[1]); ++i)
      if (last - i >= 0 && last - i < p_.input[1]) tile_.ahead[i] = x_.line(id, last - i) + tile_.origin;
  }

  // Points a sink at output (oh, ow).
  void aim(Sink<T>& sink, std::int64_t oh, std::int64_t ow) const {
    const auto offset = [&](const View<std::byte*>& v) {
      return b_.n * v.stride[0] + b_.od * v.stride[1] + oh * v.stride[2] + ow * v.stride[3];
    };
    const View<std::byte*>& y = call_.operands.output;
    sink.out = y.data + offset(y) * static_cast<std::int64_t>(size_bytes(p_.output_dtype));
    sink.addend = reinterpret_cast<const T*>(call_.operands.addend.data) + offset(call_.operands.addend);
  }

  const Call& call_;
  const ConvProblem& p_;
  const Block& b_;
  Source<In> x_;
  Range kd_;
  std::int64_t step_ = 1;
  std::vector<Line<In>> lines_;
  Tile<In> tile_;
};

template <class In>
void run_direct_rows(const Call& call, const Block& b) {
  RowWalk<In>(call, b, direct_source<In>(call, b)).run();
}

template <class T>
void run_staged_rows(const Call& call, const Block& b, std::byte* scratch) {
  RowWalk<T>(call, b, staged_source<T>(call, b, scratch)).run();
}

}  // namespace vkconv::cpu::depthwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
