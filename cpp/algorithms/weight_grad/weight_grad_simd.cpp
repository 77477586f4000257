// Sums of the weight gradient, compiled once per instruction set and chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "algorithms/weight_grad/weight_grad_simd.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h comes first.
#include <algorithm>
#include <array>
#include <vector>

#include "algorithms/weight_grad/weight_grad_kernels-inl.h"
#include "algorithms/weight_grad/weight_grad_walk.h"
#include "cpu/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::weight_grad::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One unit over one chunk. In is the type of the operands, T that of the sums.
template <class T, class In>
class UnitSums {
 public:
  UnitSums(const Job& job, const Unit& unit, T* scratch)
      : p_(job.p),
        shape_(job.shape),
        x_(job.operands.input),
        dy_(job.operands.output),
        unit_(unit),
        scratch_(scratch),
        row_length_(unit.vectors.size() * shape_.lanes),
        size_(unit.taps.size() * unit.rows.size() * row_length_) {
    const bool lanes = shape_.form == Form::lanes;
    x_channels_ = lanes ? p_.out_channels : p_.in_channels_per_group();
    dy_channels_ = lanes ? p_.out_channels : p_.out_channels_per_group();
    x_base_ = reinterpret_cast<const In*>(x_.data) + (lanes ? 0 : unit.group * x_channels_);
    dy_base_ = reinterpret_cast<const In*>(dy_.data) + (lanes ? 0 : unit.group * dy_channels_);
    if (lanes && shape_.staged) find_spreads();
  }

  void run(std::int64_t chunk, T* HWY_RESTRICT sums, T* HWY_RESTRICT part) {
    std::fill_n(sums, size_, T{0});
    std::fill_n(part, size_, T{0});
    const std::int64_t begin = shape_.blocks * chunk / shape_.chunks, end = shape_.blocks * (chunk + 1) / shape_.chunks;
    for (std::int64_t block = begin; block < end; ++block) {
      run_block(block, part);
      if ((block + 1 - begin) % kBlocksPerSum != 0 && block + 1 != end) continue;
      for (std::int64_t i = 0; i < size_; ++i) sums[i] += part[i], part[i] = 0;
    }
  }

 private:
  struct Line {
    const In* x;   // column 0
    const In* dy;  // column 0
  };

  static const In* x_of(const Line& line) { return line.x; }
  static const In* dy_of(const Line& line) { return line.dy; }

  // All taps of the unit over one block, kernel row by kernel row.
  void run_block(std::int64_t block, T* part) {
    const std::int64_t first = block / shape_.segments * shape_.lines_per_block, segment = block % shape_.segments;
    outputs_ = {p_.output[2] * segment / shape_.segments, p_.output[2] * (segment + 1) / shape_.segments};
    for (std::int64_t tap = unit_.taps.begin; tap < unit_.taps.end;) {
      const std::int64_t kernel_row = tap / p_.kernel[2];
      const std::int64_t end = std::min(unit_.taps.end, (kernel_row + 1) * p_.kernel[2]);
      collect_lines(first, kernel_row);
      if (line_count_ > 0) {
        taps_ = {tap - kernel_row * p_.kernel[2], end - kernel_row * p_.kernel[2]};
        T* sums = part + (tap - unit_.taps.begin) * unit_.rows.size() * row_length_;
        shape_.form == Form::lanes ? run_lanes(sums) : run_outer(sums);
      }
      tap = end;
    }
  }

  // The lines of the block whose kernel row (kd, kh) reads inside the input.
  void collect_lines(std::int64_t first, std::int64_t kernel_row) {
    const std::int64_t kd = kernel_row / p_.kernel[1], kh = kernel_row % p_.kernel[1];
    line_count_ = 0;
    for (std::int64_t l = first; l < std::min(first + shape_.lines_per_block, shape_.lines); ++l) {
      const std::int64_t oh = l % p_.output[1], od = l / p_.output[1] % p_.output[0],
                         n = l / p_.output[1] / p_.output[0];
      const std::int64_t id = input_index(p_, 0, od, kd), ih = input_index(p_, 1, oh, kh);
      if (id < 0 || ih < 0) continue;
      lines_[line_count_++] = {x_base_ + n * x_.stride[0] + id * x_.stride[1] + ih * x_.stride[2],
                               dy_base_ + n * dy_.stride[0] + od * dy_.stride[1] + oh * dy_.stride[2]};
    }
  }

