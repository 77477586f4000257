// direct_matrix: the forward pass on cooperative matrices (tensor cores). The input under a tile of outputs, with its
// halo, lies in shared memory once and every tap of the kernel multiplies it in place; weights are packed in the order
// registers hold them and never pass through shared memory. 16-bit operands, fp32 sums, any rank, size, stride,
// dilation and grouping. Matrices want sixteen channels: of an image with fewer the taps of a row count as channels
// too, gathered to shared memory one by one. It wins wherever a device has such matrices, depthwise convolutions aside.
// On software devices, which have none, emulated kernels with the same indices keep it tested. Source: the direct
// convolution of Georganas et al., "Anatomy of high-performance deep learning convolutions on SIMD architectures"
// (2018), on matrix registers.
#include <algorithm>
#include <cstdlib>

#include "algorithms/direct_matrix/direct_matrix_tile.h"
#include "algorithms/registry_vulkan.h"
#include "core/checked.h"
#include "core/planner.h"
#include "core/strided_array.h"
#include "vulkan/divisor.h"
#include "vulkan/kernel_params.h"
#include "vulkan/matrix_layout.h"

namespace vkconv::vulkan {
namespace {

constexpr std::uint32_t kScaleGroupSize = 64, kSumGroupSize = 64;

struct Params {
  Pointer input, weight, output, packed, input_lowest;
  std::int64_t input_origin;
  Pointer scales;
  Strides4 input_stride, output_stride;
  WeightStrides weight_stride;
  EpilogueParams epilogue;
  GeometryParams geometry;
  Divisor pitch, input_pitch, depths;
  Divisor tiles_x, tiles_y, tiles_o, shares;
  std::uint32_t groups, slices, group_in, group_out, chunks, runs, share_stages;
  Pointer sums;
  std::int64_t share_elements;
};

// Groups of fewer channels than a matrix has, as many together as it holds: their weights are blocks of a diagonal.
std::int64_t groups_together(const ConvProblem& p) {
  constexpr std::int64_t matrix_channels = 16;
  const std::int64_t channels = std::max(p.in_channels_per_group(), p.out_channels_per_group());
  if (p.in_channels_per_group() == 1) return 1;  // depthwise: sixteen times the products
  std::int64_t together = std::clamp<std::int64_t>(matrix_channels / channels, 1, p.groups);
  while (p.groups % together != 0) --together;
  return together;
}

// Column x of the input of this problem is what the taps of a row read for output column x.
ConvProblem with_taps_as_channels(ConvProblem p) {
  p.in_channels *= p.kernel[2];
  p.input[2] = p.output[2];
  p.kernel[2] = p.stride[2] = p.dilation[2] = 1;
  p.pad_lo[2] = 0;
  return p;
}

// What matrices compute in place of a problem, and how.
struct Arrangement {
  MatrixProblem problem;
  MatrixGrid grid;
  std::optional<MatrixGrid> row_grid;  // the same tile over pixels as one row, where those of `grid` are in several
  bool turned = false;                 // the rows of the problem are depths, and its depths rows
  double seconds() const { return row_grid ? row_grid->seconds : grid.seconds; }
};

// Of a pointwise problem with rows, which are mostly evenly apart. Both grids pack weights alike.
std::optional<Arrangement> row_arrangement(const ConvProblem& p, const MatrixUnit& unit, const Context<Device>& c) {
  if (!may_be_row(p) || p.output[1] == 1) return std::nullopt;
  const MatrixProblem row{pixels_as_row(p), false, c.siblings}, several{p, false, c.siblings};
  const auto row_grid = choose_matrix_grid(row, unit, c.traits);
  if (!row_grid) return std::nullopt;
  MatrixTile tile = row_grid->tile;
  tile.strip = false;
  return Arrangement{several, matrix_grid(several, unit, tile, row_grid->shares, c.traits), row_grid};
}

std::optional<Arrangement> best_arrangement(ConvProblem p, const MatrixUnit& unit, const Context<Device>& c) {
  p = rows_as_slices(p);
  const bool few_channels = p.groups == 1 && p.in_channels < unit.shape.k && p.kernel[2] > 1 && p.input_elements() > 0;
  p.groups /= groups_together(p);
  std::optional<Arrangement> best = row_arrangement(p, unit, c);
  const auto consider = [&](const MatrixProblem& problem) {
    const auto grid = choose_matrix_grid(problem, unit, c.traits);
    if (grid && (!best || grid->seconds < best->seconds())) best = Arrangement{problem, *grid, {}};
  };
  consider({p, false, c.siblings});
  if (few_channels) consider({with_taps_as_channels(p), true, c.siblings});
  return best;
}

// Taps along the depth share the input of a tile as rows. Of patches too tall for shared memory a tile holds one row,
// as a depth: outputs share none of them.
bool may_turn(const ConvProblem& p, bool fits) {
  const bool patches = without_extent(p, 0) && p.stride[1] >= p.kernel[1];
  return has_depth_taps(p) || (!fits && patches);
}

// Nothing when no tile's input fits shared memory.
std::optional<Arrangement> arrange(const ConvProblem& p, const MatrixUnit& unit, const Context<Device>& c) {
  constexpr double kTurnedShare = 0.8;  // at most, of the estimate as it is: the two err by as much
  return c.planner.remembered({p, "direct_matrix", 0, c.siblings}, [&] {
    auto best = best_arrangement(p, unit, c);
    if (!may_turn(p, best.has_value())) return best;
    auto turned = best_arrangement(kRowsAsDepths.apply(p), unit, c);
    if (!turned || (best && kTurnedShare * best->seconds() <= turned->seconds())) return best;
    turned->turned = true;
    return turned;
  });
}

// The elements that the input of the first depth tap spans before the array's first and from it on, depths outside
// included.
Span input_span(const ConvProblem& p, const View<Pointer>& v) {
  Span s;
  const std::int64_t last_depth = (p.output[0] - 1) * p.stride[0] - p.pad_lo[0];
  const std::int64_t outside = std::max({p.pad_lo[0], last_depth - (p.input[0] - 1), std::int64_t{0}});
  const std::int64_t extents[] = {p.batch, p.input[0] + outside, p.input[1], p.input[2]};
  for (int axis = 0; axis < 4; ++axis) (v.stride[axis] < 0 ? s.lo : s.hi) += v.stride[axis] * (extents[axis] - 1);
  s.lo -= std::max<std::int64_t>(v.stride[1], 0) * outside;
  s.hi += p.in_channels;
  return s;
}

bool far_output(const ConvProblem& p, const Operands<Device>& a) {
  const auto span = [&](const View<Pointer>& v) {
    const std::int64_t extents[] = {p.batch, p.output[0], p.output[1], p.output[2]};
    std::int64_t elements = 0;
    for (int axis = 0; axis < 4; ++axis) elements += std::abs(v.stride[axis]) * extents[axis];
    return elements;
  };
  return std::max(span(a.output), p.epilogue.addend ? span(a.addend) : 0) >= std::int64_t{1} << 31;
}

// Eight channels of an output pixel are 16 aligned bytes.
bool stores_eights(const ConvProblem& p, const Operands<Device>& a) {
  return size_bytes(p.output_dtype) == 2 && epilogue_constants(p, a)[4] == 4 && p.out_channels_per_group() % 8 == 0 &&
         aligned(a.output, 8, 16);
}

// Halves of channels that are no pairs are stored in the words that they share. Of fewer channels, whose pixels do not
// fill a subgroup's lanes, one at a time takes as long.
bool stores_words(const ConvProblem& p, const Operands<Device>& a, const MatrixTile& t) {
  constexpr std::int64_t least_channels = 24;
  return size_bytes(p.output_dtype) == 2 && group_epilogue_constants(p, a)[4] == 1 && t.subgroups_k == 1 &&
         p.out_channels_per_group() >= least_channels;
}

class DirectMatrixPlan final : public Plan<Device> {
 public:
  DirectMatrixPlan(const ConvProblem& p, const Context<Device>& c)
      : unit_(*matrix_unit(c.traits, matrix_operand(p.dtype))) {
    const auto [problem, grid, row_grid, turned] = *arrange(p, unit_, c);
    turned_ = turned;
    original_ = turned ? kRowsAsDepths.apply(p) : p;
    p_ = problem.p;
    taps_are_channels_ = problem.taps_are_channels;
    grid_ = grid;
    row_grid_ = row_grid;
  }

