// The passes of a convolution whose border is not zeros, on any device, by problems whose padding is: the inner part
// on the input itself, the parts near the border on copies of the few positions they read.
#pragma once
#include <functional>

#include "core/backend.h"
#include "core/border.h"

namespace vkconv {

// Runs a problem in canonical form. `main`: it is the largest of the whole, which the caller's choice of algorithm is
// for.
using RunProblem = std::function<void(const ConvProblem& problem, bool main, const Execution& execution)>;

// `p` has no flip, no input dilation, and operands of one dtype.
void execute_bordered(Backend& backend, const ConvProblem& p, const Border& border, const Execution& execution,
                      const RunProblem& run);

// The largest of the problems it runs.
ConvProblem main_problem(const ConvProblem& p);

}  // namespace vkconv
