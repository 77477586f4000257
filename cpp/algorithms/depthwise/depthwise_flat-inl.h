// Few channels: vectors over the (column, channel) pairs of a staged line. A tap is a shift of the line and a vector
// of weights that repeats every C lanes. Included once per instruction set.
#if defined(VKCONV_DEPTHWISE_FLAT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef VKCONV_DEPTHWISE_FLAT_INL_H_
#undef VKCONV_DEPTHWISE_FLAT_INL_H_
#else
#define VKCONV_DEPTHWISE_FLAT_INL_H_
#endif

#include <vector>

#include "algorithms/depthwise/depthwise_stage-inl.h"
#include "algorithms/depthwise/depthwise_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace vkconv::cpu::depthwise::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using cpu::HWY_NAMESPACE::store_n;

// A kernel column: flat output f reads line[f + shift] when f is in [begin, end).
struct FlatTap {
  std::int64_t shift, begin, end;
};

template <class T>
struct FlatLine {
  const T* x;  // staged line, phase 0, flat position 0
  const T* w;
};

template <class T>
struct FlatRow {
  std::vector<FlatLine<T>> lines;
  std::vector<FlatTap> taps;
  std::int64_t channels, weight_row;
};

// Adds one tap to Vectors vectors that start at flat output f.
template <int Vectors, bool SameWeights, class T>
HWY_INLINE void add_flat_tap(hn::Vec<hn::ScalableTag<T>> (&sum)[Vectors], const FlatTap& tap, const T* HWY_RESTRICT x,
                             const T* HWY_RESTRICT w, std::int64_t f, const std::int64_t (&phase)[Vectors]) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  if (f + Vectors * lanes <= tap.begin || f >= tap.end) return;
  const auto first = hn::LoadU(d, w + phase[0]);
  x += f + tap.shift;
  if (HWY_LIKELY(f >= tap.begin && f + Vectors * lanes <= tap.end)) {
    HWY_UNROLL(16)
    for (int i = 0; i < Vectors; ++i)
      sum[i] = hn::MulAdd(hn::LoadU(d, x + i * lanes), SameWeights ? first : hn::LoadU(d, w + phase[i]), sum[i]);
    return;
  }
  HWY_UNROLL(16)
  for (int i = 0; i < Vectors; ++i) {
    const auto at = f + i * lanes;
    const auto below = hn::FirstN(d, static_cast<std::size_t>(std::clamp<std::int64_t>(tap.begin - at, 0, lanes)));
    const auto until = hn::FirstN(d, static_cast<std::size_t>(std::clamp<std::int64_t>(tap.end - at, 0, lanes)));
    const auto added = hn::MulAdd(hn::LoadU(d, x + i * lanes), hn::LoadU(d, w + phase[i]), sum[i]);
    sum[i] = hn::IfThenElse(hn::AndNot(below, until), added, sum[i]);
  }
}

// The sums of Vectors vectors of outputs at f, in the order and blocks of the register tiles.
template <int Vectors, bool SameWeights, class T>
HWY_NOINLINE void flat_tile(const FlatRow<T>& row, std::int64_t f, T* HWY_RESTRICT out) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto width = static_cast<std::int64_t>(row.taps.size());
  std::int64_t phase[Vectors];
  hn::Vec<decltype(d)> sum[Vectors];
  HWY_UNROLL(16)
  for (int i = 0; i < Vectors; ++i) {
    phase[i] = (f + i * lanes) % row.channels;
    sum[i] = hn::Zero(d);
    hn::StoreU(sum[i], d, out + i * lanes);
  }
  const std::int64_t lines_per_sum = std::max<std::int64_t>(1, kSumTerms / width);
  const auto flush = [&]() HWY_ATTR {
    HWY_UNROLL(16)
    for (int i = 0; i < Vectors; ++i) {
      hn::StoreU(hn::Add(hn::LoadU(d, out + i * lanes), sum[i]), d, out + i * lanes);
      sum[i] = hn::Zero(d);
    }
  };
  std::int64_t l = 0;
  for (const FlatLine<T>& line : row.lines) {
    for (std::int64_t k = 0; k < width; ++k) {
      add_flat_tap<Vectors, SameWeights>(sum, row.taps[static_cast<std::size_t>(k)], line.x,
                                         line.w + k * row.weight_row, f, phase);
      if ((k + 1) % kSumTerms == 0) flush();
    }
    if (++l % lines_per_sum == 0) flush();
  }
  flush();
}

