// implicit_gemm: the forward pass as a matrix product of output pixels by output channels whose left factor, the
// unfolded input, is never stored: the micro-kernel reads input pixels in place. It wins on dense convolutions that
// Winograd does not cover (1x1, strides, dilation, large kernels, 1D) and is the general fast path for every problem
// without input dilation. Three kernels share the work: dense (bound: the FMA units), grouped for small groups (bound:
// permutations beside the multiply-adds), and narrow for few output channels (bound: the FMA units, or reading the
// input). Source: the register blocking of Goto & van de Geijn, "Anatomy of high-performance matrix multiplication"
// (2008), and direct convolution after Georganas et al., "Anatomy of high-performance deep learning convolutions"
// (2018).
#include <algorithm>
#include <memory>
#include <string>

#include "algorithms/implicit_gemm/dense.h"
#include "algorithms/implicit_gemm/grouped.h"
#include "algorithms/implicit_gemm/narrow.h"
#include "algorithms/registry_cpu.h"
#include "cpu/estimates.h"
#include "cpu/gemm_kernels.h"

namespace vkconv::cpu {
namespace {

// How a kernel is planned and called. The layouts are plain data; what they mean is their kernel's business.
struct DenseKernel {
  using Layout = DenseLayout;
  static void run(const Layout& s, const Operands<Device>& a, std::byte* workspace) {
    if (takes_one_row(s, a)) return run_dense(*s.one_row, a, workspace);
    run_dense(s, s.orientation.apply(a), workspace);
  }
  static void pack(const Layout& s, const WeightView<std::byte*>& w, std::byte* packed) { pack_dense(s, w, packed); }
  static std::size_t packed_bytes(const Layout& s) { return s.packed_bytes(); }
  static std::string layout_name(const Layout& s) {
    const char* names[] = {"panels", "pairs", "tiles"};  // by unit
    return names[static_cast<int>(s.unit)] + std::to_string(s.columns);
  }
};

struct GroupedKernel {
  using Layout = GroupedLayout;
  static void run(const Layout& s, const Operands<Device>& a, std::byte* workspace) {
    run_grouped(s, s.orientation.apply(a), workspace);
  }
  static void pack(const Layout& s, const WeightView<std::byte*>& w, std::byte* packed) { pack_grouped(s, w, packed); }
  static std::size_t packed_bytes(const Layout& s) { return s.packed_bytes; }
  static std::string layout_name(const Layout& s) { return "groups" + std::to_string(s.lanes); }
};

struct NarrowKernel {
  using Layout = NarrowLayout;
  static void run(const Layout& s, const Operands<Device>& a, std::byte* workspace) {
    if (takes_one_row(s, a)) return run_narrow(*s.one_row, a, workspace);
    run_narrow(s, s.orientation.apply(a), workspace);
  }
  static void pack(const Layout& s, const WeightView<std::byte*>& w, std::byte* packed) { pack_narrow(s, w, packed); }
  static std::size_t packed_bytes(const Layout& s) { return s.packed_bytes; }
  static std::string layout_name(const Layout&) { return "terms"; }
};

template <class Kernel>
class KernelPlan final : public Plan<Device> {
 public:
  explicit KernelPlan(typename Kernel::Layout layout) : layout_(std::move(layout)) {}

  std::string describe() const override { return "implicit_gemm"; }
  std::size_t workspace_bytes() const override { return layout_.workspace_bytes(); }

  std::string weight_layout() const override { return Kernel::layout_name(layout_) + layout_.orientation.axes_text(); }

  std::size_t prepared_bytes() const override { return Kernel::packed_bytes(layout_); }
  PreparedWeights<Device> prepare_in(std::byte* to, Device::Stream&,
                                     const WeightView<std::byte*>& weight) const override {
    Kernel::pack(layout_, layout_.orientation.apply(weight), to);
    return {to};
  }

  void execute(Device::Stream&, const Operands<Device>& operands, std::byte* workspace) const override {
    Kernel::run(layout_, operands, workspace);
  }