  // ---- operands: in place, or copied to scratch

  // What the kernels read: line l, column c at base[l] + (c - first) * pixel.
  struct Columns {
    const T* base[kBlockTerms];
    std::int64_t first = 0, pixel = 0;
    const T* at(std::int64_t line, std::int64_t column) const { return base[line] + (column - first) * pixel; }
  };

  // Copies columns [range) of all lines, `channels` each, padded to `pixel`. Returns the end of the copy.
  template <class Pick>
  T* stage(Columns& to, T* scratch, const Range& range, std::int64_t channels, std::int64_t pixel,
           std::int64_t pixel_stride, Pick line) {
    to.first = range.begin;
    to.pixel = pixel;
    const bool dense = pixel == channels && pixel_stride == channels;
    const std::int64_t runs = dense ? std::min<std::int64_t>(range.size(), 1) : range.size();
    const std::int64_t length = dense ? range.size() * channels : channels;
    for (std::int64_t l = 0; l < line_count_; ++l) {
      to.base[l] = scratch;
      const In* from = line(lines_[l]) + range.begin * pixel_stride;
      for (std::int64_t i = 0; i < runs; ++i, from += pixel_stride, scratch += dense ? length : pixel) {
        widen(from, length, scratch);
        std::fill(scratch + channels, scratch + pixel, T{0});
      }
    }
    return scratch;
  }

  static void widen(const In* from, std::int64_t count, T* to) {
    const hn::ScalableTag<T> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes) hn::StoreU(cpu::HWY_NAMESPACE::load(d, from + i), d, to + i);
    for (; i < count; ++i) to[i] = cpu::HWY_NAMESPACE::widened(from + i);
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

  void load_operands(Columns& x, Columns& dy) {
    if (shape_.staged) {
      // Operands read as vectors hold whole ones; the rows of merged taps follow one another.
      const std::int64_t dy_pixel = std::max(dy_channels_, shape_.lanes);
      const std::int64_t x_pixel = shape_.merged ? x_channels_ : std::max(x_channels_, shape_.lanes);
      T* rest = stage(dy, scratch_, outputs_, dy_channels_, dy_pixel, dy_.stride[3], dy_of);
      stage(x, rest, input_columns(), x_channels_, x_pixel, x_.stride[3], x_of);
    } else if constexpr (std::is_same_v<T, In>) {
      x.pixel = x_.stride[3], dy.pixel = dy_.stride[3];
      for (std::int64_t l = 0; l < line_count_; ++l) x.base[l] = lines_[l].x, dy.base[l] = lines_[l].dy;
    }
  }

  // ---- products of one group

  void run_outer(T* sums) {
    Columns x, dy;
    load_operands(x, dy);
    if (!shape_.merged) return run_taps(x, dy, outputs_, sums);
    // The cut at the borders of the line does not depend on the unit, so neither do the sums.
    const Range inner = interior();
    run_taps(x, dy, {outputs_.begin, inner.begin}, sums);
    if (x.pixel == x_channels_ && unit_.rows.size() == shape_.rows)
      run_tap(x, dy, taps_.begin, inner, {0, taps_.size() * shape_.rows}, sums);
    else
      run_taps(x, dy, inner, sums);
    run_taps(x, dy, {inner.end, outputs_.end}, sums);
  }

