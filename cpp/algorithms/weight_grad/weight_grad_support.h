// What every algorithm for weight gradients wants.
#pragma once
#include "core/algorithm.h"

namespace vkconv {

// Yes for a weight gradient with something to sum. Operands may trade places, so none is empty.
inline Support weight_grad_support(const ConvProblem& p) {
  if (p.pass != Pass::weight_grad) return Support::no("it computes the weight gradient only");
  if (p.weight_elements() == 0 || p.output_elements() == 0 || p.input_elements() == 0)
    return Support::no("there is nothing to sum");
  return Support::yes();
}

}  // namespace vkconv
