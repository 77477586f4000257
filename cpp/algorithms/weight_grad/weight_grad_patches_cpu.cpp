#include "algorithms/weight_grad/weight_grad_patches.h"

#include <algorithm>
#include <limits>

#include "algorithms/weight_grad/weight_grad_partition.h"

namespace vkconv::cpu::weight_grad {
namespace {

// What an output pixel takes of each form, in multiply-adds of vectors: fitted to layers of 1 to 48 channels and 3x3 to
// 11x11 taps, two cores of a Zen 4.

constexpr double kNever = std::numeric_limits<double>::infinity();

// So many cycles as multiply-adds: of vectors of 64 bytes one a cycle, of shorter ones two.
double cycles(double count, const ConvProblem& p, std::int64_t lanes) {
  return lanes * accumulator_bytes(p.dtype) < 64 ? 2 * count : count;
}

double vectors_of(std::int64_t channels, std::int64_t lanes) { return static_cast<double>(ceil_div(channels, lanes)); }

// Products of all taps with the output channels along vectors, or with the input channels.
double out_products(const ConvProblem& p, std::int64_t lanes) {
  const double terms = static_cast<double>(p.taps() * p.in_channels_per_group());
  return terms * vectors_of(p.out_channels_per_group(), lanes);
}
double in_products(const ConvProblem& p, std::int64_t lanes) {
  const double terms = static_cast<double>(p.taps() * p.out_channels_per_group());
  return terms * vectors_of(p.in_channels_per_group(), lanes);
}

// Cycles of the copy of a pixel whose channels do not fill a vector.
double copy_cycles(std::int64_t channels, std::int64_t lanes) { return channels < lanes ? 20 : 0; }

// Tap by tap, in tiles of no more rows than the other operand has channels.
double taps_cost(const ConvProblem& p, std::int64_t lanes) {
  const auto cost = [&](double products, std::int64_t rows, std::int64_t channels) {
    const double copies = double(p.kernel[0] * p.kernel[1]) * copy_cycles(channels, lanes);
    return products * (1.05 + cycles(0.85, p, lanes) / double(rows)) + cycles(double(p.taps()) + copies, p, lanes);
  };
  const std::int64_t in = p.in_channels_per_group(), out = p.out_channels_per_group();
  return std::min(cost(out_products(p, lanes), in, out), cost(in_products(p, lanes), out, in));
}

// Kernel row by kernel row.
double by_row_cost(const ConvProblem& p, std::int64_t lanes) {
  if (p.dilation[2] > 1 || p.kernel[2] == 1) return kNever;
  const double rest = 3 * double(p.kernel[0] * p.kernel[1]) + copy_cycles(p.out_channels_per_group(), lanes);
  return 1.2 * out_products(p, lanes) + cycles(rest, p, lanes);
}

// By composed patches, whose copies are the smaller part.
double composed_cost(const ConvProblem& p, std::int64_t lanes) {
  constexpr std::int64_t kMostElements = 256;
  const std::int64_t elements = p.taps() * p.in_channels_per_group();
  if (elements > kMostElements) return kNever;
  const double products = composed_along_vectors(p, lanes)
                              ? vectors_of(elements, lanes) * double(p.out_channels_per_group())
                              : out_products(p, lanes);
  const std::int64_t run = patch_run(p), vector = patch_vector(p, lanes);
  const double copies = double(elements / run * ceil_div(run, vector));
  const double outputs = size_bytes(p.dtype) == 2 ? 12 : 0;  // widened
  return 1.1 * products + cycles((vector > 8 ? 4 : 3) * copies + outputs + 8, p, lanes);
}

// By vectors of several pixels or groups.
double groups_cost(const ConvProblem& p, std::int64_t lanes) {
  const std::int64_t rows = std::min(p.in_channels_per_group(), p.out_channels_per_group());
  return cycles(8, p, lanes) + double(p.taps() * (rows + 3)) / double(pixels_in_vector(p, lanes));
}

}  // namespace

Posed by_patches(const ConvProblem& p, std::int64_t lanes) {
  const bool fit_vector = groups_fit_vector(p, lanes);
  if (fills_lanes(p, lanes) || (p.groups > 1 && fit_vector)) return {p, p};
  const double without = fit_vector ? groups_cost(p, lanes) : taps_cost(p, lanes);
  const double by_row = by_row_cost(p, lanes), composed = composed_cost(p, lanes);
  if (p.taps() == 1 || p.input_dilated() || std::min(by_row, composed) >= without)
    return {p, p, PatchForm::none, without};
  if (composed < 0.9 * by_row) return {patches_of(p), p, PatchForm::composed, composed};
  return {patches_of(p), p, PatchForm::by_row, by_row};
}

}  // namespace vkconv::cpu::weight_grad