  // Outputs of the block that have all taps of a kernel row inside the line.
  Range interior() const {
    const std::int64_t begin = std::max(outputs_.begin, outputs_inside(p_, 2, 0).begin);
    const std::int64_t end = std::min(outputs_.end, outputs_inside(p_, 2, p_.kernel[2] - 1).end);
    return begin < end ? Range{begin, end} : Range{outputs_.end, outputs_.end};
  }

  void run_taps(const Columns& x, const Columns& dy, const Range& outputs, T* sums) {
    if (outputs.size() == 0) return;
    for (std::int64_t k = taps_.begin; k < taps_.end; ++k, sums += unit_.rows.size() * row_length_)
      run_tap(x, dy, k, outputs, unit_.rows, sums);
  }

  // One tap over some outputs of the block; `rows` beyond its channels are those of the next taps.
  void run_tap(const Columns& x, const Columns& dy, std::int64_t k, const Range& outputs, const Range& rows, T* sums) {
    const Walk w = walk(p_, 2, k, outputs);
    if (w.count == 0) return;
    const bool out_vectors = shape_.form == Form::out_vectors;
    Slice<T> slices[kBlockTerms];
    for (std::int64_t l = 0; l < line_count_; ++l) {
      const T *from_x = x.at(l, w.in), *from_dy = dy.at(l, w.out);
      slices[l] = out_vectors ? Slice<T>{from_x, from_dy} : Slice<T>{from_dy, from_x};
    }
    OuterTile<T> tile;
    tile.slices = slices;
    tile.slice_count = line_count_;
    tile.count = w.count;
    tile.row_step = out_vectors ? w.in_step * x.pixel : w.out_step * dy.pixel;
    tile.vector_step = out_vectors ? w.out_step * dy.pixel : w.in_step * x.pixel;
    tile.ldc = row_length_;
    run_tiles(tile, rows, sums);
  }

  void run_tiles(OuterTile<T>& tile, const Range& rows, T* sums) {
    const std::int64_t tiles = ceil_div(rows.size(), kMaxRows);
    for (std::int64_t v = unit_.vectors.begin; v < unit_.vectors.end; v += kVectors) {
      const std::int64_t vectors = std::min(kVectors, unit_.vectors.end - v);
      tile.offset[0] = shape_.channel_of(v);
      tile.offset[1] = vectors > 1 ? shape_.channel_of(v + 1) : tile.offset[0];
      for (std::int64_t i = 0; i < tiles; ++i) {
        const std::int64_t row = rows.size() * i / tiles;
        tile.row = rows.begin + row;
        tile.c = sums + row * row_length_ + (v - unit_.vectors.begin) * shape_.lanes;
        run_outer_tile<T>(rows.size() * (i + 1) / tiles - row, vectors, tile);
      }
    }
  }

  // ---- lane by lane over the channels of all groups

  // Lane o of the copy is x[c] of o's group.
  void stage_row(Columns& x, T* scratch, std::int64_t c) {
    const Range columns = input_columns();
    x.first = columns.begin;
    x.pixel = std::max(x_channels_, shape_.lanes);
    for (std::int64_t l = 0; l < line_count_; ++l, scratch += columns.size() * x.pixel) {
      x.base[l] = scratch;
      const In* from = lines_[l].x + columns.begin * x_.stride[3];
      for (const Spread& s : spreads_) spread(s, from, c, columns.size(), scratch);
      if (spread_channels_ < x_channels_) repeat(from + c, columns.size(), scratch);
    }
  }

  // A vector of lanes from `lane` on that read one vector of input channels from `channel` on: lane i reads its element
  // index[i] + c.
  using Index = hn::TFromD<hn::RebindToSigned<hn::ScalableTag<T>>>;
  struct Spread {
    std::int64_t lane, channel;
    std::array<Index, HWY_MAX_BYTES / sizeof(Index)> index;
  };

