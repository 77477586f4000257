// weight_grad_matrix: the gradient of a convolution with respect to its weight on cooperative matrices (tensor cores).
// A matrix product whose long axis is the output pixels: shared memory holds a tile of output gradients and the input
// under it with its halo, and every tap multiplies both in place. 16-bit operands, fp32 sums; fp32 operands are split
// in two. Pixels are cut into chunks by the problem and the device alone; the chunks' sums are kept in the workspace
// and added in order, so the bits never depend on the workspace limit, which only decides how many tiles of the
// gradient one pass computes. Any rank, size, stride, dilation and grouping; it wins wherever a device has such
// matrices and a group has more than a few channels. On software devices emulated kernels with the same indices keep it
// tested. Source: the split-K products of NVIDIA's CUTLASS (Kerr et al., 2017), over the halo tiles of direct_matrix.
#include <algorithm>
#include <cstdlib>

#include "algorithms/registry_vulkan.h"
#include "algorithms/weight_grad/weight_grad_support.h"
#include "algorithms/weight_grad_matrix/weight_grad_matrix_tile.h"
#include "core/checked.h"
#include "core/planner.h"
#include "vulkan/divisor.h"
#include "vulkan/kernel_params.h"

namespace vkconv::vulkan {
namespace {

constexpr std::uint32_t kSumThreads = 128, kMostSharers = 16;
constexpr std::int64_t kSharerChunks = 4;  // that an invocation of the sum adds at once
constexpr std::int64_t kIndexLimit = std::int64_t{1} << 30;

struct Params {
  Pointer input, grad, weight, workspace;
  Strides4 input_stride, grad_stride;
  WeightStrides weight_stride;
  GeometryParams geometry;
  Divisor pitch, input_pitch, depths;
  Divisor pixel_rows, tiles_m, tiles_n, tap_blocks, depth_taps, channel_chunks;
  std::uint32_t pixels, slices, pixel_tiles, chunks, chunk_tiles, first_tile, tile_count, together;
};

std::int64_t span(const View<Pointer>& v, std::int64_t batch, const Extent3& extent) {
  std::int64_t elements = std::abs(v.stride[0]) * batch;
  for (std::size_t axis = 0; axis < 3; ++axis) elements += std::abs(v.stride[axis + 1]) * extent[axis];
  return elements;
}

std::optional<GradientGrid> grid_of(const ConvProblem& p, const MatrixUnit& unit, const Context<Device>& c) {
  return c.planner.remembered({p, "weight_grad_matrix", 0}, [&] {
    auto best = choose_gradient_grid(rows_as_slices(p), unit, c.traits);
    if (!has_depth_taps(p) || parts_of(p.dtype) == 1) return best;  // halves take as long either way
    auto turned = choose_gradient_grid(kRowsAsDepths.apply(p), unit, c.traits);
    if (!turned || (best && best->seconds <= turned->seconds)) return best;
    turned->turned = true;
    return turned;
  });
}

class WeightGradMatrixPlan final : public Plan<Device> {
 public:
  WeightGradMatrixPlan(const ConvProblem& p, const Context<Device>& c)
      : unit_(*matrix_unit(c.traits, matrix_operand(p.dtype))),
        grid_(*grid_of(p, unit_, c)),
        original_(grid_.turned ? kRowsAsDepths.apply(p) : p),
        p_(groups_together(rows_as_slices(original_), grid_.together)),
        pass_tiles_(std::min<std::int64_t>(grid_.tiles, c.workspace_limit_bytes / grid_.tile_bytes)) {}

  std::string describe() const override {
    return p_.dtype == DType::f32 ? "weight_grad_matrix(split)" : "weight_grad_matrix";
  }
  std::size_t workspace_bytes() const override { return grid_.tile_bytes * static_cast<std::size_t>(pass_tiles_); }

  void execute(Stream& stream, const Operands<Device>& operands, Pointer workspace) const override {
    const Operands<Device> a = rows_as_slices(original_, grid_.turned ? kRowsAsDepths.apply(operands) : operands);
    const bool row = grid_.tile.strip && pixels_are_row(p_, a);
    const ConvProblem p = row ? pixels_as_row(p_) : p_;
    Params params = make_params(p, row ? side_by_side(p) : grid_.layout, a, workspace);
    const Kernel product = product_kernel(stream, a, p), sum = sum_kernel(a);
    for (std::int64_t first = 0; first < grid_.tiles; first += pass_tiles_) {
      const std::int64_t tiles = std::min(pass_tiles_, grid_.tiles - first);
      params.first_tile = narrow(first);
      params.tile_count = narrow(tiles);
      stream.dispatch(product, params, stream.linear_groups(static_cast<std::uint64_t>(tiles * grid_.chunks)),
                      grid_.seconds * double(tiles) / double(grid_.tiles));
      const std::int64_t tile_groups = ceil_div(grid_.tile.elements(unit_) / 4, kSumThreads / sharers());
      stream.dispatch(sum, params, stream.linear_groups(static_cast<std::uint64_t>(tiles * tile_groups)));
    }
  }

 private:
  // Of problem p, which is p_ as it is computed.
  Params make_params(const ConvProblem& p, const SideBySide& layout, const Operands<Device>& a,
                     Pointer workspace) const {
    return {a.input.data,
            a.output.data,
            a.weight.data,
            workspace,
            pixel_strides(a.input),
            pixel_strides(a.output),
            weight_strides(a.weight),
            geometry_params(p),
            divisor(narrow(layout.pitch)),
            divisor(narrow(layout.pitch * p.stride[2])),
            divisor(narrow(p.output[0])),
            divisor(narrow(grid_.pixel_rows)),
            divisor(narrow(grid_.tiles_m)),
            divisor(narrow(grid_.tiles_n)),
            divisor(narrow(grid_.tap_blocks)),
            divisor(narrow(p.kernel[0])),
            divisor(narrow(grid_.channel_chunks)),
            narrow(p.batch * p.output_pixels()),
            narrow(layout.slices),
            narrow(grid_.pixel_tiles),
            narrow(grid_.chunks),
            narrow(grid_.chunk_tiles),
            0,
            0,
            narrow(grid_.together)};
  }

