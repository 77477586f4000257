#include "algorithms/depthwise/depthwise_rows.h"

#include <algorithm>

#include "core/checked.h"

namespace vkconv::vulkan {
namespace {

constexpr std::int64_t kMaxTaps = 49, kMaxStride = 4;
constexpr std::int64_t kMaxInputs = 32;          // columns under an invocation's outputs, a bit each
constexpr std::int64_t kMaxWeights = 50;         // values of the kernel an invocation holds, where vectors can be cut
constexpr std::int64_t kMaxRegisters = 180;      // of everything that is counted here
constexpr std::int64_t kManyRegisters = 140;     // from which on few invocations run at once
constexpr std::int64_t kMaxUnrolled = 1400;      // multiply-adds written out; compilers give up on more
constexpr std::int64_t kSoftwareUnrolled = 220;  // compiled in a fraction of a second
constexpr std::int64_t kInvocations = 128;       // a workgroup; every device has them
constexpr std::int64_t kEnoughInvocations = 1 << 15;   // to fill a GPU
constexpr std::int64_t kFewColumns = 2, kFewRows = 8;  // of strips that leave a GPU partly idle, or are strided
constexpr std::int64_t kFewTaps = 9;                   // more compute for as long as they wait for loads
constexpr std::int64_t kMaxRows = 64;                  // as in depthwise_rows.comp
constexpr std::int64_t kLeastRows = 2;  // of a strip, which reads kernel - stride rows of its neighbour's

struct Params {
  Pointer input, weight, output;
  Strides4 input_stride, output_stride;
  WeightStrides weight_stride;
  EpilogueParams epilogue;
  GeometryParams geometry;
  std::uint32_t rows, vector_groups, strip_groups, row_strips, groups;
};

struct Shape {
  std::int64_t words, vector;    // of an invocation: 32-bit words and channels
  std::int64_t columns;          // outputs of a row
  std::int64_t ahead, unroll;    // input rows loaded ahead; output rows a turn of the unrolled loop
  std::int64_t vectors, strips;  // of a workgroup
  std::int64_t rows;             // outputs an invocation walks down
};

std::int64_t input_columns(const ConvProblem& p, std::int64_t columns) {
  return (columns - 1) * p.stride[2] + p.kernel[2];
}

std::int64_t slots(const ConvProblem& p) { return ceil_div(p.kernel[1], p.stride[1]); }

std::int64_t registers(const ConvProblem& p, const Shape& s, std::int64_t columns) {
  const std::int64_t per_real = accumulator(p.dtype) == DType::f64 ? 2 : 1;
  return (p.taps() + slots(p) * columns) * s.vector * per_real + input_columns(p, columns) * s.words * s.ahead;
}

// Wide strips share loads; strides leave little to share, and registers bound how many strips run.
std::int64_t most_columns(const ConvProblem& p) { return p.kernel[1] == 1 ? 8 : p.stride[2] > 1 ? kFewColumns : 4; }

// The columns that load and compute the least, past the edge included.
void choose_columns(const ConvProblem& p, Shape& s, std::int64_t max_unrolled) {
  double best = 0;
  for (std::int64_t c = 1; c <= std::min(p.output[2], most_columns(p)); ++c) {
    if (c > 1 && (input_columns(p, c) > kMaxInputs || registers(p, s, c) > kMaxRegisters ||
                  s.unroll * c * p.taps() * s.vector > max_unrolled))
      break;
    const double cost = double(ceil_div(p.output[2], c)) * double(c * p.taps() + 4 * input_columns(p, c) + 8);
    if (best == 0 || cost < best) best = cost, s.columns = c;
  }
}

std::int64_t workgroups(const ConvProblem& p, const Shape& s) {
  return ceil_div(p.out_channels / s.vector, s.vectors) * ceil_div(ceil_div(p.output[2], s.columns), s.strips) *
         checked_mul(ceil_div(p.output[1], s.rows), checked_mul(p.output[0], p.batch));
}

Shape choose_shape(const ConvProblem& p, std::int64_t words, const Traits& traits) {
  Shape s{};
  s.words = words;
  s.vector = words * 4 / static_cast<std::int64_t>(size_bytes(p.dtype));
  s.unroll = slots(p);
  s.ahead = s.unroll * p.stride[1] <= 4 ? s.unroll * p.stride[1] : 1;
  choose_columns(p, s, traits.type == DeviceType::software ? kSoftwareUnrolled : kMaxUnrolled);
  const std::int64_t vectors = p.out_channels / s.vector;
  s.vectors = ceil_div(vectors, ceil_div(vectors, 32));
  const auto invocations = [&] {
    s.strips = std::clamp<std::int64_t>(kInvocations / s.vectors, 1, ceil_div(p.output[2], s.columns));
    return workgroups(p, s) * s.vectors * s.strips;
  };
  std::int64_t enough = kEnoughInvocations;
  s.rows = std::min(p.output[1], kFewRows);
  // With few invocations the time is that of one's chain of loads: narrow strips need fewer registers, so more of them
  // wait at once.
  const bool waits = traits.type != DeviceType::software && p.kernel[1] > 1 && p.taps() <= kFewTaps;
  if (waits && invocations() < enough) {
    enough /= 2;
    if (invocations() < enough || registers(p, s, s.columns) > kManyRegisters)
      s.columns = std::min(s.columns, kFewColumns);
  }
  s.rows = std::min(p.output[1], kMaxRows);
  while (invocations() < enough && s.rows > kLeastRows) s.rows = ceil_div(s.rows, 2);
  return s;
}

bool aligned(const View<Pointer>& v, std::int64_t elements, DType t) {
  return v.data % (static_cast<std::uint64_t>(elements) * size_bytes(t)) == 0 &&
         std::all_of(v.stride.begin(), v.stride.begin() + 4, [&](std::int64_t s) { return s % elements == 0; });
}

// Words of the longest vector that is aligned and leaves the kernel in registers; 0 when there is none.
std::int64_t vector_words(const ConvProblem& p, const Operands<Device>& a) {
  for (const std::int64_t words : {4, 2, 1}) {
    const std::int64_t channels = words * 4 / static_cast<std::int64_t>(size_bytes(p.dtype));
    if (channels == 0 || channels > 4 || p.out_channels % channels != 0) continue;
    if (words > 1 && channels > 1 && channels * p.taps() > kMaxWeights) continue;
    // A result in the accumulator type is stored value by value.
    const std::int64_t stored = p.output_dtype == p.dtype ? channels : 1;
    if (aligned(a.input, channels, p.dtype) && aligned(a.output, stored, p.output_dtype)) return words;
  }
  return 0;
}

}  // namespace

bool has_depthwise_rows(const ConvProblem& p) {
  for (int axis = 0; axis < 3; ++axis)
    if (p.dilation[axis] > 1 || p.input_dilation[axis] > 1) return false;
  const bool whole_words = p.out_channels * static_cast<std::int64_t>(size_bytes(p.dtype)) % 4 == 0;
  return whole_words && p.out_channels_per_group() == 1 && p.kernel[0] == 1 && p.taps() <= kMaxTaps &&
         p.kernel[2] <= kMaxInputs && p.stride[1] <= kMaxStride && p.stride[2] <= kMaxStride;
}

bool run_depthwise_rows(Stream& stream, const ConvProblem& p, const Operands<Device>& a, double seconds) {
  const std::int64_t words = vector_words(p, a);
  if (words == 0) return false;
  const Shape s = choose_shape(p, words, stream.traits());
  const std::int64_t groups = workgroups(p, s);
  const Params params{a.input.data,
                      a.weight.data,
                      a.output.data,
                      pixel_strides(a.input),
                      pixel_strides(a.output),
                      weight_strides(a.weight),
                      epilogue_params(p, a),
                      geometry_params(p),
                      narrow(s.rows),
                      narrow(ceil_div(p.out_channels / s.vector, s.vectors)),
                      narrow(ceil_div(ceil_div(p.output[2], s.columns), s.strips)),
                      narrow(ceil_div(p.output[1], s.rows)),
                      narrow(groups)};
  Kernel k{shader_name("depthwise_rows", p.dtype), epilogue_constants(p, a)};
  for (const std::int64_t v : {s.vectors, s.strips, s.words, s.columns, p.kernel[1], p.kernel[2], p.stride[1],
                               p.stride[2], s.ahead, s.unroll, std::int64_t{has_padding(p)}})
    k.constants.push_back(narrow(v));
  stream.dispatch(k, params, stream.linear_groups(static_cast<std::uint64_t>(groups)), seconds);
  return true;
}

}  // namespace vkconv::vulkan
