// winograd on Vulkan: the tiles of a convolution are transformed to points, multiplied there, and transformed back
// (Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015; the points are those of winograd_points.h).
// The products are one child problem: a point is a group of a convolution whose pixels are the tiles and whose kernel
// has the depth taps only, so any algorithm of the device can multiply, and a 3x3x3 kernel transforms every slice once.
// Some rows of tiles are worked on at a time, which bounds the workspace. It wins where multiply-adds cost more than
// the traffic of the transforms: in fp32 for many channels and in 3D, everywhere on devices that run on a CPU.
//
// Where a device has cooperative matrices of the input's 16-bit type, points are rounded to it and multiplied there:
// with F2, and F4 for precision "fast". Relative to the root mean square of the outputs the error's is 1.2 u with F2
// and 3.4 u with F4, 0.4 u being that of rounding exact sums. A point of F2 is a sum of four inputs: points and
// products of fp16 beyond 65504 become infinities, which reach their outputs, and these are computed again by
// definition.
#include <algorithm>
#include <bit>
#include <vector>

#include "algorithms/registry_vulkan.h"
#include "algorithms/winograd/winograd_geometry.h"
#include "algorithms/winograd/winograd_points.h"
#include "core/checked.h"
#include "core/planner.h"
#include "vulkan/kernel_params.h"
#include "vulkan/matrix_unit.h"

namespace vkconv::vulkan {
namespace {

using cpu::winograd::Geometry;
using F2 = cpu::winograd::Points<2, 3>;
using F4 = cpu::winograd::Points<4, 3>;

constexpr std::uint32_t kGroupSize = 64;
constexpr int kTaps = 3;
// Rounding in a tile is relative to all its products, as on the CPU.
constexpr std::int64_t kShortestSum = 16;
// Transformed inputs and products of one call: enough to fill a GPU; in the cache of a CPU.
constexpr std::size_t kGpuCallBytes = std::size_t{192} << 20, kSoftwareCallBytes = std::size_t{8} << 20;
// Share of the memory rate that the transforms reach, and values a second that a CPU device moves lane by lane.
constexpr double kTransformShare = 0.8, kSoftwareValuesPerSecond = 0.4e9;
constexpr double kCallLaunches = 4;  // of three dispatches that each wait for all of the one before
// What products of 16-bit points must gain over direct sums, which are more accurate.
constexpr double kLeastGain = 1.1;

// Whether a software device's loops let an invocation compute so many channels of a pixel by the definition.
bool repairs_fit(const ConvProblem& p, std::int64_t channels) {
  return definition_iterations(p, channels) <= kSoftwareLoopIterations;
}

// The block of winograd.glsl.
struct Params {
  Pointer input, weight, output, points, products, weight_points, masks;
  Strides4 input_stride, output_stride;
  WeightStrides weight_stride;
  EpilogueParams epilogue;
  GeometryParams geometry;
  std::uint32_t tiles_h, tiles_w, first_row, row_count, count;
};

// Sizes of everything transformed, and the rows of tiles of a call. They depend on the problem and the kind of device,
// so a workspace limit never shows in the bits.
struct Layout {
  Layout(Geometry geometry, const Traits& traits) : g(std::move(geometry)), points(g.shape.points()) {
    const ConvProblem& p = g.problem;
    rows = checked_mul(p.batch, g.tiles_h);
    if (size_bytes(p.output_dtype) == 2 && matrix_unit(traits, p.dtype)) point_dtype = p.dtype;
    value_bytes = static_cast<std::int64_t>(size_bytes(point_dtype));
    const std::int64_t in_values = checked_mul(checked_mul(p.input[0], g.tiles_w), points * p.in_channels);
    const std::int64_t out_values = checked_mul(checked_mul(p.output[0], g.tiles_w), points * p.out_channels);
    row_bytes = round_up(in_values * value_bytes, 256) + round_up(out_values * value_bytes, 256);
    repairs_later = traits.type == DeviceType::software;
    const auto wanted = static_cast<std::int64_t>(repairs_later ? kSoftwareCallBytes : kGpuCallBytes);
    call_rows = even_part(rows, std::max<std::int64_t>(wanted / row_bytes, 1));
    channels = (repairs_later ? repairs_fit(p, 4) : halves()) ? 4 : 1;
    row_masks = checked_mul(p.output[0], checked_mul(g.tiles_w, ceil_div(p.out_channels, channels)));
    weight_values = checked_mul(checked_mul(p.out_channels, p.kernel[0]), points * p.in_channels_per_group());
  }