  // Invocations that share a sum of chunks.
  std::uint32_t sharers() const {
    std::uint32_t sharers = 1;
    while (sharers < kMostSharers && sharers * kSharerChunks < grid_.chunks) sharers *= 2;
    return sharers;
  }

  // Constants 0 to 15, of which both kernels read.
  std::vector<std::uint32_t> tile_constants(std::uint32_t threads) const {
    const GradientTile& t = grid_.tile;
    const CooperativeMatrix& s = unit_.shape;
    return {threads,
            0,
            0,
            0,
            0,
            s.m,
            s.n,
            s.k,
            unit_.lanes,
            0,
            t.subgroups_m,
            t.subgroups_n,
            t.fragments_m,
            t.fragments_n,
            t.chunk_octets,
            t.taps};
  }

  Kernel product_kernel(Stream& stream, const Operands<Device>& a, const ConvProblem& p) const {
    const GradientTile& t = grid_.tile;
    const bool sized = !unit_.emulated && stream.traits().features.subgroup_size_control;
    Kernel k{shader_name("weight_grad_matrix", p_.dtype) + (unit_.emulated ? "_emulated" : ""),
             tile_constants(t.subgroups() * unit_.lanes), sized ? unit_.lanes : 0};
    // One emulated kernel serves every size; a GPU's knows its own.
    const std::int64_t shared = unit_.emulated ? most_tile_octets(stream.traits()) : grid_.shared_octets;
    for (const std::uint32_t v : {std::uint32_t{t.strip}, t.runs, narrow(grid_.input_loads), narrow(grid_.grad_loads),
                                  narrow(shared), load_unit(a.input, p_.in_channels_per_group(), p_.dtype),
                                  load_unit(a.output, p_.out_channels_per_group(), p_.dtype)})
      k.constants.push_back(v);
    for (const std::int64_t v : {p_.stride[1], p_.stride[2], p_.dilation[1], p_.dilation[2], p_.kernel[2]})
      k.constants.push_back(unit_.emulated ? 0 : narrow(v));
    const std::int64_t most = std::max(span(a.input, p_.batch, p_.input), span(a.output, p_.batch, p_.output));
    const bool slices = p.batch * p.output[0] > 1;
    for (const bool v : {p.output[0] > 1, most >= std::int64_t{1} << 31, flushes(p_), slices,
                         slices && grid_.layout.straddled, t.strip && !slices && whole_tiles(p)})
      k.constants.push_back(v);
    return k;
  }

  // No pixel tile has columns outside, of problem p, which is one row of pixels.
  bool whole_tiles(const ConvProblem& p) const {
    return p.output[2] % grid_.tile.pixel_columns(unit_) == 0 && p.pad_lo[2] <= 0 && pad_hi(p, 2) <= 0;
  }

  Kernel sum_kernel(const Operands<Device>& a) const {
    const WeightView<Pointer>& w = a.weight;
    const auto fours = [](std::int64_t v) { return v % 4 == 0; };
    Kernel k{shader_name("weight_grad_matrix_sum", p_.dtype), tile_constants(kSumThreads)};
    k.constants[1] = p_.output_dtype != p_.dtype;
    k.constants[2] = sharers();
    k.constants[3] = w.in == 1 && fours(original_.in_channels_per_group()) && fours(w.group) && fours(w.out) &&
                     std::all_of(w.tap.begin(), w.tap.end(), fours) && w.data % (4 * size_bytes(p_.output_dtype)) == 0;
    return k;
  }

  MatrixUnit unit_;
  GradientGrid grid_;
  ConvProblem original_;
  ConvProblem p_;  // what the matrices compute
  std::int64_t pass_tiles_;
};

Support supports(const ConvProblem& p, const Context<Device>& c) {
  if (Support s = weight_grad_support(p); !s) return s;
  if (Support s = matrix_support(p, c.traits); !s) return s;
  const auto unit = matrix_unit(c.traits, matrix_operand(p.dtype));
  if (unit->shape.m % 8 != 0 || unit->shape.n % 8 != 0)
    return Support::no("the device's matrices have no whole octets");
  if (p.batch * p.output_pixels() >= kIndexLimit) return Support::no("there are over 2^30 output pixels");
  if (unit->emulated)
    if (Support s = loop_support(4 * p.batch * p.output_pixels()); !s) return s;  // sums of a quad by the definition
  const auto grid = grid_of(p, *unit, c);
  if (!grid) return Support::no("the input of a tile does not fit shared memory");
  if (checked_mul(grid->tiles, grid->chunks) >= kIndexLimit) return Support::no("needs over 2^30 workgroups");
  return workspace_support("the sums of one tile's chunks", grid->tile_bytes, c);
}

double seconds(const ConvProblem& p, const Context<Device>& c) {
  const auto unit = matrix_unit(c.traits, matrix_operand(p.dtype));
  return grid_of(p, *unit, c)->seconds + 2 * c.traits.rates.launch_seconds;
}

}  // namespace

const Algorithm<Device> kWeightGradMatrix{"weight_grad_matrix", supports, seconds, make_plan<WeightGradMatrixPlan>};

}  // namespace vkconv::vulkan