  std::string describe() const override {
    const std::string name = p_.dtype == DType::f32 ? "direct_matrix(split)" : "direct_matrix";
    return grid_.shares > 1 ? name + "(split k)" : name;
  }
  std::size_t workspace_bytes() const override { return grid_.workspace_bytes(); }
  std::size_t prepared_workspace_bytes() const override { return grid_.shares > 1 ? workspace_bytes() : 0; }

  std::string weight_layout() const override {
    const auto& s = unit_.shape;
    std::string name = p_.dtype == DType::f32 ? "direct_matrix split:" : "direct_matrix:";
    for (const std::int64_t v : {std::int64_t{s.n}, std::int64_t{s.k}, std::int64_t{grid_.tile.fragments_n},
                                 std::int64_t{grid_.tile.chunk_octets}, grid_.runs, p_.groups})
      name += " " + std::to_string(v);
    return name + (turned_ || rows_are_slices(original_) ? " rows" : "") + (taps_are_channels_ ? " taps" : "");
  }

  std::size_t prepared_bytes() const override { return grid_.packed_bytes; }
  PreparedWeights<Device> prepare_in(Pointer to, Stream& stream, const WeightView<Pointer>& weight) const override {
    Operands<Device> a;
    a.weight = weight;
    pack(stream, with_slices(a), to);
    return {to};
  }

