// Sums of a depthwise weight gradient, lane by lane: Form::lanes. Included once per instruction set.
#if defined(VKCONV_WEIGHT_GRAD_LANE_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VKCONV_WEIGHT_GRAD_LANE_SUMS_INL_H_
#undef VKCONV_WEIGHT_GRAD_LANE_SUMS_INL_H_
#else
#define VKCONV_WEIGHT_GRAD_LANE_SUMS_INL_H_
#endif

#include "algorithms/weight_grad/weight_grad_lanes.h"
#include "algorithms/weight_grad/weight_grad_operands-inl.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::weight_grad::HWY_NAMESPACE {

// Of one unit. In is the type of the operands, T that of the sums.
template <class T, class In>
class LaneSums : protected BlockOperands<T, In> {
 protected:
  using Operands = BlockOperands<T, In>;
  using Operands::outputs_, Operands::p_, Operands::shape_, Operands::x_, Operands::dy_;

  LaneSums(const Job& job, const Unit& unit, T* scratch)
      : Operands(job, unit, scratch),
        unit_(unit),
        row_length_(unit.vectors.size() * shape_.lanes),
        from_memory_(job.from_memory) {}

  // The lines of the block for depth tap kd.
  void find_lanes(std::int64_t kd) {
    lane_count_ = 0;
    if (shape_.staged) return copy_lanes(kd);
    this->for_lines(kd, [&](const OutputLine& at, std::int64_t d) {
      lane_places_[lane_count_++] = {this->input_line(at.n, d, 0), this->output_line(at), at.h};
    });
  }

  // Kernel rows `rows` over the lines, whose sums are at `sums`. Of operands out of memory the lines that the next
  // block is the first to read come meanwhile: of the output gradient, which all kernel rows read, with one that no
  // border cuts off, of the input with the last.
  void run_lanes(const Range& rows, T* sums) {
    const bool fetches = from_memory_ && !shape_.staged;
    const Behind behind{fetches && rows.end == p_.kernel[1] ? next_x() : 0,
                        fetches && rows.contains(p_.kernel[1] / 2) ? next_dy() : 0};
    LaneLine<In> lines[kBlockPixels];
    Range inside[kBlockPixels];  // kernel rows that are inside the input, of each
    std::int64_t count = 0, alike = 0;
    for (const Place* at = lane_places_; at != lane_places_ + lane_count_; ++at) {
      const Range r = rows_inside(at->h, rows);
      if (r.size() == 0) continue;
      lines[count] = {at->x + input_index(p_, 1, at->h, r.begin) * x_row_, at->dy};
      inside[count] = r;
      alike += r.begin == inside[0].begin && r.end == inside[0].end;
      ++count;
    }
    const auto run = [&](LaneLine<In>* some, std::int64_t size, const Range& r) {
      run_lines(some, size, r.size(), behind, sums + (r.begin - rows.begin) * p_.kernel[2] * row_length_);
    };
    if (alike == count) return count > 0 ? run(lines, count, inside[0]) : void();
    for (std::int64_t begin = rows.begin; begin < rows.end; ++begin)
      for (std::int64_t end = begin + 1; end <= rows.end; ++end) {
        LaneLine<In> some[kBlockPixels];
        std::int64_t size = 0;
        for (std::int64_t i = 0; i < count; ++i)
          if (inside[i].begin == begin && inside[i].end == end) some[size++] = lines[i];
        if (size > 0) run(some, size, {begin, end});
      }
  }

  const Unit& unit_;
  const std::int64_t row_length_;  // of sums
  const bool from_memory_;

 private:
  // A line of outputs, and row 0 of the image that it reads, both at column 0.
  struct Place {
    const In *x, *dy;
    std::int64_t h;
  };

  static constexpr LaneTiles kTiles{sizeof(In) == 2, hn::MaxLanes(hn::ScalableTag<std::uint8_t>())};

  // Copies what the unit reads of the lines, pixels so far apart that they do not crowd a set of L1. Neighbouring lines
  // of an image share its rows.
  void copy_lanes(std::int64_t kd) {
    const Range channels = this->channels_.x, out = outputs_;
    const Range columns = common(positions_under(p_, 2, out), {0, p_.input[2]});
    const std::int64_t pixel = this->pitch(channels);
    x_pixel_ = dy_pixel_ = pixel, x_row_ = columns.size() * pixel;
    In* to = reinterpret_cast<In*>(this->scratch_);
    const auto copy = [&](const In* line, const Range& some, std::int64_t step) {
      for (std::int64_t i = some.begin; i < some.end; ++i, to += pixel)
        std::copy_n(line + i * step + channels.begin, channels.size(), to);
    };
    OutputLine before{-1, -1, -1};
    std::int64_t next = 0;  // row of the image
    const In* first = nullptr;
    this->for_lines(kd, [&](const OutputLine& at, std::int64_t d) {
      const Range rows = common(positions_under(p_, 1, {at.h, at.h + 1}), {0, p_.input[1]});
      if (at.n != before.n || at.d != before.d) {
        next = rows.begin;
        first = to - next * x_row_ - columns.begin * pixel - channels.begin;
      }
      before = at;
      for (; next < rows.end; ++next) copy(this->input_line(at.n, d, next), columns, x_.stride[3]);
      lane_places_[lane_count_++] = {first, nullptr, at.h};
    });
    std::int64_t i = 0;
    this->for_lines(kd, [&](const OutputLine& at, std::int64_t) {
      lane_places_[i++].dy = to - out.begin * pixel - channels.begin;
      copy(this->output_line(at), out, dy_.stride[3]);
    });
  }