  bool halves() const { return point_dtype != DType::f32; }
  std::int64_t input_values(std::int64_t call) const {
    return g.problem.input[0] * call * g.tiles_w * points * g.problem.in_channels;
  }
  std::int64_t output_values(std::int64_t call) const {
    return g.problem.output[0] * call * g.tiles_w * points * g.problem.out_channels;
  }
  // Whether kernels can count everything in 32 bits.
  bool in_range() const {
    constexpr std::int64_t limit = std::int64_t{1} << 31;
    return input_values(call_rows) < limit && output_values(call_rows) < limit && weight_values < limit &&
           checked_mul(row_masks, call_rows) * g.shape.outputs() < limit;
  }
  // In the order of the workspace, before the child's.
  std::size_t mask_bytes() const { return repairs_later ? aligned_bytes(row_masks * call_rows * 4) : 0; }
  std::size_t weight_bytes() const { return aligned_bytes(weight_values * value_bytes); }
  std::size_t call_bytes() const { return static_cast<std::size_t>(row_bytes * call_rows); }
  std::size_t own_bytes() const { return mask_bytes() + weight_bytes() + call_bytes(); }

  // The products of some rows of tiles.
  ConvProblem products(std::int64_t call) const {
    ConvProblem c = g.problem;
    c.dtype = c.output_dtype = point_dtype;
    c.batch = 1;
    c.in_channels *= points;
    c.out_channels *= points;
    c.groups *= points;
    for (const int axis : {1, 2}) c.kernel[axis] = 1, c.pad_lo[axis] = 0;
    c.input[1] = c.output[1] = 1;
    c.input[2] = c.output[2] = call * g.tiles_w;
    c.epilogue = {};
    return canonical(c);
  }

  WeightView<Pointer> transformed_weight(Pointer data) const {
    const ConvProblem& p = g.problem;
    WeightView<Pointer> w{data};
    w.in = 1;
    w.tap[0] = p.in_channels_per_group();
    w.out = w.tap[0] * p.kernel[0];
    w.group = w.out * p.out_channels_per_group();
    return w;
  }

  Geometry g;
  DType point_dtype = DType::f32;  // of everything transformed
  std::int64_t value_bytes = 0;    // of a point
  std::int64_t channels = 0;       // of an invocation of the transforms
  bool repairs_later = false;      // a dispatch of its own computes outputs that are not finite again
  std::int64_t points = 0, rows = 0, row_bytes = 0, call_rows = 0, row_masks = 0, weight_values = 0;
};

// F4 and F2 of a whole 3 x 3 kernel, tiled along the same two axes.
std::vector<Geometry> tiled(const ConvProblem& p) {
  std::vector<Geometry> all;
  for (Geometry& g : cpu::winograd::geometries(p)) {
    const auto& s = g.shape;
    const bool square = s.mh == s.mw && (s.mh == 2 || s.mh == 4) && s.rh == kTaps && s.rw == kTaps;
    if (square && g.parts.size() == 1 && (all.empty() || all.front().orientation == g.orientation))
      all.push_back(std::move(g));
  }
  return all;
}

std::vector<Layout> fitting_layouts(const ConvProblem& p, const Context<Device>& c) {
  std::vector<Layout> all;
  for (Geometry& g : tiled(p)) {
    Layout l(std::move(g), c.traits);
    if (l.halves() && l.g.shape.mh == 4 && p.precision != Precision::fast) continue;
    if (l.own_bytes() <= c.workspace_limit_bytes && l.in_range()) all.push_back(std::move(l));
  }
  return all;
}

// Without the weights' on a GPU, where they are taken to be prepared.
double transform_seconds(const Layout& l, const Traits& traits) {
  const ConvProblem& p = l.g.problem;
  const double values = double(l.input_values(l.rows) + l.output_values(l.rows));
  if (traits.type == DeviceType::software) return 2 * (values + double(l.weight_values)) / kSoftwareValuesPerSecond;
  const double bytes = double(p.input_elements()) * double(size_bytes(p.dtype)) +
                       double(p.output_elements()) * double(size_bytes(p.output_dtype));
  return (bytes + double(l.value_bytes) * values) / (traits.rates.memory_bytes_per_second * kTransformShare);
}

double layout_seconds(const Layout& l, const Context<Device>& c) {
  const double calls = double(ceil_div(l.rows, l.call_rows));
  const double products = c.planner.seconds(l.products(l.call_rows), c.workspace_limit_bytes - l.own_bytes());
  const double dispatches = kCallLaunches * c.traits.rates.launch_seconds * calls;
  const double whole_calls = double(l.rows) / double(l.call_rows);
  return (dispatches + transform_seconds(l, c.traits) + products * whole_calls) * (l.halves() ? kLeastGain : 1);
}

// The tile with the least work; of fp32 points without planning the products of both.
Layout chosen_layout(const ConvProblem& p, const Context<Device>& c) {
  const auto work = [&](const Layout& l) {
    if (l.halves()) return layout_seconds(l, c);
    const double flops = 2 * double(l.output_values(l.rows)) * double(l.g.problem.kernel[0] * l.g.in_channels);
    return flops / flops_per_second(c.traits, DType::f32) + transform_seconds(l, c.traits);
  };
  std::vector<Layout> all = fitting_layouts(p, c);
  return std::move(*std::ranges::min_element(all, {}, work));
}

class WinogradPlan final : public Plan<Device> {
 public:
  WinogradPlan(Layout layout, const Context<Device>& c)
      : l_(std::move(layout)), transform_seconds_(transform_seconds(l_, c.traits)) {
    const std::size_t limit = c.workspace_limit_bytes - l_.own_bytes();
    products_ = c.planner.plan({l_.products(l_.call_rows), "", limit});
    last_products_ = c.planner.plan({l_.products((l_.rows - 1) % l_.call_rows + 1), "", limit});
  }

