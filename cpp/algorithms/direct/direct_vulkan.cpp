// direct: a workgroup keeps the input under a tile of outputs, with its halo, in shared memory a few channels at a
// time, and every tap reads it there: each input is loaded once a tile instead of once a tap. One index map serves
// every rank, stride, dilation and image size; small images share a tile. Weights are packed in the order they are
// used. It wins on dense convolutions with more than one tap where the device has no matrices for their type, and
// winograd does not apply or channels are few. Long sums, and those of too few tiles to fill a GPU, are cut into parts
// over the channels whose sums are added in order. Source: Zhang et al., "High performance zero-memory overhead direct
// convolutions" (2018), with the register blocking of Volkov & Demmel, "Benchmarking GPUs to tune dense linear algebra"
// (2008).
#include <algorithm>
#include <cmath>

#include "algorithms/direct/direct_tile.h"
#include "algorithms/registry_vulkan.h"
#include "core/checked.h"
#include "core/planner.h"
#include "vulkan/kernel_params.h"
#include "vulkan/pack_panels.h"

namespace vkconv::vulkan {
namespace {

constexpr std::uint32_t kLinearGroupSize = 64;
// Of the multiply-add rate, for the cost of direct_grid. A software device loads shared memory lane by lane.
constexpr double kGpuEfficiency = 0.86, kSoftwareEfficiency = 0.5;

struct Params {
  Pointer input, output, panels, workspace;
  Strides4 input_stride, output_stride;
  EpilogueParams epilogue;
  GeometryParams geometry;
  TileParams tile;
  std::uint32_t tiles_n, chunks, parts, part_chunks, block_steps, groups;
};

struct Layout {
  Layout(const ConvProblem& p, const Traits& traits, const DirectTile& t)
      : tile(t), grid(direct_grid(p, t, traits)), panels(p, t.n, std::int64_t{4} * t.quads) {
    steps = p.taps() * grid.part_chunks;
    const double block_terms = block_length(steps * panels.chunk_channels);
    block = std::max<std::int64_t>(1, std::llround(block_terms / double(panels.chunk_channels)));
    if (grid.parts > 1)
      parts_bytes =
          static_cast<std::size_t>(checked_mul(p.output_elements(), grid.parts)) * size_bytes(accumulator(p.dtype));
  }

  // Packed weights first, then the sums of the parts.
  std::size_t panel_bytes(const ConvProblem& p) const {
    return aligned_bytes(static_cast<std::int64_t>(panels.bytes(p)));
  }

  DirectTile tile;
  DirectGrid grid;
  Panels panels;
  std::int64_t steps = 0, block = 0;  // of chunk_channels terms: of a part, and those whose sum joins the total
  std::size_t parts_bytes = 0;
};

// Nothing when no tile's input fits shared memory. Problems that differ in what it ignores share it.
std::optional<Layout> layout_of(ConvProblem p, const Context<Device>& c) {
  p.output_dtype = p.dtype;
  p.pad_lo = {};
  p.epilogue = {};
  return c.planner.remembered({p, "direct", 0}, [&]() -> std::optional<Layout> {
    const auto tile = choose_direct_tile(p, c.traits);
    return tile ? std::optional<Layout>(std::in_place, p, c.traits, *tile) : std::nullopt;
  });
}

double estimate(const ConvProblem& p, const Traits& traits, const Layout& l) {
  const double efficiency = traits.type == DeviceType::software ? kSoftwareEfficiency : kGpuEfficiency;
  const double bytes = p.bytes_moved() + 2 * double(l.parts_bytes);
  return 2 * l.grid.multiply_adds / (flops_per_second(traits, p.dtype) * efficiency) +
         bytes / traits.rates.memory_bytes_per_second;
}

class DirectPlan final : public Plan<Device> {
 public:
  DirectPlan(const ConvProblem& p, const Context<Device>& c)
      : p_(p), layout_(*layout_of(p, c)), seconds_(estimate(p, c.traits, layout_)) {}

