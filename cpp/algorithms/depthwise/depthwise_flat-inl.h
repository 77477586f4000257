// Few channels: vectors over the (column, channel) pairs of staged lines. A tap is a shift of a line and vectors of
// weights that repeat every C lanes. A tile of several rows loads each vector of input once for all of them, and each
// vector of weights once for all columns where it is the same. Included once per instruction set.
#if defined(VKCONV_DEPTHWISE_FLAT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VKCONV_DEPTHWISE_FLAT_INL_H_
#undef VKCONV_DEPTHWISE_FLAT_INL_H_
#else
#define VKCONV_DEPTHWISE_FLAT_INL_H_
#endif

#include <algorithm>
#include <vector>

#include "algorithms/depthwise/depthwise_pairs-inl.h"
#include "algorithms/depthwise/depthwise_stage-inl.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::depthwise::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using cpu::HWY_NAMESPACE::store_n;

// A tile of sums, with a vector of weights and the vectors of input, must fit the registers.
inline constexpr int kFlatTileVectors = kManyRegisters ? kFlatVectors : 3;
inline constexpr int kFlatTileRows = kManyRegisters ? 4 : 3;
static_assert(kFlatTileRows <= kMaxFlatRows);

// A kernel column: flat output f reads line[f + shift] when f is in [begin, end).
struct FlatTap {
  std::int64_t shift, begin, end;
};

// Neighbouring rows of outputs, row r of which reads line i of a depth under kernel row i - r.
template <class T>
struct FlatRows {
  std::vector<const T*> lines;  // [depth][kernel height + rows - 1], at flat position 0; null: the line is padding
  std::vector<FlatTap> taps;
  Range depths;  // of the kernel
  std::int64_t kernel_height, channels, weight_row;
  const T* weights;
  std::int64_t sums_row;  // elements between two rows of sums
};

// Adds one line under one tap to rows [rows.begin, rows.end) of Rows x Vectors vectors that start at flat output f. The
// weights of a row are `weight_line` before those of the row above it.
template <bool Masked, int Weights, int Rows, int Vectors, class T>
HWY_INLINE void add_flat_tap(hn::Vec<hn::ScalableTag<T>> (&sum)[Rows][Vectors], const FlatTap& tap, const Range& rows,
                             const T* HWY_RESTRICT x, const T* HWY_RESTRICT w, std::int64_t weight_line,
                             std::int64_t f) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> column[Vectors];
  HWY_UNROLL(16)
  for (int v = 0; v < Vectors; ++v) column[v] = held(hn::LoadU(d, x + f + tap.shift + v * lanes));
  const auto added = [&](int v, auto weight, auto total) HWY_ATTR {
    const auto next = hn::MulAdd(column[v], weight, total);
    if constexpr (!Masked) return next;
    const auto first = [&](std::int64_t end) HWY_ATTR {
      return hn::FirstN(d, static_cast<std::size_t>(std::clamp<std::int64_t>(end - f - v * lanes, 0, lanes)));
    };
    return hn::IfThenElse(hn::AndNot(first(tap.begin), first(tap.end)), next, total);
  };
  HWY_UNROLL(8)
  for (int r = 0; r < Rows; ++r) {
    if (!rows.contains(r)) continue;
    HWY_UNROLL(16)
    for (int i = 0; i < Weights; ++i) {
      const auto weight = held(hn::LoadU(d, w - r * weight_line + i * lanes));
      HWY_UNROLL(16)
      for (int v = i; v < Vectors; v += Weights) sum[r][v] = added(v, weight, sum[r][v]);
    }
  }
}