  std::string describe() const override { return l_.g.name() + "(" + products_->describe() + ")"; }
  std::size_t workspace_bytes() const override {
    return l_.own_bytes() + std::max(products_->workspace_bytes(), last_products_->workspace_bytes());
  }
  std::string weight_layout() const override {
    return l_.g.name() + l_.g.orientation.axes_text() + " " + products_->weight_layout() + ";" +
           last_products_->weight_layout();
  }

  std::size_t prepared_bytes() const override {
    return own_weight_bytes() + products_bytes() + (same_layout() ? 0 : last_products_->prepared_bytes());
  }
  PreparedWeights<Device> prepare_in(Pointer to, Stream& stream, const WeightView<Pointer>& weight) const override {
    PreparedWeights<Device> prepared{to};
    transform_weights(stream, l_.g.orientation.apply(weight), to);
    const WeightView<Pointer> transformed = l_.transformed_weight(to);
    to += own_weight_bytes();
    prepared.children.push_back(products_->prepare_in(to, stream, transformed));
    to += products_bytes();
    if (!same_layout()) prepared.children.push_back(last_products_->prepare_in(to, stream, transformed));
    return prepared;
  }

  void execute(Stream& stream, const Operands<Device>& operands, Pointer workspace) const override;

 private:
  std::size_t own_weight_bytes() const { return aligned_bytes(static_cast<std::int64_t>(l_.weight_bytes())); }
  std::size_t products_bytes() const { return aligned_bytes(static_cast<std::int64_t>(products_->prepared_bytes())); }
  bool same_layout() const { return products_->weight_layout() == last_products_->weight_layout(); }

  Params make_params(const Operands<Device>& a, Pointer workspace) const {
    Params params{};
    params.input = a.input.data;
    params.weight = a.weight.data;
    params.output = a.output.data;
    params.masks = workspace;
    params.points = workspace + l_.mask_bytes() + l_.weight_bytes();
    const std::int64_t points_bytes = l_.input_values(l_.call_rows) * l_.value_bytes;
    params.products = params.points + static_cast<Pointer>(round_up(points_bytes, 256));
    params.input_stride = pixel_strides(a.input);
    params.output_stride = pixel_strides(a.output);
    params.weight_stride = weight_strides(a.weight);
    params.epilogue = epilogue_params(l_.g.problem, a);
    params.geometry = geometry_params(l_.g.problem);
    params.tiles_h = narrow(l_.g.tiles_h);
    params.tiles_w = narrow(l_.g.tiles_w);
    return params;
  }

  Kernel kernel(const char* part, const Operands<Device>& a) const {
    const auto bits = [](double v) { return std::bit_cast<std::uint32_t>(static_cast<float>(v)); };
    const ConvProblem& p = l_.g.problem;
    const bool four = l_.g.shape.mh == 4;
    Kernel k{shader_name(std::string("winograd_") + part, p.dtype), epilogue_constants(p, a)};
    const bool input_fours = aligned_to(4, a.input, p.in_channels, p.dtype);
    for (const std::uint32_t v :
         {kGroupSize, narrow(l_.g.shape.mh), bits(four ? F4::point(0) : F2::point(0)), bits(F4::point(2)),
          std::uint32_t{input_fours}, std::uint32_t{l_.repairs_later}, narrow(l_.channels),
          std::uint32_t{p.in_channels % 4 == 0}, std::uint32_t{p.out_channels % 4 == 0}, std::uint32_t{!l_.halves()}})
      k.constants.push_back(v);
    return k;
  }

