#include "algorithms/implicit_gemm/product.h"

#include <algorithm>
#include <bit>

#include "core/checked.h"

namespace vkconv::vulkan {
namespace {

// Terms of a block sum, in fours: a 64th of the sum within these bounds, so that neither a block nor the chain of
// block sums is long. It depends on the problem alone, never on the tile.
constexpr std::int64_t kLeastBlockQuads = 8, kMostBlockQuads = 64;
constexpr std::int64_t kEnoughWorkgroups = 256;  // to fill a GPU

// Share of the device's multiply-add rate that full tiles reach.
constexpr double kGpuEfficiency = 0.28, kSoftwareEfficiency = 1;
// Operations that a device could do while it gathers one value of A: a GPU does them meanwhile, and gathers halves,
// which it widens, at half the rate.
constexpr double kSoftwareGatherFlops = 420, kGpuGatherFlops = 28;
// Values gathered one by one, where channels do not come in fours.
constexpr double kFlatCost = 1.6;
constexpr double kInsertedZerosCost = 3;  // times longer on GPUs, which divide to find the values between them
// Operations in the time of an output's way from registers to memory, and launches in that of a workgroup's way from
// its first load to its last store: fitted to ten layers of short sums on an H200.
constexpr double kOutputFlops = 60, kChainLaunches = 2;

constexpr ProductTile kSmallSoftwareTile{16, 16, 4, 2, 4};  // for every shape

// Of an invocation: two terms at a time, and the outputs that it finishes, fours of a row, by the definition.
std::int64_t loop_iterations(const ConvProblem& p, const ProductTile& t) {
  const std::int64_t outputs = has_padding(p) ? std::int64_t{t.reg_m} * std::max(t.reg_n, 4u) : 0;
  return checked_add(ceil_div(p.taps() * p.in_channels_per_group(), 2), definition_iterations(p, outputs));
}

// With so few outputs of an invocation that a software device has iterations for them.
ProductTile software_tile(ProductTile t, const ConvProblem& p) {
  for (; t.reg_m > 1 && loop_iterations(p, t) > kSoftwareLoopIterations; t.reg_m /= 2) t.m /= 2;
  for (; t.reg_n > 4 && loop_iterations(p, t) > kSoftwareLoopIterations; t.reg_n /= 2) t.n /= 2;
  return t;
}

ProductTile choose_tile(const ConvProblem& p, const Traits& traits) {
  if (wants_small_tile(p, traits)) return software_tile(kSmallSoftwareTile, p);
  const std::int64_t pixels = p.batch * p.output_pixels();
  ProductTile t{128, tile_width(p.out_channels_per_group()), 4, 8, 8};
  t.reg_n = std::min(t.n >= 32 ? 8u : 4u, t.n);
  if (t.n < 16) t.m = 256, t.reg_m = t.n < 8 ? 4 : 8;
  while (t.m > 16 && pixels * 2 <= t.m) t.m /= 2;
  while (t.quads > 1 && t.shared_bytes(p.dtype) > traits.limits.shared_memory_bytes) t.quads /= 2;
  while (t.shared_bytes(p.dtype) > traits.limits.shared_memory_bytes) t.m /= 2;
  while (t.reg_m > 1 && t.group_size() < 32) t.reg_m /= 2;
  while (t.group_size() > std::min(traits.limits.workgroup_invocations, 256u)) t.m /= 2;
  return traits.type == DeviceType::software ? software_tile(t, p) : t;
}

bool weight_fours(const WeightView<Pointer>& w, DType t) {
  const auto fours = [](std::int64_t stride) { return stride % 4 == 0; };
  return w.in == 1 && w.data % (4 * size_bytes(t)) == 0 && fours(w.group) && fours(w.out) &&
         std::ranges::all_of(w.tap, fours);
}

Groups workgroups_for(const Stream& stream, std::int64_t invocations) {
  return stream.linear_groups(ceil_div(invocations, kLinearGroupSize));
}

}  // namespace

// The block of implicit_gemm.glsl.
struct MatrixProduct::Params {
  Pointer input, weight, output, workspace;
  Strides4 input_stride, output_stride;
  WeightStrides weight_stride;
  EpilogueParams epilogue;
  GeometryParams geometry;
  Pointer unfolded;
  std::int64_t unfolded_row, unfolded_group;
  std::uint32_t pixels, k_size, tiles_n, tiles_m, blocks, groups, first_row, end_row, first_group;
};

MatrixProduct::MatrixProduct(const ConvProblem& p, const Context<Device>& c, SplitSums split)
    : p_(p), tile_(choose_tile(p, c.traits)), software_(c.traits.type == DeviceType::software) {
  flat_ = p.in_channels_per_group() % 4 != 0;
  k_size_ = checked_mul(p.taps(), flat_ ? p.in_channels_per_group() : p.in_channels_per_group() / 4);
  steps_ = ceil_div(unfolded_columns() / 4, tile_.quads);
  const auto share = static_cast<std::uint64_t>(unfolded_columns() / 4 / 64);
  const auto block_quads =
      std::clamp(static_cast<std::int64_t>(std::bit_floor(share)), kLeastBlockQuads, kMostBlockQuads);
  block_steps_ = block_quads / tile_.quads;
  blocks_ = ceil_div(steps_, block_steps_);
  const std::int64_t pixels = p.batch * p.output_pixels();
  tiles_m_ = ceil_div(pixels, tile_.m);
  tiles_n_ = ceil_div(p.out_channels_per_group(), tile_.n);
  const std::int64_t tiles = checked_mul(checked_mul(tiles_m_, tiles_n_), p.groups);
  const std::int64_t sums = checked_mul(checked_mul(pixels, p.out_channels), blocks_);
  const std::size_t bytes = static_cast<std::size_t>(sums) * size_bytes(accumulator(p.dtype));
  split_ = split == SplitSums::allowed && !software_ && blocks_ > 1 && tiles < kEnoughWorkgroups &&
           bytes <= c.workspace_limit_bytes;
  workgroups_ = split_ ? tiles * blocks_ : tiles;
  workspace_bytes_ = split_ ? bytes : 0;
  seconds_ = estimate(c);
}

std::int64_t MatrixProduct::unfolded_columns() const { return flat_ ? round_up(k_size_, 4) : k_size_ * 4; }

double MatrixProduct::estimate(const Context<Device>& c) const {
  const Traits& traits = c.traits;
  const double rows = double(tiles_m_) * tile_.m, columns = double(tiles_n_) * tile_.n * double(p_.groups);
  const double terms = double(steps_) * tile_.quads * 4;
  const double gathered = rows * terms * double(tiles_n_) * double(p_.groups);
  const double products = 2 * rows * columns * terms;
  const double busy = software_ ? 1 : std::min(1.0, double(workgroups_) / kEnoughWorkgroups);
  // Narrow register tiles read shared memory more often a multiply-add: once in four at 8 x 8.
  const double reads = 4 * (1.0 / tile_.reg_m + 1.0 / tile_.reg_n);
  const double rate = flops_per_second(traits, p_.dtype) * (software_ ? kSoftwareEfficiency : kGpuEfficiency) * busy;
  const double bytes = p_.bytes_moved() + 2 * double(workspace_bytes_);
  const double reread = std::max(1.0, reads * 0.7);
  const double gathering =
      gathered * kGpuGatherFlops * (size_bytes(p_.dtype) == 2 ? 2 : 1) * (p_.input_dilated() ? kInsertedZerosCost : 1);
  const double flops =
      software_ ? (products + gathered * kSoftwareGatherFlops) * reread : std::max(products * reread, gathering);
  const double outputs = software_ ? 0 : rows * columns * kOutputFlops;
  const double chain = software_ ? 0 : kChainLaunches * traits.rates.launch_seconds / (split_ ? 1 : c.siblings);
  return (flops * (flat_ ? kFlatCost : 1) + outputs) / rate + bytes / traits.rates.memory_bytes_per_second + chain;
}

MatrixProduct::Params MatrixProduct::make_params(const Operands<Device>& a) const {
  Params params{};
  params.input = a.input.data;
  params.weight = a.weight.data;
  params.output = a.output.data;
  params.input_stride = pixel_strides(a.input);
  params.output_stride = pixel_strides(a.output);
  params.weight_stride = weight_strides(a.weight);
  params.epilogue = epilogue_params(p_, a);
  params.geometry = geometry_params(p_);
  params.unfolded_group = unfolded_columns();
  params.pixels = params.end_row = narrow(p_.batch * p_.output_pixels());
  params.k_size = narrow(k_size_);
  params.tiles_n = narrow(tiles_n_);
  params.tiles_m = narrow(tiles_m_);
  params.blocks = narrow(split_ ? blocks_ : 1);
  params.groups = narrow(workgroups_);
  return params;
}

Kernel MatrixProduct::kernel(const Operands<Device>& a, bool unfolded) const {
  Kernel k{shader_name("implicit_gemm", p_.dtype), group_epilogue_constants(p_, a)};
  const bool zeros = p_.input_dilated();
  const bool input_fours = aligned_to(4, a.input, p_.in_channels_per_group(), p_.dtype);
  const bool quad_columns = software_ && tile_.reg_n % 4 == 0;
  for (const std::uint32_t v :
       {tile_.group_size(), tile_.m, tile_.n, tile_.quads, tile_.reg_m, tile_.reg_n, std::uint32_t{flat_},
        std::uint32_t{input_fours}, std::uint32_t{weight_fours(a.weight, p_.dtype)}, std::uint32_t{zeros},
        std::uint32_t{has_padding(p_)}, std::uint32_t{blocks_ > 1 && !split_}, std::uint32_t{split_},
        std::uint32_t{quad_columns}, narrow(block_steps_), std::uint32_t{unfolded}})
    k.constants.push_back(v);
  return k;
}

void MatrixProduct::run(Stream& stream, const Operands<Device>& a, Pointer workspace) const {
  Params params = make_params(a);
  params.workspace = workspace;
  stream.dispatch(kernel(a, false), params, stream.linear_groups(workgroups_), seconds_);
  if (!split_) return;
  Kernel sum{shader_name("implicit_gemm_sum", p_.dtype), epilogue_constants(p_, a)};
  sum.constants.insert(sum.constants.end(), {kLinearGroupSize, has_padding(p_)});
  stream.dispatch(sum, params, workgroups_for(stream, p_.output_elements()));
}

void MatrixProduct::run_unfolded(Stream& stream, const Operands<Device>& a, const UnfoldedRows& rows) const {
  Params params = make_params(a);
  params.unfolded = rows.data;
  params.unfolded_row = rows.groups * unfolded_columns();
  params.first_row = narrow(rows.first_row);
  params.end_row = narrow(rows.first_row + rows.rows);
  params.first_group = narrow(rows.first_group);
  params.tiles_m = narrow(ceil_div(rows.rows, tile_.m));
  const std::int64_t workgroups = params.tiles_m * tiles_n_ * rows.groups;
  params.groups = narrow(workgroups);
  const Kernel product = kernel(a, true);
  Kernel unfold = product;
  unfold.shader = shader_name("unfold_gemm", p_.dtype);
  unfold.constants[5] = kLinearGroupSize;
  const double share = double(workgroups) / double(workgroups_);
  stream.dispatch(unfold, params, workgroups_for(stream, rows.rows * rows.groups * unfolded_columns() / 4),
                  seconds_ * share);
  stream.dispatch(product, params, stream.linear_groups(workgroups), seconds_ * share);
}

Support product_support(const ConvProblem& p, const Context<Device>& c) {
  if (Support s = forward_support(p); !s) return s;
  if (Support s = kernel_support(p, c.traits); !s) return s;
  if (Support s = pixels_support(p); !s) return s;
  if (p.taps() * p.in_channels_per_group() >= std::int64_t{1} << 31) return Support::no("a sum has over 2^31 terms");
  if (c.traits.type == DeviceType::software)
    if (Support s = loop_support(loop_iterations(p, choose_tile(p, c.traits))); !s) return s;
  return workgroup_support(MatrixProduct(p, c, SplitSums::allowed).workgroups());
}

}  // namespace vkconv::vulkan