// The sums of Rows x Vectors vectors of outputs from flat output f on, for which `Weights` vectors of weights repeat.
// Chains are closed after the same kernel rows, whatever the tile.
template <int Rows, int Vectors, int Weights, class T>
HWY_NOINLINE void flat_tile(const FlatRows<T>& a, std::int64_t f, T* HWY_RESTRICT out) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d)), width = static_cast<std::int64_t>(a.taps.size());
  const std::int64_t weight_line = width * a.weight_row, lines_per_sum = std::max<std::int64_t>(1, kSumTerms / width);
  const bool several = a.depths.size() * a.kernel_height * width > kSumTerms;
  hn::Vec<decltype(d)> sum[Rows][Vectors];
  const auto close = [&](int r, bool add) HWY_ATTR {
    HWY_UNROLL(16)
    for (int v = 0; v < Vectors; ++v) {
      T* to = out + r * a.sums_row + v * lanes;
      hn::StoreU(add ? hn::Add(hn::LoadU(d, to), sum[r][v]) : sum[r][v], d, to);
      sum[r][v] = hn::Zero(d);
    }
  };
  HWY_UNROLL(8)
  for (int r = 0; r < Rows; ++r) {
    HWY_UNROLL(16)
    for (int v = 0; v < Vectors; ++v) sum[r][v] = hn::Zero(d);
    if (several) close(r, false);
  }
  const T* const* line = a.lines.data();
  for (std::int64_t depth = a.depths.begin; depth < a.depths.end; ++depth)
    for (std::int64_t i = 0; i < a.kernel_height + Rows - 1; ++i, ++line) {
      if (!*line) continue;
      const Range rows{std::max<std::int64_t>(0, i - a.kernel_height + 1), std::min<std::int64_t>(i + 1, Rows)};
      const std::int64_t kernel_row = depth * a.kernel_height + i;  // of row 0
      const T* w = a.weights + kernel_row * weight_line + f % a.channels;
      for (std::int64_t k = 0; k < width; ++k, w += a.weight_row) {
        const FlatTap& tap = a.taps[static_cast<std::size_t>(k)];
        if (HWY_LIKELY(f >= tap.begin && f + Vectors * lanes <= tap.end))
          add_flat_tap<false, Weights>(sum, tap, rows, *line, w, weight_line, f);
        else if (f + Vectors * lanes > tap.begin && f < tap.end)
          add_flat_tap<true, Weights>(sum, tap, rows, *line, w, weight_line, f);
        if (several && (k + 1) % kSumTerms == 0) {
          HWY_UNROLL(8)
          for (int r = 0; r < Rows; ++r) close(r, true);
        }
      }
      if (!several) continue;
      HWY_UNROLL(8)
      for (int r = 0; r < Rows; ++r)
        if (rows.contains(r) && (kernel_row - r + 1) % lines_per_sum == 0) close(r, true);
    }
  HWY_UNROLL(8)
  for (int r = 0; r < Rows; ++r) close(r, several);
}

template <int Rows, class T>
void flat_sums(const FlatRows<T>& a, std::int64_t count, T* HWY_RESTRICT out) {
  constexpr int kVectors = kFlatTileVectors;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  const std::int64_t weights = flat_weight_vectors(a.channels, lanes);
  std::int64_t f = 0;
  for (; f + kVectors * lanes <= count; f += kVectors * lanes)
    weights == 1   ? flat_tile<Rows, kVectors, 1>(a, f, out + f)
    : weights == 3 ? flat_tile<Rows, kVectors, 3>(a, f, out + f)
                   : flat_tile<Rows, kVectors, kVectors>(a, f, out + f);
  for (; f < count; f += lanes) flat_tile<Rows, 1, 1>(a, f, out + f);
}

// Epilogue and store of one row of sums, pixel by pixel where they are not side by side.
template <class T, class Out>
void finish_flat(const Call& call, const Block& b, std::int64_t oh, const T* HWY_RESTRICT sums) {
  const ConvProblem& p = call.p;
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t channels = p.out_channels, count = b.ow.size() * channels;
  const auto first = [&](const View<std::byte*>& v) {
    return b.n * v.stride[0] + b.od * v.stride[1] + oh * v.stride[2] + b.ow.begin * v.stride[3];
  };
  const View<std::byte*>&y = call.operands.output, &a = call.operands.addend;
  Out* out = reinterpret_cast<Out*>(y.data) + first(y);
  const T* addend = p.epilogue.addend ? reinterpret_cast<const T*>(a.data) + first(a) : nullptr;
  HWY_ALIGN T bias[2 * HWY_MAX_BYTES / sizeof(T)] = {};  // repeated, so that a vector may begin at any channel
  if (p.epilogue.bias)
    for (std::int64_t i = 0; i < channels + lanes; ++i)
      bias[i] = i < channels ? reinterpret_cast<const T*>(call.operands.bias)[i] : bias[i - channels];
  const bool dense = y.stride[3] == channels && (!addend || a.stride[3] == channels);
  const std::int64_t run = dense ? count : channels;
  with_activation(d, p.epilogue, [&](auto activation) HWY_ATTR {
    for (std::int64_t i = 0; i < count; i += run, out += y.stride[3], addend += addend ? a.stride[3] : 0)
      for (std::int64_t c = 0; c < run; c += lanes) {
        const auto n = static_cast<std::size_t>(std::min(lanes, run - c));
        auto v = hn::LoadU(d, sums + i + c);
        if (addend) v = hn::Add(v, cpu::HWY_NAMESPACE::load_n(d, addend + c, n));
        if (p.epilogue.bias) v = hn::Add(v, hn::LoadU(d, bias + c % channels));
        v = activation(v);
        run - c < lanes ? store_n(v, d, out + c, n) : store(v, d, out + c);
      }
  });
}

