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
#include "algorithms/implicit_gemm/kernel_plan.h"
#include "algorithms/implicit_gemm/narrow.h"
#include "algorithms/registry_cpu.h"
#include "cpu/estimates.h"
#include "cpu/gemm_kernels.h"

namespace vkconv::cpu {
namespace {

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

// In multiply-adds of a vector, by regression on Zen 4: a tile begins and ends, a run of taps spreads the weights and
// permutes its first input, an output is stored, apart where its vector has empty lanes, a run is found, a vector of a
// pixel is copied, an input is folded. Groups of one channel and output load an input for each product (1.2 to 1.4 on
// Zen 5).
double grouped_seconds(const ConvProblem& given, const Context<Device>& c, std::int64_t lanes) {
  constexpr double kTile = 25, kRun = 5, kOutput = 4, kApart = 6, kFound = 20, kCopied = 3.5, kLone = 1.3, kFold = 2,
                   kShare = 0.9;
  const GroupedLayout s = grouped_layout(given, c, lanes);
  const ConvProblem& p = s.p;
  const double rows_together = p.dilation[1] == 1 && p.kernel[1] > p.stride[1] ? 2 : 1;
  const std::int64_t step = p.dilation[2] == 1 ? std::min(p.stride[2], p.kernel[2]) : p.kernel[2];
  const std::int64_t line_runs = step * ceil_div(p.kernel[2], kGroupedTaps * step);
  const double lines = static_cast<double>(p.kernel[1]) + (rows_together - 1) * static_cast<double>(p.stride[1]);
  const double inside = share_inside(p, 0) * share_inside(p, 1);
  const double runs = inside * static_cast<double>(p.kernel[0] * line_runs) * lines / rows_together;  // of a row
  const auto channels = static_cast<double>(s.lane_inputs()), pixels = static_cast<double>(p.output[2]);
  const auto tiles = static_cast<double>(ceil_div(p.output[2], kGroupedPixels));
  const bool apart = s.vectors * lanes > p.out_channels;
  const double folds = s.folds() ? kFold * static_cast<double>(p.in_channels_per_group()) : 0;
  const double others =
      pixels * (kOutput + (apart ? kApart : 0) + folds) + tiles * (kTile / rows_together + kRun * channels * runs);
  const double product = p.depthwise() && p.out_channels == p.in_channels ? kLone : 1;
  const double vector =
      pixels * inside * static_cast<double>(s.terms()) * product + other_operations(c.traits) * others;
  const double row = static_cast<double>(s.vectors) * vector + other_operations(c.traits) * kFound * runs;
  const auto pixel_vectors = static_cast<double>(ceil_div(p.in_channels, lanes) * p.batch * p.input_pixels());
  const double copied = s.copied ? other_operations(c.traits) * kCopied * pixel_vectors : 0;
  const double products = static_cast<double>(s.rows) * row * uneven_share(c.traits, s.chunks()) + copied;
  const double rate = kShare * vector_products_per_second(c.traits, p.dtype);
  const double packing =
      launch_seconds(c.traits, s.vectors) + packing_seconds(c.traits, s.vectors * s.terms() * lanes, false);
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
  const double packing =  // by one thread
      kWeightShare * c.traits.threads * packing_seconds(c.traits, p.weight_elements(), false);
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

enum class Kernel { grouped, narrow, dense };

// Grouped: two groups or more share a vector, or many small ones fill theirs, and panels of their own would be slower:
// with empty columns, or with pixels written part by part. Pixels of fewer channels than a vector are copied first,
// which a single tap is not worth. Narrow: where it takes fewer vector operations a pixel than rows of A times a panel
// of one vector.
Kernel kernel_for(const ConvProblem& p, const Context<Device>& c, std::int64_t lanes) {
  constexpr double kStoreOperations = 4, kBroadcastShare = 0.9;
  const std::int64_t in = p.in_channels_per_group(), out = p.out_channels_per_group(), terms = p.taps() * in;
  const bool few = p.in_channels < lanes && p.taps() == 1;
  const std::int64_t outputs = p.groups > 1 && !few ? outputs_in_vector(p, lanes) : 0;
  const bool fills = outputs == lanes && 2 * in <= lanes;
  if (outputs >= 2 * out || (fills && grouped_seconds(p, c, lanes) < dense_seconds(p, c))) return Kernel::grouped;
  const double dense = static_cast<double>(terms * ceil_div(out, lanes)) / kBroadcastShare + kStoreOperations;
  return out <= kNarrowOutputs && narrow_vector_operations(p, lanes) < dense ? Kernel::narrow : Kernel::dense;
}

std::size_t least_workspace(const ConvProblem& p, const Context<Device>& c, RegisterTile tile) {
  switch (kernel_for(p, c, tile.lanes)) {
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

double seconds(const ConvProblem& p, const Context<Device>& c) {
  const std::int64_t lanes = lanes_of(c.traits, p.dtype);
  switch (kernel_for(p, c, lanes)) {
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
  switch (kernel_for(p, c, tile.lanes)) {
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
