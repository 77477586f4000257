#include "algorithms/implicit_gemm/narrow.h"

#include <algorithm>

#include "core/checked.h"

namespace vkconv::cpu {
namespace {

constexpr std::int64_t kStripPixels = 1024, kFewestPixels = 64, kTasksAThread = 8, kL2Part = 4;
constexpr double kMinTaskBytes = 256 << 10, kMinTaskFlops = 2e6;

// Of an output's sums: adding them across lanes.
constexpr double kOperationsASum = 3.5;
// Time that an output takes more when no neighbour meets the same taps: its sums wait for themselves.
constexpr double kExtraAlone = 2;

}  // namespace

double narrow_vector_operations(const ConvProblem& p, std::int64_t lanes) {
  const std::int64_t in = p.in_channels_per_group(), out = p.out_channels_per_group();
  const bool taps_in_runs = p.dilation[2] == 1 && p.groups == 1;
  const std::int64_t run = taps_in_runs ? p.kernel[2] * in : in, runs = p.taps() * in / run;
  const double alone = 1 - static_cast<double>(whole_outputs(p, 2).size()) / static_cast<double>(p.output[2]);
  const double operations = static_cast<double>(runs * ceil_div(run, lanes)) + kOperationsASum;
  return static_cast<double>(out) * operations * (1 + kExtraAlone * alone);
}

NarrowLayout narrow_layout(const ConvProblem& problem, const Context<Device>& context, std::int64_t lanes) {
  NarrowLayout s;
  s.original = problem;
  if (const auto row = one_row(problem))
    s.one_row = std::make_shared<NarrowLayout>(narrow_layout(*row, context, lanes));
  s.orientation = long_rows(problem, 16);
  s.p = s.orientation.apply(problem);
  const ConvProblem& p = s.p;
  s.lanes = lanes;
  s.terms = p.taps() * p.in_channels_per_group();
  const Range whole = whole_outputs(p, 2);
  for (std::int64_t w = 0; w < p.output[2]; w = s.spans.back().outputs.end) {
    const Range taps = taps_inside(p, 2, w);
    if (w == 0 || taps.begin != s.spans.back().taps.begin || taps.end != s.spans.back().taps.end)
      s.spans.push_back({{w, w}, taps});
    s.spans.back().outputs.end = whole.contains(w) ? whole.end : w + 1;
  }
  s.rows = p.batch * p.output[0] * p.output[1];
  // A vector behind the last term may be read, and is not used.
  const std::int64_t elements = checked_add(checked_mul(p.out_channels, s.terms), lanes);
  s.packed_bytes = aligned_bytes(checked_mul(elements, accumulator_bytes(p.dtype)));

  const std::int64_t column_bytes =
      p.kernel[0] * p.kernel[1] * p.stride[2] * p.in_channels * static_cast<std::int64_t>(size_bytes(p.dtype));
  const std::int64_t in_l2 = static_cast<std::int64_t>(context.traits.l2_bytes) / kL2Part / column_bytes;
  s.strip = std::min(p.output[2], std::clamp(in_l2, kFewestPixels, kStripPixels));
  s.strip = ceil_div(p.output[2], s.strips());
  const double all = static_cast<double>(s.rows);
  const double worth = std::max(p.flops() / kMinTaskFlops, p.bytes_moved() / kMinTaskBytes);  // tasks
  const double wanted = std::min(worth, static_cast<double>(kTasksAThread * context.traits.threads));
  const double chunks = std::max(1.0, wanted / static_cast<double>(s.strips()));
  s.chunk_rows = std::clamp<std::int64_t>(static_cast<std::int64_t>(all / chunks), 1, s.rows);
  return s;
}

}  // namespace vkconv::cpu