  // Elements to what the next block is the first to read: the segment behind this one, or other lines.
  std::int64_t next_x() const {
    if (shape_.segments > 1) return outputs_.size() * p_.stride[2] * x_.stride[3];
    return shape_.lines_per_block * p_.stride[1] * x_.stride[2];
  }
  std::int64_t next_dy() const {
    return shape_.segments > 1 ? outputs_.size() * dy_.stride[3] : shape_.lines_per_block * dy_.stride[2];
  }

  // Those that are inside the input.
  Range rows_inside(std::int64_t output, Range rows) const {
    const auto outside = [&](std::int64_t row) { return input_index(p_, 1, output, row) < 0; };
    while (rows.size() > 0 && outside(rows.begin)) ++rows.begin;
    while (rows.size() > 0 && outside(rows.end - 1)) --rows.end;
    return rows;
  }

  // Lines of the same kernel rows, from column 0 on.
  void run_lines(LaneLine<In>* lines, std::int64_t count, std::int64_t rows, const Behind& behind, T* sums) const {
    const std::int64_t taps = p_.kernel[2], parts = p_.input_dilation[2] > 1 ? taps : LaneTiles::parts(taps);
    Walk from{};
    for (std::int64_t i = 0; i < shape_.phases * parts; ++i) {
      const std::int64_t phase = i / parts, part = i % parts;
      const Range some = nth_part(taps, part, parts);
      const Walk w = walk_of(some.begin, phase);
      for (std::int64_t l = 0; l < count; ++l)
        lines[l].x += (w.in - from.in) * x_pixel_, lines[l].dy += (w.out - from.out) * dy_pixel_;
      from = w;
      LaneTile<In> tile = tile_of(w);
      tile.lines = lines, tile.line_count = count, tile.rows = rows;
      if (part == 0) tile.behind = {behind.x ? behind.x + (rows - 1) * tile.x_row : 0, behind.dy};
      run_vectors(tile, some.size(), sums + some.begin * row_length_);
    }
  }

  // What tap `tap` meets in the block for one phase of the outputs; padding counts where the input is not dilated.
  Walk walk_of(std::int64_t tap, std::int64_t phase) const {
    if (p_.input_dilation[2] > 1) return walk(p_, 2, tap, outputs_);
    const std::int64_t first = outputs_.begin + phase, step = shape_.phases;
    const std::int64_t in = first * p_.stride[2] + tap * p_.dilation[2] - p_.pad_lo[2];
    return {first, step, in, step * p_.stride[2], ceil_div(outputs_.end - first, step)};
  }

  LaneTile<In> tile_of(const Walk& w) const {
    const std::int64_t stride = shape_.phases * p_.stride[2], dilation = p_.dilation[2];
    LaneTile<In> tile{};
    tile.outputs = w.count;
    tile.right = 1;  // all outputs of a walk over a dilated input count
    if (p_.input_dilation[2] == 1) {
      // Positions are columns, or a dilation apart where the stride is a multiple of that.
      const std::int64_t apart = stride % dilation == 0 ? dilation : 1;
      tile.stride = stride / apart, tile.tap = dilation / apart;
      tile.left = ceil_div(-w.in, apart), tile.right = ceil_div(p_.input[2] - w.in, apart);
    }
    tile.x_row = p_.dilation[1] * x_row_, tile.tap_step = dilation * x_pixel_;
    tile.x_step = w.in_step * x_pixel_, tile.dy_step = w.out_step * dy_pixel_;
    tile.c_row = p_.kernel[2] * row_length_, tile.ldc = row_length_;
    return tile;
  }

  void run_vectors(LaneTile<In>& tile, std::int64_t taps, T* sums) const {
    for (std::int64_t v = unit_.vectors.begin; v < unit_.vectors.end;) {
      const std::int64_t vectors = lane_tile_vectors(kTiles, tile.rows, taps, unit_.vectors.end - v);
      for (std::int64_t i = 0; i < vectors; ++i) tile.offset[i] = shape_.channel_of(v + i);
      tile.c = sums + (v - unit_.vectors.begin) * shape_.lanes;
      run_lane_tile(taps, vectors, tile);
      v += vectors;
    }
  }

  std::int64_t x_row_ = x_.stride[2], x_pixel_ = x_.stride[3], dy_pixel_ = dy_.stride[3];  // elements
  Place lane_places_[kBlockPixels];
  std::int64_t lane_count_ = 0;
};

}  // namespace vkconv::cpu::weight_grad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