  std::string describe() const override {
    return layout_.grid.parts > 1 ? "direct(" + std::to_string(layout_.grid.parts) + " parts)" : "direct";
  }
  std::size_t workspace_bytes() const override { return layout_.panel_bytes(p_) + layout_.parts_bytes; }
  std::size_t prepared_workspace_bytes() const override { return layout_.parts_bytes == 0 ? 0 : workspace_bytes(); }
  std::string weight_layout() const override {
    return "panels of " + std::to_string(layout_.panels.width) + ", chunks of " +
           std::to_string(layout_.panels.chunk_channels);
  }

  std::size_t prepared_bytes() const override { return layout_.panel_bytes(p_); }
  PreparedWeights<Device> prepare_in(Pointer to, Stream& stream, const WeightView<Pointer>& weight) const override {
    pack_panels(stream, p_, layout_.panels, weight, to);
    return {to};
  }

  void execute(Stream& stream, const Operands<Device>& a, Pointer workspace) const override {
    const Pointer panels = packed_panels(stream, p_, layout_.panels, a, workspace);
    run(stream, a, panels, workspace + layout_.panel_bytes(p_));
  }

 private:
  void run(Stream& stream, const Operands<Device>& a, Pointer panels, Pointer sums) const {
    const Params params{a.input.data,
                        a.output.data,
                        panels,
                        sums,
                        pixel_strides(a.input),
                        pixel_strides(a.output),
                        epilogue_params(p_, a),
                        geometry_params(p_),
                        tile_params(p_, layout_.tile.outputs),
                        narrow(layout_.panels.count),
                        narrow(layout_.panels.chunks),
                        narrow(layout_.grid.parts),
                        narrow(layout_.grid.part_chunks),
                        narrow(layout_.block),
                        narrow(layout_.grid.workgroups)};
    stream.dispatch(kernel(a), params, stream.linear_groups(layout_.grid.workgroups), seconds_);
    if (layout_.grid.parts == 1) return;
    Kernel sum{shader_name("direct_parts", p_.dtype), epilogue_constants(p_, a)};
    sum.constants.push_back(kLinearGroupSize);
    stream.dispatch(sum, params, stream.linear_groups(ceil_div(p_.output_elements(), kLinearGroupSize)));
  }

  Kernel kernel(const Operands<Device>& a) const {
    Kernel k{shader_name("direct", p_.dtype), group_epilogue_constants(p_, a)};
    const DirectTile& t = layout_.tile;
    const bool input_fours = aligned_to(4, a.input, p_.in_channels_per_group(), p_.dtype);
    for (const std::uint32_t v :
         {t.group_size, t.n, t.reg_m, t.reg_n, t.quads, t.room(), t.input_fours(), std::uint32_t{input_fours},
          std::uint32_t{has_padding(p_)}, std::uint32_t{layout_.steps > layout_.block},
          std::uint32_t{layout_.grid.parts > 1}, std::uint32_t{t.room() * t.quads <= 4 * t.group_size}})
      k.constants.push_back(v);
    return k;
  }

  ConvProblem p_;
  Layout layout_;
  double seconds_;
};

Support supports(const ConvProblem& p, const Context<Device>& c) {
  if (Support s = forward_support(p); !s) return s;
  if (p.input_dilated()) return Support::no("inserted zeros would fill its input tile");
  if (Support s = kernel_support(p, c.traits); !s) return s;
  const auto layout = layout_of(p, c);
  if (!layout) return Support::no("the input under one output does not fit shared memory");
  if (!supports_panels(p, layout->panels)) return Support::no("the packed weights exceed 2^32 elements");
  if (Support s = workgroup_support(layout->grid.workgroups); !s) return s;
  return workspace_support("packed weights and partial sums", layout->panel_bytes(p) + layout->parts_bytes, c);
}

double seconds(const ConvProblem& p, const Context<Device>& c) {
  const Layout layout = *layout_of(p, c);
  const double launches = layout.grid.parts > 1 ? 3 * c.traits.rates.launch_seconds : launch_seconds(c, 2);
  return launches + estimate(p, c.traits, layout);
}

}  // namespace

const Algorithm<Device> kDirect{"direct", supports, seconds, make_plan<DirectPlan>};

}  // namespace vkconv::vulkan