  void execute(Stream& stream, const Operands<Device>& operands, Pointer workspace) const override {
    const Operands<Device> a = with_slices(operands);
    if (!a.prepared) pack(stream, a, workspace);
    const ConvProblem slices = rows_as_slices(original_);
    const bool row = (grid_.tile.strip || row_grid_) && pixels_are_row(slices, a);
    const ConvProblem p = row ? pixels_as_row(p_) : p_, whole = row ? pixels_as_row(slices) : slices;
    const MatrixGrid& grid = row && row_grid_ ? *row_grid_ : grid_;
    Params params =
        make_params(whole, grid, row ? side_by_side(p) : grid.layout, a, a.prepared ? a.prepared->data : workspace);
    params.groups = narrow(grid.groups);
    if (grid_.shares == 1) return multiply(stream, a, p, grid, params);
    params.sums = workspace + grid_.sums_offset();
    Operands<Device> shares = a;
    shares.output = contiguous_view(params.sums, p.output, p.out_channels);
    Params of_shares = params;
    of_shares.output = params.sums;
    of_shares.output_stride = pixel_strides(shares.output);
    multiply(stream, shares, share_problem(p), grid, of_shares);
    Kernel sum{shader("direct_matrix_sum"), group_epilogue_constants(p_, a)};
    sum.constants.insert(sum.constants.end(), {kSumGroupSize, std::uint32_t{has_zeros()}});
    const std::int64_t outputs = p_.output_elements() / (sum.constants[4] == 4 ? 4 : 1);
    stream.dispatch(sum, params, stream.linear_groups(ceil_div(outputs, kSumGroupSize)));
  }

 private:
  Operands<Device> with_slices(const Operands<Device>& a) const {
    return rows_as_slices(original_, turned_ ? kRowsAsDepths.apply(a) : a);
  }

  // The problem whose outputs are shares of sums.
  static ConvProblem share_problem(ConvProblem p) {
    p.output_dtype = DType::f32;
    p.epilogue = {};
    return p;
  }

  void multiply(Stream& stream, const Operands<Device>& a, const ConvProblem& p, const MatrixGrid& grid,
                const Params& params) const {
    stream.dispatch(kernel(stream, a, p, grid), params, stream.linear_groups(grid.groups), grid.seconds);
  }

  void pack(Stream& stream, const Operands<Device>& a, Pointer packed) const {
    Params params = make_params(rows_as_slices(original_), grid_, grid_.layout, a, packed);
    if (p_.dtype == DType::f32) {
      const std::uint32_t run_channels = grid_.tile.fragments_n * unit_.shape.n;
      params.groups = narrow(p_.groups * grid_.runs * run_channels);
      stream.dispatch({"direct_matrix_scale_f32", {0, 0, 0, 0, 0, kScaleGroupSize, run_channels}}, params,
                      stream.linear_groups(params.groups));
    }
    params.groups = narrow(grid_.packed_blocks);
    Kernel k{shader("direct_matrix_pack"), unit_constants(layout_of(stream)), required_subgroup(stream)};
    k.constants.insert(k.constants.end(),
                       {grid_.tile.fragments_n, grid_.tile.chunk_octets, std::uint32_t{taps_are_channels_}});
    stream.dispatch(k, params, stream.linear_groups(grid_.packed_blocks));
  }

