// subgroup_gemm: the forward pass as a matrix product for devices that run on a CPU. They execute a subgroup as one
// vector and compute its lanes at once, but load lane by lane, shared memory too: tiles in shared memory, which make
// GPUs fast, make them slow. Here a subgroup computes pixels by output channels, each lane loads values no other lane
// loads, and inputs reach the other lanes by shuffles. Any rank, kernel, stride, dilation, padding and grouping.
// Source: the register blocking of Volkov & Demmel, "Benchmarking GPUs to tune dense linear algebra" (2008), with a
// subgroup's registers in the place of shared memory.
#include <algorithm>
#include <cmath>

#include "algorithms/registry_vulkan.h"
#include "core/checked.h"
#include "vulkan/kernel_params.h"
#include "vulkan/pack_panels.h"

namespace vkconv::vulkan {
namespace {

constexpr double kEfficiency = 1.05;  // of the device's multiply-add rate
constexpr double kOutputFlops = 250;  // that take the time of storing an output

struct Params {
  Pointer input, panels, output;
  Strides4 input_stride, output_stride;
  EpilogueParams epilogue;
  GeometryParams geometry;
  std::uint32_t pixels, tiles_n, chunks, chunk_quads, groups;
};

// Fours of input channels of a chunk. A chunk and a row of the kernel make a block of terms whose sum joins the total.
std::int64_t chunk_quads(const ConvProblem& p) {
  const std::int64_t quads = ceil_div(p.in_channels_per_group(), 4);
  const double block = block_length(p.taps() * quads * 4);
  const std::int64_t most =
      std::clamp(std::llround(block / 4 / double(p.kernel[2])), 1LL, static_cast<long long>(quads));
  return even_part(quads, most);
}

struct Layout {
  Layout(const ConvProblem& p, const Traits& traits, std::uint32_t pixel_loads, std::uint32_t most_columns)
      : lanes(traits.limits.subgroup_size),
        loads(pixel_loads),
        columns(p.out_channels_per_group() <= 2 * lanes ? 2 : most_columns),
        panels(p, std::int64_t{lanes} * columns, 4 * chunk_quads(p)),
        tiles(ceil_div(p.batch * p.output_pixels(), std::int64_t{lanes} * loads)),
        workgroups(checked_mul(checked_mul(tiles, panels.count), p.groups)) {}

  std::uint32_t lanes, loads, columns;  // pixels a lane loads, output channels a lane
  Panels panels;
  std::int64_t tiles, workgroups;
};

// Of all loops of an invocation: fours of channels of every tap, with the last test of each loop, and its outputs by
// the definition, kTogether channels at a time.
std::int64_t loop_iterations(const ConvProblem& p, const Layout& l) {
  constexpr std::int64_t together = 8;
  const std::int64_t outputs = has_padding(p) ? std::int64_t{l.lanes} * l.loads * l.columns : 0;
  return checked_add(checked_mul(l.panels.chunks * p.taps(), l.panels.chunk_channels / 4 + 3),
                     definition_iterations(p, outputs, together));
}

// As few pixels as there are iterations for all outputs of an invocation by the definition.
Layout choose_layout(const ConvProblem& p, const Traits& traits) {
  if (wants_small_tile(p, traits)) return {p, traits, 1, 2};
  std::uint32_t loads = 4;
  while (loads > 1 && loop_iterations(p, {p, traits, loads, 4}) > kSoftwareLoopIterations) loads /= 2;
  return {p, traits, loads, 4};
}

double estimate(const ConvProblem& p, const Traits& traits, const Layout& l) {
  const double outputs = double(l.workgroups) * l.lanes * l.loads * l.lanes * l.columns;
  const double flops =
      outputs * (2 * double(p.taps()) * double(l.panels.chunks * l.panels.chunk_channels) + kOutputFlops);
  return flops / (flops_per_second(traits, p.dtype) * kEfficiency) +
         2 * double(l.panels.bytes(p)) / traits.rates.memory_bytes_per_second;
}

class SubgroupGemmPlan final : public Plan<Device> {
 public:
  SubgroupGemmPlan(const ConvProblem& p, const Context<Device>& c)
      : p_(p), layout_(choose_layout(p, c.traits)), seconds_(estimate(p, c.traits, layout_)) {}

  std::string describe() const override { return "subgroup_gemm"; }
  std::size_t workspace_bytes() const override { return layout_.panels.bytes(p_); }
  std::size_t prepared_workspace_bytes() const override { return 0; }
  std::string weight_layout() const override { return "panels of " + std::to_string(layout_.panels.width); }

  std::size_t prepared_bytes() const override { return layout_.panels.bytes(p_); }
  PreparedWeights<Device> prepare_in(Pointer to, Stream& stream, const WeightView<Pointer>& weight) const override {
    pack_panels(stream, p_, layout_.panels, weight, to);
    return {to};
  }

  void execute(Stream& stream, const Operands<Device>& a, Pointer workspace) const override {
    run(stream, a, packed_panels(stream, p_, layout_.panels, a, workspace));
  }

 private:
  void run(Stream& stream, const Operands<Device>& a, Pointer panels) const {
    const Params params{a.input.data,
                        panels,
                        a.output.data,
                        pixel_strides(a.input),
                        pixel_strides(a.output),
                        epilogue_params(p_, a),
                        geometry_params(p_),
                        narrow(p_.batch * p_.output_pixels()),
                        narrow(layout_.panels.count),
                        narrow(layout_.panels.chunks),
                        narrow(layout_.panels.chunk_channels / 4),
                        narrow(layout_.workgroups)};
    Kernel k{shader_name("subgroup_gemm", p_.dtype), epilogue_constants(p_, a), layout_.lanes};
    k.constants[4] = 1;  // outputs are stored one by one
    const bool fours = aligned_to(4, a.input, p_.in_channels_per_group(), p_.dtype);
    const bool zeros = p_.input_dilated();
    k.constants.insert(k.constants.end(), {layout_.lanes, layout_.lanes * layout_.loads, layout_.columns,
                                           std::uint32_t{fours}, std::uint32_t{has_padding(p_)}, std::uint32_t{zeros}});
    stream.dispatch(k, params, stream.linear_groups(layout_.workgroups), seconds_);
  }

  ConvProblem p_;
  Layout layout_;
  double seconds_;
};

Support supports(const ConvProblem& p, const Context<Device>& c) {
  if (Support s = forward_support(p); !s) return s;
  if (c.traits.type != DeviceType::software) return Support::no("made for devices that run on a CPU");
  if (!c.traits.features.subgroup_shuffle) return Support::no("the driver lacks shuffles in subgroups");
  if (Support s = kernel_support(p, c.traits); !s) return s;
  if (Support s = pixels_support(p); !s) return s;
  const Layout layout = choose_layout(p, c.traits);
  if (!supports_panels(p, layout.panels)) return Support::no("the packed weights exceed 2^32 elements");
  if (Support s = loop_support(loop_iterations(p, layout)); !s) return s;
  if (Support s = workgroup_support(layout.workgroups); !s) return s;
  return workspace_support("packed weights", layout.panels.bytes(p), c);
}

double seconds(const ConvProblem& p, const Context<Device>& c) {
  return 2 * c.traits.rates.launch_seconds + estimate(p, c.traits, choose_layout(p, c.traits));
}

}  // namespace

const Algorithm<Device> kSubgroupGemm{"subgroup_gemm", supports, seconds, make_plan<SubgroupGemmPlan>};

}  // namespace vkconv::vulkan
