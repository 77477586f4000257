#include "algorithms/implicit_gemm/grouped.h"

#include <algorithm>

#include "cpu/staging.h"
#include "cpu/streaming.h"

namespace vkconv::cpu {

GroupedLayout grouped_layout(const ConvProblem& problem, const Context<Device>& context, std::int64_t lanes) {
  constexpr double kMinTaskFlops = 2e5;
  GroupedLayout s;
  s.orientation = long_rows(problem, kGroupedPixels / 2);
  s.p = s.orientation.apply(problem);
  s.lanes = lanes;
  s.outputs = std::min(outputs_in_vector(s.p, lanes), s.p.out_channels);
  s.vectors = ceil_div(s.p.out_channels, s.outputs);
  s.rows = s.p.batch * s.p.output[0] * s.p.output[1];
  s.copied = size_bytes(s.p.dtype) == 2 || s.p.in_channels < lanes;
  s.fetched = !s.copied && s.p.kernel[0] == 1 && comes_from_memory(context.traits, s.p);
  const std::int64_t element = accumulator_bytes(s.p.dtype);
  const std::int64_t terms_and_mark = checked_add(checked_mul(lanes, s.terms()), 1);
  s.packed_bytes = aligned_bytes(checked_mul(s.vectors * element, terms_and_mark));
  s.slots = context.traits.threads;
  const double row_flops = 2.0 * static_cast<double>(s.p.output[2] * s.vectors * s.terms() * lanes);
  // Tasks that copy their input rows share fewer of them when they are larger.
  const std::int64_t tasks_a_thread = s.copied ? 2 : 8;
  const auto worth = static_cast<std::int64_t>(std::min(1e9, kMinTaskFlops / row_flops)) + 1;
  const std::int64_t wanted_rows = std::max(worth, ceil_div(s.rows, tasks_a_thread * s.slots));
  s.chunk_rows = std::clamp<std::int64_t>(round_up(wanted_rows, 2), 1, s.rows);  // rows go in pairs
  const auto vector_bytes = aligned_bytes(lanes * element);                      // the last pixel's reaches so far
  const auto stage = [&] {
    if (s.copied) s.stage_bytes = copy_bytes(s.p, s.chunk_rows, s.p.output[2], s.p.in_channels) + vector_bytes;
  };
  stage();
  while (s.workspace_bytes() > context.workspace_limit_bytes && s.slots > 1) --s.slots;
  for (; s.workspace_bytes() > context.workspace_limit_bytes && s.chunk_rows > 1; stage()) s.chunk_rows /= 2;
  return s;
}

}  // namespace vkconv::cpu