  // Whether sums have zero terms that an infinity turns into NaN.
  bool has_zeros() const { return has_padding(original_) || p_.groups != original_.groups; }

  // Of problem p, which is the original one as it is computed.
  Params make_params(const ConvProblem& p, const MatrixGrid& grid, const SideBySide& layout, const Operands<Device>& a,
                     Pointer packed) const {
    const std::int64_t below = -input_span(p, a.input).lo;
    return {a.input.data,
            a.weight.data,
            a.output.data,
            packed,
            a.input.data - static_cast<Pointer>(below) * size_bytes(p_.dtype),
            below,
            packed + grid_.blocks_bytes,
            pixel_strides(a.input),
            pixel_strides(a.output),
            weight_strides(a.weight),
            epilogue_params(p_, a),
            geometry_params(p),
            divisor(narrow(layout.pitch)),
            divisor(narrow(layout.pitch * p_.stride[2])),
            divisor(narrow(p.output[0])),
            divisor(narrow(grid.tiles_x)),
            divisor(narrow(grid.tiles_y)),
            divisor(narrow(grid_.tiles_o)),
            divisor(narrow(grid_.shares)),
            0,
            narrow(layout.slices),
            narrow(p_.in_channels_per_group()),
            narrow(p_.out_channels_per_group()),
            narrow(grid_.chunks),
            narrow(grid_.runs),
            narrow(grid_.share_stages),
            0,
            p_.output_elements()};
  }

  std::string shader(std::string_view name) const {
    return shader_name(name, p_.dtype) + (unit_.emulated ? "_emulated" : "");
  }
  std::uint32_t required_subgroup(Stream& stream) const {
    return !unit_.emulated && stream.traits().features.subgroup_size_control ? unit_.lanes : 0;
  }

  // Constants 0 to 9, those of the epilogue zero.
  std::vector<std::uint32_t> unit_constants(const MatrixLayout& layout) const {
    return {0, 0, 0, 0, 0, unit_.shape.m, unit_.shape.n, unit_.shape.k, unit_.lanes, layout.lane_octets};
  }
  MatrixLayout layout_of(Stream& stream) const {
    return unit_.emulated ? MatrixLayout{0, true} : matrix_layout(stream, unit_.shape);
  }

