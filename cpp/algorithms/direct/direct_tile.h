// How `direct` is cut into workgroups, as a pure function of the problem and the described device.
#pragma once
#include <optional>

#include "vulkan/input_tile.h"
#include "vulkan/traits.h"

namespace vkconv::vulkan {

struct DirectTile {
  Tile4 outputs{1, 1, 1, 1};                // pixels
  std::uint32_t n = 0;                      // output channels
  std::uint32_t reg_m = 0, reg_n = 0;       // pixels and channels of an invocation
  std::uint32_t group_size = 0, quads = 0;  // invocations; fours of input channels in shared memory
  std::uint32_t input_pixels = 0;
  std::uint32_t input_room = 0;  // pixels that shared memory is laid out for; 0: as many as there are

  std::uint32_t threads_m() const { return group_size / (n / reg_n); }
  std::uint32_t room() const { return input_room > 0 ? input_room : input_pixels; }
  std::uint32_t rows() const { return threads_m() * reg_m; }
  // Fours of the input tile, which the sums of at least one pixel of each invocation pass through at the end.
  std::uint32_t input_fours() const;
  std::size_t shared_bytes(DType t) const;
};

// Nothing when not even the input under one row of outputs fits the device's shared memory.
std::optional<DirectTile> choose_direct_tile(const ConvProblem& p, const Traits& traits);

// A problem under one tile. Long sums, and those of too few workgroups to fill a GPU, are cut into parts of some
// chunks.
struct DirectGrid {
  std::int64_t parts = 1, part_chunks = 0, workgroups = 0;
  double multiply_adds = 0;  // that would take the same time if every processor had work
};
DirectGrid direct_grid(const ConvProblem& p, const DirectTile& t, const Traits& traits);

}  // namespace vkconv::vulkan