  void run(Stream& stream, const Kernel& k, Params& params, std::int64_t count, double seconds = 0) const {
    params.count = narrow(count);
    stream.dispatch(k, params, stream.linear_groups(static_cast<std::uint64_t>(ceil_div(count, kGroupSize))), seconds);
  }

  void transform_weights(Stream& stream, const WeightView<Pointer>& weight, Pointer target) const {
    Operands<Device> a;
    a.weight = weight;
    Params params{};
    params.weight = weight.data;
    params.weight_points = target;
    params.weight_stride = weight_strides(weight);
    params.geometry = geometry_params(l_.g.problem);
    run(stream, kernel("weight", a), params, l_.weight_values / l_.points);
  }

  Layout l_;
  double transform_seconds_;
  std::shared_ptr<const Plan<Device>> products_, last_products_;
};

void WinogradPlan::execute(Stream& stream, const Operands<Device>& operands, Pointer workspace) const {
  const ConvProblem& p = l_.g.problem;
  const Operands<Device> a = l_.g.orientation.apply(operands);
  Params params = make_params(a, workspace);
  const Pointer weights = a.prepared ? a.prepared->data : workspace + l_.mask_bytes();
  if (!a.prepared) transform_weights(stream, a.weight, weights);

  const std::int64_t in_steps = ceil_div(p.in_channels, l_.channels), out_steps = ceil_div(p.out_channels, l_.channels);
  for (std::int64_t row = 0; row < l_.rows; row += l_.call_rows) {
    const std::int64_t rows = std::min(l_.call_rows, l_.rows - row);
    const double seconds = transform_seconds_ * double(rows) / double(l_.rows) / 2;
    params.first_row = narrow(row);
    params.row_count = narrow(rows);
    run(stream, kernel("input", a), params, p.input[0] * rows * l_.g.tiles_w * in_steps, seconds);
    Operands<Device> child;
    const ConvProblem c = l_.products(rows);
    child.input = contiguous_view(params.points, c.input, c.in_channels);
    child.output = contiguous_view(params.products, c.output, c.out_channels);
    child.weight = l_.transformed_weight(weights);
    const bool last = rows < l_.call_rows;
    const auto& plan = last ? last_products_ : products_;
    if (a.prepared && !plan->weight_layout().empty())
      child.prepared = &a.prepared->children[last && !same_layout() ? 1 : 0];
    plan->execute(stream, child, workspace + l_.own_bytes());
    const std::int64_t outputs = p.output[0] * rows * l_.g.tiles_w * out_steps;
    run(stream, kernel("output", a), params, outputs, seconds);
    if (!l_.repairs_later) continue;
    run(stream, kernel("repair", a), params, outputs * l_.g.shape.outputs());
  }
}

Support supports(const ConvProblem& p, const Context<Device>& c) {
  if (Support s = forward_support(p); !s) return s;
  if (p.input_dilated()) return Support::no("the input is dilated");
  if (p.dtype == DType::f64) return Support::no("its error is too large for float64");
  if (p.precision == Precision::highest) return Support::no("precision highest allows direct sums only");
  if (Support s = kernel_support(p, c.traits); !s) return s;
  const auto geometries = tiled(p);
  if (geometries.empty()) return Support::no("it needs 3 taps, stride 1 and dilation 1 along two axes");
  if (geometries.front().shortest_sum() < kShortestSum)
    return Support::no("some outputs sum too few products for its error bound");
  if (c.traits.type == DeviceType::software)
    if (Support s = loop_support(definition_iterations(p, 1)); !s) return s;
  if (fitting_layouts(p, c).empty()) return Support::no("the workspace limit is smaller than the tiles of one call");
  return Support::yes();
}

}  // namespace

const Algorithm<Device> kWinograd{
    "winograd", supports,
    [](const ConvProblem& p, const Context<Device>& c) { return layout_seconds(chosen_layout(p, c), c); },
    [](const ConvProblem& p, const Context<Device>& c) -> std::shared_ptr<const Plan<Device>> {
      return std::make_shared<WinogradPlan>(chosen_layout(p, c), c);
    }};

}  // namespace vkconv::vulkan