template <class T>
void finish_flat_as(const Call& call, const Block& b, std::int64_t oh, const T* HWY_RESTRICT sums) {
  if constexpr (std::is_same_v<T, float>) {
    if (call.p.output_dtype == DType::f16) return finish_flat<T, hwy::float16_t>(call, b, oh, sums);
    if (call.p.output_dtype == DType::bf16) return finish_flat<T, hwy::bfloat16_t>(call, b, oh, sums);
  }
  finish_flat<T, T>(call, b, oh, sums);
}

template <class T>
FlatRows<T> flat_rows(const Call& call, const Block& b, const Region& r) {
  const ConvProblem& p = call.p;
  const std::int64_t channels = p.out_channels, sums_row = b.ow.size() * channels + kFlatVectors * kMaxLanes;
  const auto* weights = reinterpret_cast<const T*>(call.weights.data);
  FlatRows<T> a{{}, {}, taps_inside(p, 0, b.od), p.kernel[1], channels, call.weights.tap[2], weights, sums_row};
  for (std::int64_t k = 0; k < p.kernel[2]; ++k) {
    const std::int64_t shift = k * p.dilation[2] - p.pad_lo[2];  // column = output * stride + shift
    const std::int64_t position = b.ow.begin + floor_div(shift, r.phases) - r.first_position;
    const Range columns = common(outputs_inside(p, 2, k), b.ow);
    a.taps.push_back({0, 0, 0});
    if (columns.size() > 0)
      a.taps.back() = {floor_mod(shift, r.phases) * r.phase_length + position * channels,
                       (columns.begin - b.ow.begin) * channels, (columns.end - b.ow.begin) * channels};
  }
  return a;
}

template <class T>
void run_flat(const Call& call, const Block& b, std::byte* scratch) {
  const ConvProblem& p = call.p;
  const Region r = flat_region(p, b, kFlatVectors * static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>())));
  T* staged = reinterpret_cast<T*>(scratch);
  stage_any<T>(call, b.n, r, staged);
  T* sums = staged + r.elements();
  FlatRows<T> a = flat_rows<T>(call, b, r);
  const bool lines_shared = p.kernel[1] > 1 && p.stride[1] == 1 && p.dilation[1] == 1;
  for (std::int64_t oh = b.oh.begin, rows; oh < b.oh.end; oh += rows) {
    rows = lines_shared && oh + kFlatTileRows <= b.oh.end ? kFlatTileRows : 1;
    a.lines.clear();
    for (std::int64_t d = a.depths.begin; d < a.depths.end; ++d)
      for (std::int64_t i = 0; i < p.kernel[1] + rows - 1; ++i) {
        const std::int64_t id = position_of(p, 0, b.od, d) - r.depths.begin;
        const std::int64_t ih = position_of(p, 1, oh, i);
        const T* line = staged + (id * r.rows.size() + ih - r.rows.begin) * r.line_length();
        a.lines.push_back(ih >= 0 && ih < p.input[1] ? line : nullptr);
      }
    const std::int64_t count = b.ow.size() * p.out_channels;
    rows == 1 ? flat_sums<1>(a, count, sums) : flat_sums<kFlatTileRows>(a, count, sums);
    for (std::int64_t row = 0; row < rows; ++row) finish_flat_as(call, b, oh + row, sums + row * a.sums_row);
  }
}

}  // namespace vkconv::cpu::depthwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