  // The vectors of all lanes, up to the first one whose channels lie too far apart. The last overlaps its neighbour.
  void find_spreads() {
    const std::int64_t in_group = p_.in_channels_per_group(), out_group = p_.out_channels_per_group();
    if (x_channels_ < shape_.lanes || p_.in_channels < shape_.lanes) return;
    while (spread_channels_ < x_channels_) {
      Spread& s = spreads_.emplace_back();
      s.lane = std::min(spread_channels_, x_channels_ - shape_.lanes);
      s.channel = std::min(s.lane / out_group * in_group, p_.in_channels - shape_.lanes);
      for (std::int64_t i = 0; i < shape_.lanes; ++i)
        s.index[static_cast<std::size_t>(i)] = static_cast<Index>((s.lane + i) / out_group * in_group - s.channel);
      if (s.index[static_cast<std::size_t>(shape_.lanes - 1)] + in_group > shape_.lanes) return spreads_.pop_back();
      spread_channels_ = s.lane + shape_.lanes;
    }
  }

  void spread(const Spread& s, const In* from, std::int64_t c, std::int64_t columns, T* to) const {
    const hn::ScalableTag<T> d;
    const hn::RebindToSigned<decltype(d)> integers;
    const auto index = hn::Add(hn::LoadU(integers, s.index.data()), hn::Set(integers, static_cast<Index>(c)));
    const auto lanes = hn::IndicesFromVec(d, index);
    from += s.channel;
    to += s.lane;
    for (std::int64_t w = 0; w < columns; ++w, from += x_.stride[3], to += x_channels_)
      hn::StoreU(hn::TableLookupLanes(cpu::HWY_NAMESPACE::load(d, from), lanes), d, to);
  }

  // The lanes behind the spreads, one after another.
  void repeat(const In* from, std::int64_t columns, T* to) const {
    const std::int64_t in_group = p_.in_channels_per_group(), out_group = p_.out_channels_per_group();
    const std::int64_t pixel = std::max(x_channels_, shape_.lanes);
    for (std::int64_t w = 0; w < columns; ++w, from += x_.stride[3], to += pixel) {
      std::fill(to + x_channels_, to + pixel, T{0});
      for (std::int64_t o = spread_channels_; o < x_channels_; ++o)
        to[o] = cpu::HWY_NAMESPACE::widened(from + o / out_group * in_group);
    }
  }

  // The output gradient, where its type is that of the sums and its channels fill a vector.
  bool in_place(Columns& dy) const {
    if constexpr (std::is_same_v<T, In>) {
      if (dy_channels_ < shape_.lanes) return false;
      dy.pixel = dy_.stride[3];
      for (std::int64_t l = 0; l < line_count_; ++l) dy.base[l] = lines_[l].dy;
      return true;
    }
    return false;
  }

  void run_lanes(T* sums) {
    Columns x, dy;
    T* rest = scratch_;
    if (!shape_.staged)
      load_operands(x, dy);
    else if (!in_place(dy))
      rest = stage(dy, scratch_, outputs_, dy_channels_, std::max(dy_channels_, shape_.lanes), dy_.stride[3], dy_of);
    for (std::int64_t c = unit_.rows.begin; c < unit_.rows.end; ++c) {
      if (shape_.staged) stage_row(x, rest, c);
      for (std::int64_t l = 0; l < line_count_; ++l)
        run_lane_line(x, dy, l, sums + (c - unit_.rows.begin) * row_length_);
    }
  }