  Kernel kernel(Stream& stream, const Operands<Device>& a, const ConvProblem& p, const MatrixGrid& grid) const {
    const MatrixLayout layout = layout_of(stream);
    Kernel k{shader("direct_matrix"), unit_constants(layout), required_subgroup(stream)};
    std::ranges::copy(group_epilogue_constants(p, a), k.constants.begin());
    const MatrixTile& t = grid.tile;
    const std::uint32_t input_unit = taps_are_channels_ ? 1 : load_unit(a.input, p_.in_channels_per_group(), p_.dtype);
    // One emulated kernel serves every size; a GPU's knows its own.
    const bool rounds = rounds_first(layout, p, a, grid);
    const std::int64_t shared = unit_.emulated ? most_tile_octets(stream.traits()) : shared_octets(grid, unit_, rounds);
    const std::uint32_t loads = unit_.emulated ? 32 : narrow(grid.loads);
    for (const std::uint32_t v :
         {t.subgroups_m, t.subgroups_n, t.fragments_m, t.fragments_n, std::uint32_t{t.strip}, t.chunk_octets, loads,
          narrow(shared), input_unit, std::uint32_t{has_zeros()}, narrow(grid.block_steps)})
      k.constants.push_back(v);
    for (const Extent3& e : {p_.kernel, p_.stride, p_.dilation})
      for (int axis = 1; axis < 3; ++axis) {
        const bool given = unit_.emulated && !(taps_are_channels_ && axis == 2);
        k.constants.push_back(given ? 0 : narrow(e[axis]));
      }
    const Span span = input_span(rows_as_slices(original_), a.input);
    const std::int64_t last_depth = (p.output[0] - 1) * p.stride[0] - p.pad_lo[0];
    const bool depth_taps = p.pad_lo[0] > 0 || last_depth + (p.kernel[0] - 1) * p.dilation[0] >= p.input[0];
    const bool in_line = taps_are_channels_ && original_.dilation[2] == 1 &&
                         a.input.stride[3] == original_.in_channels &&
                         original_.input[2] * original_.in_channels < std::int64_t{1} << 30;
    const bool slices = p.batch * p.output[0] > 1;
    const bool whole_chunks = !taps_are_channels_ && p_.in_channels_per_group() % (t.chunk_octets * 8) == 0;
    for (const std::uint32_t v :
         {std::uint32_t{depth_taps}, std::uint32_t{(span.hi - span.lo) * std::int64_t(size_bytes(p_.dtype)) >> 32 != 0},
          std::uint32_t{p.output[0] > 1}, t.subgroups() * unit_.lanes, std::uint32_t{far_output(p, a)},
          std::uint32_t{stores_eights(p, a)}, body_steps(grid), std::uint32_t{grid.shares > 1},
          std::uint32_t{whole_chunks}, narrow(taps_are_channels_ ? original_.in_channels : 0),
          std::uint32_t{slices && grid.layout.straddled}, std::uint32_t{in_line}, std::uint32_t{grid.stages == 1},
          std::uint32_t{slices}, t.subgroups_k, std::uint32_t{stores_words(p, a, t)}, std::uint32_t{rounds}})
      k.constants.push_back(v);
    return k;
  }

  // Whether an epilogue that needs no neighbours runs where the sums are, in registers, so that halves pass through
  // shared memory in place of them. Long activations take too much code there.
  bool rounds_first(const MatrixLayout& layout, const ConvProblem& p, const Operands<Device>& a,
                    const MatrixGrid& grid) const {
    constexpr Activation short_ones[] = {Activation::identity, Activation::relu, Activation::relu6,
                                         Activation::leaky_relu, Activation::clip};
    return stores_eights(p, a) && !p.epilogue.addend && grid.shares == 1 && grid.tile.subgroups_k == 1 &&
           std::ranges::find(short_ones, p.epilogue.activation) != std::end(short_ones) && layout.sums_as_operands;
  }

  // Of the loop between two stages; 0: the body is the stage, and the next one's input comes while it runs.
  std::uint32_t body_steps(const MatrixGrid& grid) const {
    return !taps_are_channels_ && grid.body_steps == grid.stage_steps ? 0 : narrow(grid.body_steps);
  }

  ConvProblem original_, p_;  // p_ is what the matrices compute
  bool turned_ = false;       // in both rows are depths, and depths rows
  bool taps_are_channels_ = false;
  MatrixUnit unit_;
  MatrixGrid grid_;
  std::optional<MatrixGrid> row_grid_;
};

Support supports(const ConvProblem& p, const Context<Device>& c) {
  if (Support s = forward_support(p); !s) return s;
  if (Support s = matrix_support(p, c.traits); !s) return s;
  const auto unit = matrix_unit(c.traits, matrix_operand(p.dtype));
  constexpr std::int64_t limit = std::int64_t{1} << 30;
  const auto arrangement = arrange(p, *unit, c);
  if (!arrangement) return Support::no("the input of a tile does not fit shared memory");
  const MatrixGrid* const grid = &arrangement->grid;
  if (grid->groups >= limit || grid->packed_blocks >= limit) return Support::no("needs over 2^30 workgroups");
  if (unit->emulated)
    if (Support s = loop_support(emulated_iterations(p, *grid, *unit)); !s) return s;
  return workspace_support("packed weights and shares of sums", grid->workspace_bytes(), c);
}

double seconds(const ConvProblem& p, const Context<Device>& c) {
  const auto unit = matrix_unit(c.traits, matrix_operand(p.dtype));
  return arrange(p, *unit, c)->seconds() + launch_seconds(c, 2);
}

}  // namespace

const Algorithm<Device> kDirectMatrix{"direct_matrix", supports, seconds, make_plan<DirectMatrixPlan>};

}  // namespace vkconv::vulkan
