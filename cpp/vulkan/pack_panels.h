// Weights in panels of output channels, in the order a tiled kernel reads them: (group, panel, chunk of input channels,
// tap, input channel of the chunk, output channel of the panel), in the accumulator type, zeros where there is none.
#pragma once
#include "core/algorithm.h"
#include "core/problem.h"
#include "core/view.h"
#include "vulkan/device.h"

namespace vkconv::vulkan {

struct Panels {
  std::int64_t width = 0, chunk_channels = 0;  // output channels, a multiple of four; input channels
  std::int64_t count = 0, chunks = 0;          // of a group

  Panels(const ConvProblem& p, std::int64_t panel_width, std::int64_t channels_of_chunk);
  std::int64_t elements(const ConvProblem& p) const;
  std::size_t bytes(const ConvProblem& p) const;
};

// Panels that pack_panels can write.
bool supports_panels(const ConvProblem& p, const Panels& panels);
void pack_panels(Stream& stream, const ConvProblem& p, const Panels& panels, const WeightView<Pointer>& weight,
                 Pointer target);
// The panels of an execution: prepared ones, or its own in `workspace`.
Pointer packed_panels(Stream& stream, const ConvProblem& p, const Panels& panels, const Operands<Device>& operands,
                      Pointer workspace);

}  // namespace vkconv::vulkan
