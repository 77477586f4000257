// How a weight gradient is cut: chunks of pixels (see weight_grad.h), units of the weight, and tasks.
#pragma once
#include "algorithms/weight_grad/weight_grad.h"

namespace vkconv::cpu::weight_grad {

struct Partition {
  Shape shape;
  std::int64_t tap_parts = 1, row_parts = 1, vector_parts = 1;
  bool by_chunk = false;  // a task is one chunk of one unit; else a task runs all chunks of a unit
  std::int64_t tasks = 1;
  bool from_memory = false;       // the operands
  int slots = 1;                  // of scratch
  std::size_t scratch_bytes = 0;  // of a slot
  std::size_t sums_bytes = 0;     // of the largest unit

  std::int64_t units() const { return shape.groups * tap_parts * row_parts * vector_parts; }
  std::size_t partial_bytes() const {
    return by_chunk ? static_cast<std::size_t>(shape.chunks * units()) * sums_bytes : 0;
  }
  // A slot holds a part sum, a chunk's sum, the total and the kernel's scratch.
  std::size_t slot_bytes() const { return 3 * sums_bytes + scratch_bytes; }
  std::size_t workspace_bytes() const { return partial_bytes() + static_cast<std::size_t>(slots) * slot_bytes(); }
};

// Neighbouring pixels whose channels, those of all groups, fill a vector together.
std::int64_t pixels_in_vector(const ConvProblem& p, std::int64_t lanes);
// Whether the elements of a composed patch lie along a vector, or the output channels.
bool composed_along_vectors(const ConvProblem& p, std::int64_t lanes);
// The problem by patches where that takes less time.
Posed by_patches(const ConvProblem& p, std::int64_t lanes);
Shape choose_shape(const Posed& posed, std::int64_t lanes);
// Whether lanes of a vector are depthwise channels: Form::lanes.
bool fills_lanes(const ConvProblem& p, std::int64_t lanes);
// Whether a vector holds the channels of one group or more, of one pixel or more: Form::groups.
bool groups_fit_vector(const ConvProblem& p, std::int64_t lanes);
Partition choose_partition(const Posed& posed, const Device::Traits& traits, std::size_t workspace_limit_bytes);
Unit unit_at(const ConvProblem& p, const Partition& partition, std::int64_t index);

}  // namespace vkconv::cpu::weight_grad
