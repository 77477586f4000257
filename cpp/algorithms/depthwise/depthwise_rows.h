// The depthwise kernel that walks down the rows with the whole kernel in registers (depthwise_rows.comp).
#pragma once
#include <array>

#include "core/algorithm.h"
#include "vulkan/kernel_params.h"

namespace vkconv::vulkan {

class DepthwiseRows {
 public:
  // Whether the problem has a form it computes.
  static bool supports(const ConvProblem& p);
  // Whether neighbouring outputs share columns; long kernels leave no room for more than two of them.
  static bool shares_columns(const ConvProblem& p);

  DepthwiseRows(const ConvProblem& p, const Traits& traits);

  // Records the problem, with the longest vectors to which its operands are aligned.
  void run(Stream& stream, const Operands<Device>& a, const WeightView<Pointer>& weight, double seconds) const;

  struct Shape {
    std::int64_t vector = 0, words = 0;    // of an invocation: output channels, and the 32-bit words of their inputs
    std::int64_t columns = 0, rows = 0;    // outputs of a row, and how many rows it walks down
    std::int64_t ahead = 0;                // input rows on their way
    std::int64_t vectors = 0, strips = 0;  // of a workgroup
  };

 private:
  ConvProblem p_;
  std::array<Shape, 3> shapes_;  // of operands aligned to 4, 2 and 1 channels; none where `vector` is 0
};

}  // namespace vkconv::vulkan