template <class T>
void flat_sums(const FlatRow<T>& row, std::int64_t count, T* HWY_RESTRICT out) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  const bool same = lanes % row.channels == 0;
  std::int64_t f = 0;
  for (; f + kFlatVectors * lanes <= count; f += kFlatVectors * lanes)
    same ? flat_tile<kFlatVectors, true>(row, f, out + f) : flat_tile<kFlatVectors, false>(row, f, out + f);
  for (; f < count; f += lanes) flat_tile<1, true>(row, f, out + f);
}

// Epilogue and store of one row of sums, pixel by pixel unless the output is dense.
template <class T, class Out>
void finish_flat(const Call& call, const Block& b, std::int64_t oh, const T* HWY_RESTRICT sums) {
  const ConvProblem& p = call.p;
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto row_offset = [&](const View<std::byte*>& v) {
    return b.n * v.stride[0] + b.od * v.stride[1] + oh * v.stride[2];
  };
  const View<std::byte*>& y = call.operands.output;
  Out* out = reinterpret_cast<Out*>(y.data) + row_offset(y);
  const View<std::byte*>& a = call.operands.addend;
  const auto* bias = reinterpret_cast<const T*>(call.operands.bias);
  const bool dense = y.stride[3] == p.out_channels && !p.epilogue.bias && !p.epilogue.addend;
  const std::int64_t chunk = dense ? b.ow.size() * p.out_channels : p.out_channels;
  const std::int64_t chunks = dense ? 1 : b.ow.size();
  for (std::int64_t i = 0; i < chunks; ++i)
    for (std::int64_t c = 0; c < chunk; c += lanes) {
      const auto n = static_cast<std::size_t>(std::min(lanes, chunk - c));
      auto v = hn::LoadU(d, sums + i * chunk + c);
      if (p.epilogue.addend)
        v = hn::Add(v,
                    cpu::HWY_NAMESPACE::load_n(
                        d, reinterpret_cast<const T*>(a.data) + row_offset(a) + (b.ow.begin + i) * a.stride[3] + c, n));
      if (p.epilogue.bias) v = hn::Add(v, cpu::HWY_NAMESPACE::load_n(d, bias + c, n));
      v = cpu::HWY_NAMESPACE::activate(d, v, p.epilogue);
      Out* to = out + (b.ow.begin + i) * y.stride[3] + c;
      chunk - c < lanes ? store_n(v, d, to, n) : store(v, d, to);
    }
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
FlatRow<T> flat_row(const Call& call, const Block& b, const Region& r) {
  const ConvProblem& p = call.p;
  const std::int64_t channels = p.out_channels;
  FlatRow<T> row{{}, {}, channels, call.weights.row_length};
  for (std::int64_t k = 0; k < p.kernel[2]; ++k) {
    const std::int64_t shift = k * p.dilation[2] - p.pad_lo[2];  // column = output * stride + shift
    const std::int64_t position = b.ow.begin + floor_div(shift, r.phases) - r.first_position;
    const Range columns = common(outputs_inside(p, 2, k), b.ow);
    row.taps.push_back({0, 0, 0});
    if (columns.size() > 0)
      row.taps.back() = {floor_mod(shift, r.phases) * r.phase_length + position * channels,
                         (columns.begin - b.ow.begin) * channels, (columns.end - b.ow.begin) * channels};
  }
  return row;
}

template <class T>
void run_flat(const Call& call, const Block& b, std::byte* scratch) {
  const ConvProblem& p = call.p;
  const Region r = flat_region(p, b, kFlatVectors * static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>())));
  T* staged = reinterpret_cast<T*>(scratch);
  stage_any<T>(call, b.n, r, staged);
  T* sums = staged + r.elements() + stage_line_elements(p, r);
  const auto* weights = reinterpret_cast<const T*>(call.weights.data);
  const std::int64_t line = r.line_length();
  FlatRow<T> row = flat_row<T>(call, b, r);
  const Range kd = taps_inside(p, 0, b.od);
  for (std::int64_t oh = b.oh.begin; oh < b.oh.end; ++oh) {
    const Range kh = taps_inside(p, 1, oh);
    row.lines.clear();
    for (std::int64_t d = kd.begin; d < kd.end; ++d)
      for (std::int64_t h = kh.begin; h < kh.end; ++h) {
        const std::int64_t id = b.od * p.stride[0] + d * p.dilation[0] - p.pad_lo[0] - r.depths.begin;
        const std::int64_t ih = oh * p.stride[1] + h * p.dilation[1] - p.pad_lo[1] - r.rows.begin;
        row.lines.push_back({staged + (id * r.rows.size() + ih) * line,
                             weights + (d * p.kernel[1] + h) * p.kernel[2] * call.weights.row_length});
      }
    flat_sums(row, b.ow.size() * p.out_channels, sums);
    finish_flat_as(call, b, oh, sums);
  }
}

}  // namespace vkconv::cpu::depthwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
