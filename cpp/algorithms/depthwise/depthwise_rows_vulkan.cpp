#include "algorithms/depthwise/depthwise_rows.h"

#include <algorithm>

#include "core/checked.h"

namespace vkconv::vulkan {
namespace {

constexpr std::int64_t kMaxTaps = 49, kMaxStride = 4;
constexpr std::int64_t kMaxInputs = 32;          // of a row under an invocation's outputs, a bit each
constexpr std::int64_t kMaxWeights = 56;         // values of the kernel an invocation holds, where vectors can be cut
constexpr std::int64_t kMaxRegisters = 150;      // of everything that is counted here
constexpr std::int64_t kMaxUnrolled = 1400;      // multiply-adds written out; compilers give up on more
constexpr std::int64_t kSoftwareUnrolled = 220;  // compiled in a fraction of a second
constexpr std::int64_t kInvocations = 128;       // a workgroup; every device has them
constexpr std::int64_t kSideVectors = 32;        // of a workgroup that has strips enough to fill it
constexpr std::int64_t kMaxRowWords = 128, kLongRows = 16;  // of a strip
constexpr std::int64_t kMaxAhead = 3, kLoadsAhead = 30;     // rows, and what they load
// What a turn of the loop costs beside two multiply-adds on an H200: loading a word of an input, and the rest; starting
// costs a turn. With one workgroup a multiprocessor waits a third of the time.
constexpr double kWordCost = 4, kTurnCost = 16, kLeastRounds = 1.5;

using Shape = DepthwiseRows::Shape;

struct Params {
  OperandParams operands;
  GeometryParams geometry;
  std::uint32_t rows, vector_groups, row_groups, slice_groups, image_groups, groups;
};

std::int64_t inputs(const ConvProblem& p, std::int64_t columns) {
  return p.kernel[0] * ((columns - 1) * p.stride[2] + p.kernel[2]);
}

std::int64_t slots(const ConvProblem& p) { return ceil_div(p.kernel[1], p.stride[1]); }

std::int64_t rows_ahead(const ConvProblem& p, std::int64_t columns) {
  return p.kernel[1] == 1 ? 1 : std::clamp<std::int64_t>(kLoadsAhead / inputs(p, columns), 1, kMaxAhead);
}

std::int64_t registers(const ConvProblem& p, const Shape& s, std::int64_t columns) {
  const std::int64_t per_real = accumulator(p.dtype) == DType::f64 ? 2 : 1;
  return (p.taps() + slots(p) * columns) * s.vector * per_real + inputs(p, columns) * s.words * rows_ahead(p, columns);
}

// Wide strips share loads; strides leave little to share, and registers bound how many strips run. A rasteriser's hold
// one column.
std::int64_t most_columns(const ConvProblem& p, bool software) {
  if (p.kernel[1] == 1) return 8;
  return software ? 1 : p.stride[2] > 1 ? 2 : 4;
}

struct Grid {
  std::int64_t vectors, strips, rows, count;
};

Grid grid_of(const ConvProblem& p, const Shape& s) {
  Grid g{ceil_div(p.out_channels / s.vector, s.vectors), ceil_div(ceil_div(p.output[2], s.columns), s.strips),
         ceil_div(p.output[1], s.rows), 0};
  g.count = g.vectors * g.strips * checked_mul(g.rows, checked_mul(p.output[0], p.batch));
  return g;
}

// Workgroups of vectors side by side, which load together, and of neighbouring strips, which share columns.
void choose_workgroup(const ConvProblem& p, Shape& s) {
  const std::int64_t vectors = p.out_channels / s.vector, strips = ceil_div(p.output[2], s.columns);
  const std::int64_t most = std::max(kSideVectors, kInvocations / strips);
  s.vectors = even_part(vectors, most);
  s.strips = std::clamp<std::int64_t>(kInvocations / s.vectors, 1, strips);
}

// A turn of the loop times the turns, slots(p) of which are written out, times the rounds of workgroups.
double cost_of(const ConvProblem& p, const Shape& s, std::int64_t processors) {
  const double turn =
      double(s.columns * p.taps() * s.vector) / 2 + kTurnCost + kWordCost * double(inputs(p, s.columns) * s.words);
  const double turns = 1 + double(round_up(s.rows + slots(p) - 1, slots(p)));
  return turn * turns * std::max(double(ceil_div(grid_of(p, s).count, processors)), kLeastRounds);
}

// The best rows for the shape's columns: all turns that are written out are of use.
double choose_rows(const ConvProblem& p, Shape& s, std::int64_t processors) {
  const std::int64_t height = p.output[1], most = std::min(height, kMaxRowWords / s.words);
  double best = 0;
  Shape t = s;
  for (std::int64_t rows = most;; rows = (ceil_div(rows - 1, slots(p)) - 1) * slots(p) + 1) {
    t.rows = even_part(height, rows);
    const double cost = cost_of(p, t, processors);
    if (best == 0 || cost < best) best = cost, s.rows = t.rows;
    if (rows == 1) return best;
  }
}

std::size_t vector_bytes(std::int64_t channels, DType t) { return static_cast<std::size_t>(channels) * size_bytes(t); }

// The input channels of so many output channels.
std::int64_t input_vector(const ConvProblem& p, std::int64_t channels) {
  return channels / std::min(channels, p.out_channels_per_group());
}

Shape choose_shape(const ConvProblem& p, std::int64_t vector, bool software) {
  Shape best, s;
  double best_cost = 0;
  s.vector = vector;
  s.words = ceil_div(static_cast<std::int64_t>(vector_bytes(input_vector(p, vector), p.dtype)), 4);
  for (s.columns = 1; s.columns <= std::min(p.output[2], most_columns(p, software)); ++s.columns) {
    if (s.columns > 1 && (inputs(p, s.columns) > kMaxInputs || registers(p, s, s.columns) > kMaxRegisters ||
                          slots(p) * s.columns * p.taps() * s.vector > (software ? kSoftwareUnrolled : kMaxUnrolled)))
      break;
    choose_workgroup(p, s);
    const double cost = choose_rows(p, s, software ? 1 : kProcessors);
    if (best_cost == 0 || cost < best_cost) best_cost = cost, best = s;
  }
  best.ahead = software ? 1 : rows_ahead(p, best.columns);
  return best;
}

// Whether vectors of so many channels divide a pixel, come from one input channel or from whole vectors of them, and
// leave the kernel in registers; a pair of halves always does.
bool has_vectors(const ConvProblem& p, std::int64_t channels) {
  const std::size_t bytes = vector_bytes(channels, p.dtype);
  if (bytes > 16 || p.out_channels % channels != 0) return false;
  if (const std::int64_t m = p.out_channels_per_group(); m % channels != 0 && channels % m != 0) return false;
  return bytes <= 4 || channels == 1 || channels * p.taps() <= kMaxWeights;
}

// What an invocation adds to an address for each of many columns, where that fits a constant; else 0.
std::int64_t column_bytes(const View<Pointer>& v, DType t) {
  const auto bytes = v.stride[3] * static_cast<std::int64_t>(size_bytes(t));
  return bytes > 0 && bytes < (std::int64_t{1} << 31) ? bytes : 0;
}

// Whether each invocation's own weights would be a good part of what all load: few taps along long rows. On an H200
// that takes 1.08 to 1.18 times as long as shared ones, and rows of 2 MB 0.96.
bool few_taps_of_long_rows(const ConvProblem& p) {
  constexpr std::int64_t kFewTaps = 4, kLongBytes = std::int64_t{8} << 20;
  const auto bytes = p.output_elements() * static_cast<std::int64_t>(size_bytes(p.dtype));
  return p.kernel[0] * p.kernel[1] == 1 && p.taps() <= kFewTaps && bytes > kLongBytes;
}

// Bytes from tap to tap where invocations load weights as they load inputs, a vector a tap; else 0: they share them.
std::int64_t tap_bytes(const ConvProblem& p, const Shape& s, const WeightView<Pointer>& w) {
  const std::int64_t m = p.out_channels_per_group(), step = w.tap[2];
  const bool side_by_side = w.group == m && (m == 1 || w.out == 1) && step > 0;
  const bool even = w.tap[1] == step * p.kernel[2] && w.tap[0] == w.tap[1] * p.kernel[1];
  const bool aligned = w.data % vector_bytes(s.vector, p.dtype) == 0 && step % s.vector == 0;
  const std::int64_t bytes = step * static_cast<std::int64_t>(size_bytes(p.dtype));
  return side_by_side && even && aligned && !few_taps_of_long_rows(p) && p.taps() * bytes < (std::int64_t{1} << 31)
             ? bytes
             : 0;
}

}  // namespace

bool DepthwiseRows::supports(const ConvProblem& p) {
  if (p.dilation[1] > 1 || p.dilation[2] > 1 || p.input_dilated()) return false;
  return p.depthwise() && p.taps() <= kMaxTaps && inputs(p, 1) <= kMaxInputs && p.stride[1] <= kMaxStride &&
         p.stride[2] <= kMaxStride;
}

bool DepthwiseRows::shares_columns(const ConvProblem& p) {
  constexpr std::int64_t columns = 4;
  return p.kernel[1] > 1 || inputs(p, columns) <= kMaxInputs;
}

// Where strips are short the time is that of an invocation's chain of loads: more of them with shorter vectors may wait
// at once.
DepthwiseRows::DepthwiseRows(const ConvProblem& p, const Traits& traits) : p_(p) {
  const bool software = traits.type == DeviceType::software;
  for (int i = 2; i >= 0; --i) {
    if (!has_vectors(p, 4 >> i)) continue;
    shapes_[i] = choose_shape(p, 4 >> i, software);
    if (i == 2 || software || p.kernel[1] == 1 || shapes_[i].rows >= kLongRows || shapes_[i + 1].vector < 2) continue;
    if (cost_of(p, shapes_[i + 1], kProcessors) < cost_of(p, shapes_[i], kProcessors)) shapes_[i] = shapes_[i + 1];
  }
}

void DepthwiseRows::run(Stream& stream, const Operands<Device>& a, const WeightView<Pointer>& weight,
                        double seconds) const {
  const auto fits = [&](const Shape& s) {
    if (s.vector == 0) return false;
    // A result in the accumulator type is stored value by value.
    const std::int64_t stored = p_.output_dtype == p_.dtype ? s.vector : 1, read = input_vector(p_, s.vector);
    return aligned(a.input, read, vector_bytes(read, p_.dtype)) &&
           aligned(a.output, stored, vector_bytes(stored, p_.output_dtype));
  };
  const Shape& s = *std::ranges::find_if(shapes_, fits);  // one channel at a time always does
  const Grid g = grid_of(p_, s);
  const Params params{operand_params(p_, a, weight),
                      geometry_params(p_),
                      narrow(s.rows),
                      narrow(g.vectors),
                      narrow(g.vectors * g.strips),
                      narrow(g.vectors * g.strips * g.rows),
                      narrow(g.count / p_.batch),
                      narrow(g.count)};
  Kernel k{shader_name("depthwise_rows", p_.dtype), epilogue_constants(p_, a)};
  for (const std::int64_t v :
       {s.vectors, s.strips, s.vector, s.columns, p_.kernel[0], p_.kernel[1], p_.kernel[2], p_.stride[1], p_.stride[2],
        s.ahead, std::int64_t{has_padding(p_)}, column_bytes(a.input, p_.dtype),
        column_bytes(a.output, p_.output_dtype), tap_bytes(p_, s, weight), p_.out_channels_per_group()})
    k.constants.push_back(narrow(v));
  stream.dispatch(k, params, stream.linear_groups(g.count), seconds);
}

}  // namespace vkconv::vulkan