  void run_lane_line(const Columns& x, const Columns& dy, std::int64_t line, T* sums) {
    const bool dilated_input = p_.input_dilation[2] > 1;
    const std::int64_t ldc = unit_.rows.size() * row_length_;
    for (std::int64_t k = taps_.begin; k < taps_.end;) {
      const std::int64_t taps = dilated_input ? 1 : std::min<std::int64_t>(kMaxLaneTaps, taps_.end - k);
      LaneTile<T> tile;
      tile.ldc = ldc;
      if (dilated_input) {
        const Walk w = walk(p_, 2, k, outputs_);
        tile.x = x.at(line, w.in), tile.dy = dy.at(line, w.out);
        tile.x_step = w.in_step * x.pixel, tile.dy_step = w.out_step * dy.pixel, tile.tap_step = 0;
        tile.begin[0] = 0, tile.end[0] = w.count;
      } else {
        tile.x = x.at(line, outputs_.begin * p_.stride[2] + k * p_.dilation[2] - p_.pad_lo[2]);
        tile.dy = dy.at(line, outputs_.begin);
        tile.x_step = p_.stride[2] * x.pixel, tile.dy_step = dy.pixel, tile.tap_step = p_.dilation[2] * x.pixel;
        for (std::int64_t q = 0; q < taps; ++q) {
          const Walk w = walk(p_, 2, k + q, outputs_);
          tile.begin[q] = w.count > 0 ? w.out - outputs_.begin : 0;
          tile.end[q] = tile.begin[q] + w.count;
        }
      }
      run_lane_tiles(tile, taps, sums + (k - taps_.begin) * ldc);
      k += taps;
    }
  }

  void run_lane_tiles(LaneTile<T>& tile, std::int64_t taps, T* sums) {
    for (std::int64_t v = unit_.vectors.begin; v < unit_.vectors.end;) {
      const std::int64_t vectors = lane_tile_vectors(taps, unit_.vectors.end - v);
      for (std::int64_t i = 0; i < vectors; ++i) tile.offset[i] = shape_.channel_of(v + i);
      tile.c = sums + (v - unit_.vectors.begin) * shape_.lanes;
      run_lane_tile<T>(taps, vectors, tile);
      v += vectors;
    }
  }

  const ConvProblem& p_;
  const Shape& shape_;
  const View<std::byte*>& x_;
  const View<std::byte*>& dy_;
  const Unit& unit_;
  T* scratch_;
  std::int64_t row_length_, size_;
  std::int64_t x_channels_ = 0, dy_channels_ = 0;  // of a staged pixel
  std::vector<Spread> spreads_;
  std::int64_t spread_channels_ = 0;  // lanes that they fill
  const In* x_base_ = nullptr;
  const In* dy_base_ = nullptr;
  Range outputs_{}, taps_{};  // columns of the block, taps along W of the kernel row
  Line lines_[kBlockTerms];
  std::int64_t line_count_ = 0;
};

std::int64_t lanes_of(DType dtype) {
  return static_cast<std::int64_t>(dtype == DType::f64 ? hn::Lanes(hn::ScalableTag<double>())
                                                       : hn::Lanes(hn::ScalableTag<float>()));
}

void accumulate_unit(const Job& job, const Unit& unit, std::int64_t chunk, std::byte* sums, std::byte* part,
                     std::byte* scratch) {
  const auto run = [&](auto in, auto sum) {
    using T = decltype(sum);
    UnitSums<T, decltype(in)>(job, unit, reinterpret_cast<T*>(scratch))
        .run(chunk, reinterpret_cast<T*>(sums), reinterpret_cast<T*>(part));
  };
  switch (job.p.dtype) {
    case DType::f32:
      return run(float{}, float{});
    case DType::f16:
      return run(hwy::float16_t{}, float{});
    case DType::bf16:
      return run(hwy::bfloat16_t{}, float{});
    case DType::f64:
      return run(double{}, double{});
  }
}

}  // namespace vkconv::cpu::weight_grad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace vkconv::cpu::weight_grad {
HWY_EXPORT(lanes_of);
HWY_EXPORT(accumulate_unit);

std::int64_t vector_lanes(DType dtype) { return HWY_DYNAMIC_DISPATCH(lanes_of)(dtype); }

void accumulate(const Job& job, const Unit& unit, std::int64_t chunk, std::byte* sums, std::byte* part,
                std::byte* scratch) {
  HWY_DYNAMIC_DISPATCH(accumulate_unit)(job, unit, chunk, sums, part, scratch);
}

}  // namespace vkconv::cpu::weight_grad
#endif