 private:
  typename Kernel::Layout layout_;
};

enum class Kernel { grouped, narrow, dense };

// Grouped: two groups or more share a vector. Pixels of fewer channels are copied first, which a single tap is not
// worth. Narrow: where it takes fewer vector operations a pixel than rows of A times a panel of one vector.
Kernel kernel_for(const ConvProblem& p, std::int64_t lanes) {
  constexpr double kStoreOperations = 4, kBroadcastShare = 0.9;
  const std::int64_t out = p.out_channels_per_group(), terms = p.taps() * p.in_channels_per_group();
  const bool few = p.in_channels < lanes && p.taps() == 1;
  if (p.groups > 1 && groups_in_vector(p, lanes) >= 2 && !few) return Kernel::grouped;
  const double dense = static_cast<double>(terms * ceil_div(out, lanes)) / kBroadcastShare + kStoreOperations;
  return out <= kNarrowOutputs && narrow_vector_operations(p, lanes) < dense ? Kernel::narrow : Kernel::dense;
}

std::size_t least_workspace(const ConvProblem& p, const Context<Device>& c, RegisterTile tile) {
  switch (kernel_for(p, tile.lanes)) {
    case Kernel::grouped:
      return grouped_layout(p, c, tile.lanes).workspace_bytes();
    case Kernel::narrow:
      return narrow_layout(p, c, tile.lanes).workspace_bytes();
    case Kernel::dense:
      return dense_layout(p, c, tile).workspace_bytes();
  }
  return 0;
}

Support supports(const ConvProblem& p, const Context<Device>& c) {
  if (Support s = forward_support(p); !s) return s;
  if (p.input_dilated()) return Support::no("the input is dilated");
  return workspace_support("packed weights", least_workspace(p, c, register_tile(c.traits, p.dtype)), c);
}

// Shares of the peak rate, measured: two vectors of columns and one; a tile of few rows waits for its own sums.
constexpr double kWideShare = 0.85, kNarrowShare = 0.72, kRowsForPeak = 5;

// Weights are packed once, by a thread a panel, or by every task that uses them.
double dense_packing_seconds(const DenseLayout& s, const Traits& t) {
  const std::int64_t weights = s.p.weight_elements();
  const double once = packing_seconds(t, s.shared_weights) * static_cast<double>(weights);
  if (!s.shared_weights) return once * static_cast<double>(s.chunks()) * uneven_share(t, s.chunks() * s.panel_chunks());
  return launch_seconds(t, s.all_panels()) + once * uneven_share(t, s.all_panels()) + handing_over_seconds(t, weights);
}

// The first task to copy an input row finds it beyond L2. Pixels that zeros follow are copied one by one.
double copying_seconds(const DenseLayout& s, const Traits& t) {
  constexpr double kPixelSeconds = 1e-9, kLargePixelSeconds = 3e-9;
  constexpr std::int64_t kWords = 8;  // channels of a pixel that goes by words
  if (!s.copied) return 0;
  const double copied = static_cast<double>(s.chunks() * s.panel_chunks()) * static_cast<double>(s.stage_bytes);
  const double input_bytes = static_cast<double>(s.p.input_elements()) * static_cast<double>(size_bytes(s.p.dtype));
  const double far = std::min(copied, input_bytes);
  const double pixels = copied / static_cast<double>(s.in * static_cast<std::int64_t>(size_bytes(s.p.dtype)));
  const double one_by_one = s.in == s.p.in_channels_per_group() ? 0
                            : s.in <= kWords                    ? kPixelSeconds
                                                                : kLargePixelSeconds;
  return far / t.shared_cache_bytes_per_second + (2 * copied - far) / t.cache_bytes_per_second +
         pixels * one_by_one / t.threads;
}

double dense_seconds(const ConvProblem& p, const Context<Device>& c) {
  constexpr double kRowSeconds = 50e-9;  // finding, calling and storing the tiles of a row
  const DenseLayout rows = dense_layout(p, c, register_tile(c.traits, p.dtype));
  const DenseLayout& s = rows.one_row ? *rows.one_row : rows;  // most pixels are evenly apart
  const std::int64_t channels = p.out_channels_per_group(), rest = channels % s.columns;
  const double narrow = rest > 0 && rest <= s.tile.lanes ? static_cast<double>(s.tile.lanes) : 0;
  const double wide = static_cast<double>(round_up(channels, s.tile.lanes)) - narrow;
  const double tile_rows = static_cast<double>(s.p.output[2]) / static_cast<double>(s.row_tiles);
  const double peak =
      s.unit == Bf16Unit::none ? flops_per_second(c.traits, accumulator(p.dtype)) : flops_per_second(c.traits, s.unit);
  const double rows_for_peak = std::min(kRowsForPeak, static_cast<double>(s.tile.most_rows(s.tile.vectors())));
  const double rate = peak * std::min(1.0, tile_rows / rows_for_peak);
  // Padding is skipped, but along W where a copy of the rows has its zeros.
  const double inside = share_inside(s.p, 0) * share_inside(s.p, 1) * (s.copied ? 1 : share_inside(s.p, 2));
  const double pixels = static_cast<double>(p.batch * p.output_pixels() * p.groups);
  const double pairs = 2.0 * pixels * static_cast<double>(s.terms) * inside;
  // Panels that L1 does not hold come out of L2 for every few tiles that meet them together.
  const auto meetings = static_cast<double>(s.rows * ceil_div(s.row_tiles, s.tiles_together(s.most_together)));
  const double panel_bytes = s.panel_bytes > c.traits.l1_bytes ? meetings * static_cast<double>(s.packed_bytes()) : 0;
  const double products = pairs * (wide / kWideShare + narrow / kNarrowShare) / rate;
  const double compute = partly_hidden(products, panel_bytes / (kWideShare * c.traits.cache_bytes_per_second));
  const std::int64_t tasks = s.chunks() * s.panel_chunks();
  const double found = kRowSeconds * static_cast<double>(s.rows * ceil_div(s.all_panels(), s.most_together));
  const double work =
      (compute + copying_seconds(s, c.traits) + found / c.traits.threads) * uneven_share(c.traits, tasks);
  return section_seconds(c.traits, work + kWeightShare * dense_packing_seconds(s, c.traits), p.bytes_moved(), tasks);
}

// In multiply-adds of a vector, by regression on Zen 4: a tile begins and ends, a run of taps spreads the weights and
// permutes its first input, an output is stored, apart where its vector has empty lanes, a run is found, a vector of a
// pixel is copied.
double grouped_seconds(const ConvProblem& given, const Context<Device>& c, std::int64_t lanes) {
  constexpr double kTile = 60, kRun = 5, kOutput = 5, kApart = 6, kFound = 20, kCopied = 3.5, kShare = 0.9;
  const GroupedLayout s = grouped_layout(given, c, lanes);
  const ConvProblem& p = s.p;
  const double rows_together = p.dilation[1] == 1 && p.kernel[1] > p.stride[1] ? 2 : 1;
  const std::int64_t step = p.dilation[2] == 1 ? std::min(p.stride[2], p.kernel[2]) : p.kernel[2];
  const std::int64_t line_runs = step * ceil_div(p.kernel[2], kGroupedTaps * step);
  const double lines = static_cast<double>(p.kernel[1]) + (rows_together - 1) * static_cast<double>(p.stride[1]);
  const double inside = share_inside(p, 0) * share_inside(p, 1);
  const double runs = inside * static_cast<double>(p.kernel[0] * line_runs) * lines / rows_together;  // of a row
  const auto channels = static_cast<double>(p.in_channels_per_group()), pixels = static_cast<double>(p.output[2]);
  const auto tiles = static_cast<double>(ceil_div(p.output[2], kGroupedPixels));
  const bool apart = s.vectors * lanes > p.out_channels;
  const double others =
      pixels * (kOutput + (apart ? kApart : 0)) + tiles * (kTile / rows_together + kRun * channels * runs);
  const double vector = pixels * inside * static_cast<double>(s.terms()) + other_operations(c.traits) * others;
  const double row = static_cast<double>(s.vectors) * vector + other_operations(c.traits) * kFound * runs;
  const auto pixel_vectors = static_cast<double>(ceil_div(p.in_channels, lanes) * p.batch * p.input_pixels());
  const double copied = s.copied ? other_operations(c.traits) * kCopied * pixel_vectors : 0;
  const double products = static_cast<double>(s.rows) * row * uneven_share(c.traits, s.chunks()) + copied;
  const double rate = kShare * vector_products_per_second(c.traits, p.dtype);
  const auto weights = static_cast<double>(s.vectors * s.terms() * lanes);
  const double packing = launch_seconds(c.traits, s.vectors) + packing_seconds(c.traits, false) * weights;
  return section_seconds(c.traits, products / rate, p.bytes_moved(), s.chunks()) + kWeightShare * packing;
}

// Vector operations at the rate of the FMA units.
double narrow_seconds(const ConvProblem& p, const Context<Device>& c, std::int64_t lanes) {
  constexpr double kShare = 0.85, kSpanSeconds = 80e-9;  // a span: the outputs of a row that meet the same taps
  constexpr double kCopySeconds = 1.5e-9;                // of a pixel
  const double rate = kShare * vector_products_per_second(c.traits, p.dtype);
  const NarrowLayout rows = narrow_layout(p, c, lanes);
  const NarrowLayout& s = rows.one_row ? *rows.one_row : rows;  // most pixels are evenly apart
  const double pixels = static_cast<double>(p.batch * p.output_pixels() * p.groups);
  const double spans =
      kSpanSeconds * static_cast<double>(p.groups) * static_cast<double>(s.rows) * static_cast<double>(s.spans.size());
  // Taps along an axis whose pixels lie apart are copied for every row.
  const bool apart = s.orientation.axes[2] != 2 && s.p.groups == 1 && s.p.dilation[2] == 1 && s.p.kernel[2] > 1;
  const std::int64_t copied = apart ? s.rows * s.p.kernel[0] * s.p.kernel[1] * s.p.input[2] : 0;
  const double sums = (pixels * narrow_vector_operations(p, lanes) / rate +
                       (spans + kCopySeconds * static_cast<double>(copied)) / c.traits.threads) *
                      uneven_share(c.traits, s.tasks());
  const double packed = c.traits.threads * static_cast<double>(p.weight_elements());  // by one thread
  const double packing = kWeightShare * packed * packing_seconds(c.traits, false);
  // Slices that L2 does not hold until the next one's outputs read them come from beyond it for every tap of the depth.
  const double slice_bytes =
      static_cast<double>(p.input[1] * p.input[2] * p.in_channels) * static_cast<double>(size_bytes(p.dtype));
  const bool held = static_cast<double>(p.kernel[0]) * slice_bytes <= static_cast<double>(c.traits.l2_bytes);
  const double read = static_cast<double>(p.output[0]) * static_cast<double>(p.kernel[0]);  // slices
  const double again = held ? 0 : std::max(0.0, read - static_cast<double>(p.input[0]));
  const double reading = static_cast<double>(p.batch) * again * slice_bytes;
  const double work = sums + packing + reading / c.traits.shared_cache_read_bytes_per_second;
  return section_seconds(c.traits, work, p.bytes_moved(), s.tasks());
}

double seconds(const ConvProblem& p, const Context<Device>& c) {
  const std::int64_t lanes = lanes_of(c.traits, p.dtype);
  switch (kernel_for(p, lanes)) {
    case Kernel::grouped:
      return grouped_seconds(p, c, lanes);
    case Kernel::narrow:
      return narrow_seconds(p, c, lanes);
    case Kernel::dense:
      return dense_seconds(p, c);
  }
  return 0;
}

std::shared_ptr<const Plan<Device>> make(const ConvProblem& p, const Context<Device>& c) {
  const RegisterTile tile = register_tile(accumulator(p.dtype));
  switch (kernel_for(p, tile.lanes)) {
    case Kernel::grouped:
      return std::make_shared<KernelPlan<GroupedKernel>>(grouped_layout(p, c, tile.lanes));
    case Kernel::narrow:
      return std::make_shared<KernelPlan<NarrowKernel>>(narrow_layout(p, c, tile.lanes));
    case Kernel::dense:
      return std::make_shared<KernelPlan<DenseKernel>>(dense_layout(p, c, tile));
  }
  return nullptr;
}

}  // namespace

const Algorithm<Device> kImplicitGemm{"implicit_gemm", supports, seconds, make};

}  // namespace vkconv::cpu
