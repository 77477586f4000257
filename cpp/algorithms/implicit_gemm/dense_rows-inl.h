// The output rows of a task of the dense kernel, and the input rows under their taps.
// Include once per instruction set (Highway's foreach_target).
#if defined(VKCONV_DENSE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VKCONV_DENSE_ROWS_INL_H_
#undef VKCONV_DENSE_ROWS_INL_H_
#else
#define VKCONV_DENSE_ROWS_INL_H_
#endif

#include <span>
#include <vector>

#include "algorithms/implicit_gemm/dense.h"
#include "core/geometry.h"
#include "cpu/input_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::HWY_NAMESPACE {

// Neighbours along W of one output row.
struct Stretch {
  std::int64_t row;
  Range pixels;
};

template <class T, class X>
class DenseRows {
 public:
  using Input = InputRows<T, X>;

  // An input row under the taps of an output row: where output 0 would read tap 0 along W, and the first of the row's
  // terms in a panel.
  struct Line {
    const X* x;
    std::int64_t term;
  };
  struct Row : OutputRow, Stretch {
    std::span<const Line> lines;
  };

  // Stretches of ascending rows.
  DenseRows(const DenseLayout& s, const Input& input, const std::vector<Stretch>& stretches) : s_(s), input_(input) {
    if (stretches.empty()) return;
    rows_.reserve(stretches.size());
    std::int64_t at = stretches.front().row, count = 0;
    OutputRow row(s.p, at);
    for (const Stretch& stretch : stretches) {
      for (; at < stretch.row; ++at) row.advance(s.p);
      rows_.push_back({row, stretch, {}});
      count += row.kd.size() * row.kh.size();
    }
    lines_.reserve(static_cast<std::size_t>(count));
    for (Row& r : rows_) {
      const std::size_t first = lines_.size();
      add_lines(r);
      r.lines = std::span(lines_).subspan(first);
    }
  }
  DenseRows(const DenseRows&) = delete;
  DenseRows& operator=(const DenseRows&) = delete;

  auto begin() const { return rows_.begin(); }
  auto end() const { return rows_.end(); }

  // Cuts the stretches that this was made of into those whose outputs read nothing but parts, and the `rest`.
  std::vector<Stretch> in_parts(std::vector<Stretch>& rest) const {
    std::vector<Stretch> kept;
    for (const Row& r : rows_)
      for (std::int64_t w = r.pixels.begin, next; w < r.pixels.end; w = next) {
        const bool parts = reads_parts(r, w);
        for (next = w + 1; next < r.pixels.end && reads_parts(r, next) == parts;) ++next;
        (parts ? kept : rest).push_back({r.row, {w, next}});
      }
    return kept;
  }

 private:
  void add_lines(const OutputRow& row) {
    const ConvProblem& p = s_.p;
    for (std::int64_t d = row.kd.begin; d < row.kd.end; ++d)
      for (std::int64_t h = row.kh.begin; h < row.kh.end; ++h)
        lines_.push_back({input_.row(row.n, position_of(p, 0, row.d, d), position_of(p, 1, row.h, h)) -
                              p.pad_lo[2] * input_.pixel_stride(),
                          (d * p.kernel[1] + h) * p.kernel[2] * s_.in});
  }
  bool reads_parts(const Row& row, std::int64_t w) const {
    for (const Line& line : row.lines)
      for (std::int64_t k = 0; k < s_.p.kernel[2]; ++k)
        if (!input_.has_parts(line.x + (w * s_.p.stride[2] + k * s_.p.dilation[2]) * input_.pixel_stride()))
          return false;
    return true;
  }

  const DenseLayout& s_;
  const Input& input_;
  std::vector<Row> rows_;
  std::vector<Line> lines_;
};

}  // namespace vkconv::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
