// What the dense kernel of implicit_gemm takes.
#include <algorithm>

#include "algorithms/implicit_gemm/dense.h"
#include "cpu/bf16_parts.h"
#include "cpu/estimates.h"
#include "cpu/streaming.h"

namespace vkconv::cpu {
namespace {

// Shares of the peak rate, measured: two vectors of columns and one; a tile of few rows waits for its own sums.
constexpr double kWideShare = 0.85, kNarrowShare = 0.72, kRowsForPeak = 5;

// Flops of whole numbers. The rate of parts is that of operands from beyond L1, as layers of one tap have them; taps
// that share pixels find them there.
double peak_rate(const DenseLayout& s, const Traits& t) {
  constexpr double kTapsShare = 1.2;
  if (s.unit == Bf16Unit::none) return flops_per_second(t, accumulator(s.p.dtype));
  if (s.parts == 1) return flops_per_second(t, s.unit);
  const double of_three = (s.p.taps() > 1 ? kTapsShare : 1) * t.f32_parts_flops_per_second / kWideShare;
  return of_three * part_products(3) / part_products(s.parts);
}

// Weights are packed once, by a thread a panel, or by every task that uses them.
double dense_packing_seconds(const DenseLayout& s, const Traits& t) {
  const std::int64_t weights = s.p.weight_elements();
  const double once = packing_seconds(t, weights, s.shared_weights);
  if (!s.shared_weights) return once * static_cast<double>(s.chunks()) * uneven_share(t, s.chunks() * s.panel_chunks());
  return launch_seconds(t, s.all_panels()) + once * uneven_share(t, s.all_panels()) + handing_over_seconds(t, weights);
}

// The first task to copy an input row finds it beyond L2. Pixels that zeros follow are copied one by one, as are those
// whose values are split.
double copying_seconds(const DenseLayout& s, const Traits& t) {
  constexpr double kPixelSeconds = 1e-9, kLargePixelSeconds = 3e-9, kSplitSeconds = 0.15e-9;
  constexpr std::int64_t kWords = 8;  // channels of a pixel that goes by words
  if (!s.copied) return 0;
  const double copied = static_cast<double>(s.chunks() * s.panel_chunks()) * static_cast<double>(s.stage_bytes);
  const double input_bytes = static_cast<double>(s.p.input_elements()) * static_cast<double>(size_bytes(s.p.dtype));
  const double far = std::min(copied, input_bytes);
  const std::size_t element = size_bytes(s.parts > 1 ? DType::bf16 : s.p.dtype);
  const double pixels = copied / static_cast<double>(s.in * static_cast<std::int64_t>(element));
  const double split = s.parts > 1 ? kSplitSeconds * static_cast<double>(s.in / s.parts) : 0;
  const double one_by_one = s.in == s.p.in_channels_per_group() ? 0
                            : s.in <= kWords                    ? kPixelSeconds
                                                                : kLargePixelSeconds + split;
  return far / t.shared_cache_bytes_per_second + (2 * copied - far) / t.cache_bytes_per_second +
         pixels * one_by_one / t.threads;
}

// Panels that L1 does not hold come out of L2 for every few tiles that meet them together, into matrix registers faster
// than a copy would; those of parts, longer, out of L3 where L2 does not hold them.
double panel_seconds(const DenseLayout& s, const Traits& t) {
  constexpr double kTileShare = 2;
  if (s.panel_bytes <= t.l1_bytes) return 0;
  const std::int64_t meetings = s.rows * ceil_div(s.row_tiles, s.tiles_together(s.most_together));
  const double bytes = static_cast<double>(meetings) * static_cast<double>(s.packed_bytes());
  const double shared = t.shared_cache_read_bytes_per_second;
  const bool far = s.parts > 1 && 2 * s.panel_bytes > t.l2_bytes, whole = s.unit == Bf16Unit::tiles && s.parts == 1;
  return bytes / (kWideShare * (far ? shared : (whole ? kTileShare : 1) * t.cache_bytes_per_second));
}

// Beside the products of all threads: finding, calling and storing the tiles of a row, and the taps of a row and of a
// tile that are no run of memory; tiles at the ends of a row, whose taps on padding are left out, so that sums of one
// row wait for themselves. Pixels that outgrow L2 before the next group writes its part come back for it.
double other_seconds(const DenseLayout& s, const Traits& t, double inside) {
  constexpr double kRowSeconds = 50e-9, kRowTapSeconds = 4e-9, kTileTapSeconds = 3e-9, kEndSeconds = 550e-9,
                   kEndTermSeconds = 1.65e-9, kPartSeconds = 7e-9;
  const ConvProblem& p = s.p;
  const Range whole = whole_outputs(p, 2);
  const int ends = s.copied ? 0 : (whole.begin > 0 ? 1 : 0) + (whole.end < p.output[2] ? 1 : 0);
  const bool run = p.dilation[2] == 1 && p.groups == 1;
  const double taps = inside * static_cast<double>(p.taps() / (run ? p.kernel[2] : 1));
  const double rows = static_cast<double>(s.rows * ceil_div(s.all_panels(), s.most_together));
  const double tiles = rows * static_cast<double>(s.row_tiles), pixels = static_cast<double>(s.rows * p.output[2]);
  const auto output_bytes =
      pixels * static_cast<double>(p.out_channels) * static_cast<double>(size_bytes(p.output_dtype));
  const double parts =
      p.groups > 1 && output_bytes > own_cache_bytes(t) ? pixels * static_cast<double>(s.all_panels()) : 0;
  const double end = std::min(kEndSeconds, kEndTermSeconds * static_cast<double>(s.terms));
  const double row = kRowSeconds + kRowTapSeconds * taps + end * std::min<double>(ends, s.row_tiles);
  return rows * row + tiles * kTileTapSeconds * taps + kPartSeconds * parts;
}

}  // namespace

double dense_seconds(const ConvProblem& p, const Context<Device>& c, int parts) {
  const DenseLayout rows = dense_layout(p, c, register_tile(c.traits, p.dtype), parts);
  const DenseLayout& s = rows.one_row ? *rows.one_row : rows;  // most pixels are evenly apart
  const std::int64_t channels = p.out_channels_per_group(), rest = s.channels(s.panels - 1);
  const double narrow = rest > 0 && rest <= s.tile.lanes ? static_cast<double>(s.tile.lanes) : 0;
  const double wide = static_cast<double>(round_up(channels, s.tile.lanes)) - narrow;
  const double tile_rows = static_cast<double>(s.p.output[2]) / static_cast<double>(s.row_tiles);
  const double rows_for_peak = std::min(kRowsForPeak, static_cast<double>(s.tile.most_rows(s.vectors())));
  const double rate = peak_rate(s, c.traits) * std::min(1.0, tile_rows / rows_for_peak);
  // Padding is skipped, but along W where a copy of the rows has its zeros.
  const double inside = share_inside(s.p, 0) * share_inside(s.p, 1) * (s.copied ? 1 : share_inside(s.p, 2));
  const double pixels = static_cast<double>(p.batch * p.output_pixels() * p.groups);
  const double pairs = 2.0 * pixels * static_cast<double>(s.terms / s.parts) * inside;
  const double products = pairs * (wide / kWideShare + narrow / kNarrowShare) / rate;
  const double compute = partly_hidden(products, panel_seconds(s, c.traits));
  const std::int64_t tasks = s.chunks() * s.panel_chunks();
  const double others = other_seconds(s, c.traits, share_inside(s.p, 0) * share_inside(s.p, 1));
  const double work =
      (compute + copying_seconds(s, c.traits) + others / c.traits.threads) * uneven_share(c.traits, tasks);
  const double all = work + kWeightShare * dense_packing_seconds(s, c.traits);
  // Input that is split first, and sums that leave the registers all at once, are not read and written meanwhile.
  if (parts > 1) return section_seconds(c.traits, all, 0, tasks) + p.bytes_moved() / c.traits.memory_bytes_per_second;
  return section_seconds(c.traits, all, p.bytes_moved(), tasks);
}

}  // namespace vkconv::cpu
