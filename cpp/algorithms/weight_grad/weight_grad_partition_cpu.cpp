#include "algorithms/weight_grad/weight_grad_partition.h"

#include <algorithm>
#include <numeric>

#include "algorithms/weight_grad/weight_grad_patches.h"
#include "algorithms/weight_grad/weight_grad_walk.h"
#include "cpu/cache_sets.h"
#include "cpu/lines.h"
#include "cpu/streaming.h"

namespace vkconv::cpu::weight_grad {
namespace {

constexpr std::int64_t kBlocksPerChunk = 16;  // at least, so that adding a chunk's sums is little work
constexpr std::int64_t kMaxChunks = 64;
constexpr std::int64_t kPartialBytes = 16 << 20;  // of all chunks' sums together
constexpr std::int64_t kUnitBytes = 256 << 10;    // a unit's sums stay in L2
constexpr std::int64_t kTasksPerThread = 4;

// Outputs a segment, of which every tap meets kBlockPixels: one in `period` where the input is dilated.
std::int64_t segment_outputs(const ConvProblem& p, std::int64_t pixels_in_vector) {
  constexpr std::int64_t kMaxPeriod = 8;
  const std::int64_t period = p.input_dilation[2] / std::gcd(p.stride[2], p.input_dilation[2]);
  return kBlockPixels * pixels_in_vector * std::min(period, kMaxPeriod);
}

double lanes_used(std::int64_t channels, std::int64_t lanes) {
  return static_cast<double>(channels) / static_cast<double>(round_up(channels, lanes));
}

Form choose_form(const Posed& posed, std::int64_t lanes) {
  const ConvProblem& p = posed.p;
  const std::int64_t in = p.in_channels_per_group(), out = p.out_channels_per_group();
  if (posed.patches == PatchForm::by_row) return Form::out_vectors;
  if (posed.patches == PatchForm::composed)
    return composed_along_vectors(posed.source, lanes) ? Form::in_vectors : Form::out_vectors;
  if (fills_lanes(p, lanes)) return Form::lanes;
  if (groups_fit_vector(p, lanes)) return Form::groups;
  // Of equally full vectors those that are written as they are.
  const double in_used = lanes_used(in, lanes), out_used = lanes_used(out, lanes);
  if (in_used == out_used) return posed.traded ? Form::out_vectors : Form::in_vectors;
  return in_used > out_used ? Form::in_vectors : Form::out_vectors;
}

// Whether pixels of so many channels fall into so few sets of L1.
bool crowded(const ConvProblem& p, std::int64_t channels, std::int64_t sets = 1) {
  return crowd_sets(channels * static_cast<std::int64_t>(size_bytes(p.dtype)), sets);
}

// Whether the pixels of a block fall into a few of L1's 64 sets of lines, and meet enough others to be worth a copy.
// With AVX-512 a core waits less for L2, and a copy pays only where they all fall into one set.
bool crowds_sets(const ConvProblem& p, const Shape& s) {
  constexpr std::int64_t kWorthCopy = 32;
  const std::int64_t sets = s.lanes * accumulator_bytes(p.dtype) < 64 ? 8 : 1;
  const bool product = s.form == Form::in_vectors || s.form == Form::out_vectors;
  return product && s.patches == PatchForm::none && std::min(s.rows, s.vector_channels) >= kWorthCopy &&
         (crowded(p, p.in_channels, sets) || crowded(p, p.out_channels, sets));
}

// The same of a depthwise problem.
bool crowds_lanes(const ConvProblem& p, const Shape& s, bool from_memory) {
  constexpr std::int64_t kWorthCopy = 9, kWorthCopyFromMemory = 25, kReuse = 2;  // taps; of an input
  return s.form == Form::lanes && p.taps() >= (from_memory ? kWorthCopyFromMemory : kWorthCopy) &&
         p.taps() >= kReuse * p.stride[1] * p.stride[2] && !p.input_dilated() && p.dilation[1] == 1 &&
         p.kernel[1] >= p.stride[1] && crowded(p, p.in_channels);
}

// Rows of the input that the lines of a block read, at most: lines of one image share them.
std::int64_t rows_of_block(const ConvProblem& p, const Shape& s) {
  const std::int64_t lines = s.lines_per_block, images = std::min(lines, (lines - 1) / p.output[1] + 2);
  return std::min({lines * p.kernel[1], (lines - images) * p.stride[1] + images * p.kernel[1], images * p.input[1]});
}

// Taps that units keep together: of depthwise problems those of a tile's kernel rows, since these decide the order of
// additions.
std::int64_t tap_groups(const ConvProblem& p, const Shape& s) {
  return s.form == Form::lanes ? p.kernel[0] * s.row_groups : p.taps();
}
std::int64_t first_tap(const ConvProblem& p, const Shape& s, std::int64_t group) {
  if (s.form != Form::lanes) return group;
  const std::int64_t row = group / s.row_groups * p.kernel[1] + s.group_rows(group % s.row_groups, p.kernel[1]).begin;
  return row * p.kernel[2];
}

Unit largest_unit(const ConvProblem& p, const Partition& q) {
  const Shape& s = q.shape;
  const std::int64_t of_group = s.form == Form::lanes ? ceil_div(p.kernel[1], s.row_groups) * p.kernel[2] : 1;
  return {0,
          {0, ceil_div(tap_groups(p, s), q.tap_parts) * of_group},
          {0, ceil_div(s.rows, q.row_parts)},
          {0, ceil_div(s.vectors, q.vector_parts)}};
}

void set_sizes(const ConvProblem& p, Partition& q) {
  const Unit u = largest_unit(p, q);
  q.sums_bytes =
      aligned_bytes(u.taps.size() * u.rows.size() * u.vectors.size() * q.shape.lanes * accumulator_bytes(p.dtype));
  q.scratch_bytes = scratch_bytes(p, q.shape, u);
  q.tasks = q.by_chunk ? q.units() * q.shape.chunks : q.units();
}

// Of depthwise problems: the tiles, taps of one, and its kernel rows, several where taps are neighbouring positions.
LaneTiles lane_tiles(const ConvProblem& p, std::int64_t lanes) {
  return {size_bytes(p.dtype) == 2, lanes * accumulator_bytes(p.dtype)};
}
std::int64_t lane_taps(const ConvProblem& p) { return ceil_div(p.kernel[2], LaneTiles::parts(p.kernel[2])); }
// The longest stride of tiles whose taps are neighbouring positions.
std::int64_t most_lane_stride(const ConvProblem& p) { return p.dtype == DType::f64 ? 1 : 2; }
// dense_step(), unless no tile has the stride of these outputs, or it has few of them, or they crowd a set of L1.
std::int64_t lane_phases(const ConvProblem& p) {
  constexpr std::int64_t kFewOutputs = 8;
  const std::int64_t step = dense_step(p, 2);
  const bool few = std::min(p.output[2], kBlockPixels) < step * kFewOutputs;
  const bool far = dense_stride(p, 2) > most_lane_stride(p) || p.input_dilation[2] > 1;
  return few || far || crowded(p, step * p.out_channels) ? 1 : step;
}
std::int64_t lane_rows(const ConvProblem& p, std::int64_t lanes) {
  const std::int64_t step = lane_phases(p) * p.stride[2], stride = step / p.dilation[2];
  const bool neighbours = step % p.dilation[2] == 0 && (stride != 2 || most_lane_stride(p) == 2);
  if (!neighbours || p.input_dilation[1] > 1 || p.input_dilation[2] > 1) return 1;
  return std::min(p.kernel[1], lane_tiles(p, lanes).rows(lane_taps(p), stride));
}

// Vectors of a register tile.
std::int64_t tile_vectors(const ConvProblem& p, const Shape& s) {
  if (s.form != Form::lanes) return kVectors;
  return lane_tiles(p, s.lanes).vectors(lane_rows(p, s.lanes), lane_taps(p));
}

// Halves the units along the axis that costs least: vectors in whole tiles, rows in whole tiles, else taps.
bool split_units(const ConvProblem& p, Partition& q) {
  const Unit u = largest_unit(p, q);
  const bool lanes = q.shape.form == Form::lanes, taps = q.tap_parts < tap_groups(p, q.shape);
  if (!taps && u.rows.size() * u.vectors.size() <= 1) return false;
  if (lanes && u.vectors.size() > tile_vectors(p, q.shape))
    q.vector_parts *= 2;
  else if (q.shape.storable && u.rows.size() > 2 * kMaxTileRows)  // long rows of the weight
    q.row_parts *= 2;
  else if (u.vectors.size() > 2 * kVectors && u.vectors.size() % (2 * kVectors) == 0)
    q.vector_parts *= 2;
  else if (u.rows.size() > 4 * kMaxTileRows)
    q.row_parts *= 2;
  else if (taps)
    q.tap_parts *= 2;
  else if (u.rows.size() > kMaxTileRows || u.vectors.size() == 1)
    q.row_parts *= 2;
  else
    q.vector_parts *= 2;
  q.tap_parts = std::min(q.tap_parts, tap_groups(p, q.shape));
  q.row_parts = std::min(q.row_parts, q.shape.rows);
  q.vector_parts = std::min(q.vector_parts, q.shape.vectors);
  set_sizes(p, q);
  return true;
}

// Of a copied value: widened, but by tiles that widen it as they load it.
std::int64_t copied_bytes(const ConvProblem& p, const Shape& s) {
  return s.form == Form::lanes ? static_cast<std::int64_t>(size_bytes(p.dtype)) : accumulator_bytes(p.dtype);
}

// Lane by lane, kernel rows share the lines of a block: units of so few vectors that L1 holds most of these meanwhile,
// where a tile of registers has no more. Of copies L2 does, since they are read in long runs.
void fit_lines(const ConvProblem& p, const Device::Traits& traits, Partition& q) {
  if (q.shape.form != Form::lanes) return;
  if (q.shape.staged)
    while (2 * scratch_bytes(p, q.shape, largest_unit(p, q)) > traits.l2_bytes && 2 * q.vector_parts <= q.shape.vectors)
      q.vector_parts *= 2;
  if (q.shape.staged || q.from_memory || p.kernel[1] == 1) return;
  const std::int64_t lines = q.shape.lines_per_block, columns = std::min(inputs_under(p, 2, p.output[2]), p.input[2]);
  const std::int64_t vector_bytes = (std::min(inputs_under(p, 1, lines), p.input[1]) * columns + lines * p.output[2]) *
                                    q.shape.lanes * static_cast<std::int64_t>(size_bytes(p.dtype));
  const std::int64_t tile = tile_vectors(p, q.shape);
  const std::int64_t vectors = static_cast<std::int64_t>(traits.l1_bytes * 3 / 2) / vector_bytes / tile * tile;
  if (vectors > 0) q.vector_parts = ceil_div(q.shape.vectors, vectors);
}

}  // namespace

std::int64_t pixels_in_vector(const ConvProblem& p, std::int64_t lanes) {
  if (p.stride[2] != 1 || p.input_dilation[2] != 1) return 1;
  return std::clamp<std::int64_t>(lanes / std::max(p.in_channels, p.out_channels), 1, p.output[2]);
}

bool composed_along_vectors(const ConvProblem& p, std::int64_t lanes) {
  return lanes_used(p.taps() * p.in_channels_per_group(), lanes) >= lanes_used(p.out_channels_per_group(), lanes);
}

bool fills_lanes(const ConvProblem& p, std::int64_t lanes) {
  return p.in_channels_per_group() == 1 && p.out_channels_per_group() == 1 && p.groups >= lanes;
}

bool groups_fit_vector(const ConvProblem& p, std::int64_t lanes) {
  const std::int64_t widest = std::max(p.in_channels_per_group(), p.out_channels_per_group());
  return p.groups > 1 ? widest <= lanes : pixels_in_vector(p, lanes) > 1;
}

Shape choose_shape(const Posed& posed, std::int64_t lanes) {
  const ConvProblem &p = posed.p, &source = posed.source;
  Shape s;
  s.lanes = lanes;
  s.patches = posed.patches;
  s.form = choose_form(posed, s.lanes);
  const bool patches = s.patches != PatchForm::none;
  const std::int64_t in = p.in_channels_per_group(), out = p.out_channels_per_group();
  const bool all_groups = s.form == Form::lanes || s.form == Form::groups;
  s.groups = all_groups ? 1 : p.groups;
  s.rows = s.form == Form::out_vectors ? in : out;
  s.vector_channels = all_groups ? p.in_channels : s.form == Form::out_vectors ? out : in;
  s.vector_step = s.lanes;
  if (s.form == Form::groups) {
    s.pixels = pixels_in_vector(p, s.lanes);
    s.vector_step = std::min(s.lanes / std::max(in, out), p.groups) * in;
  }
  s.vectors = ceil_div(s.vector_channels, s.vector_step);
  if (s.form == Form::lanes) {
    s.row_groups = ceil_div(p.kernel[1], lane_rows(p, s.lanes));
    s.phases = lane_phases(p);
  }
  const bool short_pixels = s.form == Form::groups && p.out_channels < s.lanes;
  const bool short_vectors = s.vector_channels < s.lanes && !(patches && s.form == Form::in_vectors);
  s.staged = (size_bytes(p.dtype) == 2 && s.form != Form::lanes) || short_vectors || short_pixels || crowds_sets(p, s);
  s.lines = p.batch * p.output[0] * p.output[1];
  // Outputs of a line that some tap does not count: one lane sums them, whatever the pixels of a vector.
  const std::int64_t borders = p.output[2] - whole_outputs(p, 2).size();
  const std::int64_t pixels = borders > kBlockPixels ? 1 : s.pixels;
  s.segments = ceil_div(p.output[2], segment_outputs(p, pixels));
  const std::int64_t lines = kBlockPixels / std::max({borders, ceil_div(p.output[2], pixels), std::int64_t{1}});
  s.lines_per_block = std::clamp<std::int64_t>(lines, 1, kBlockPixels);
  s.blocks = ceil_div(s.lines, s.lines_per_block) * s.segments;
  s.storable = s.blocks == 1 && !all_groups && !patches && s.vector_channels >= s.lanes &&
               p.output_dtype == accumulator(p.dtype);
  const std::int64_t bytes = std::max<std::int64_t>(1, p.weight_elements() * accumulator_bytes(p.dtype));
  s.chunks =
      std::clamp<std::int64_t>(std::min(ceil_div(s.blocks, kBlocksPerChunk), kPartialBytes / bytes), 1, kMaxChunks);
  if (patches) {
    const std::int64_t rows = source.kernel[0] * source.kernel[1];
    s.patch_rows = rows * patch_row(source, lanes, ceil_div(p.output[2], s.segments));
    s.patch = s.patches == PatchForm::composed ? patch_elements(source, lanes) : 0;
  }
  return s;
}

UnitChannels unit_channels(const ConvProblem& p, const Shape& s, const Unit& u) {
  const Range x{0, s.groups == 1 ? p.in_channels : p.in_channels_per_group()};
  const Range dy{0, s.groups == 1 ? p.out_channels : p.out_channels_per_group()};
  if (s.form == Form::groups) return {x, dy};
  const Range vectors{s.channel_of(u.vectors.begin),
                      std::min(s.channel_of(u.vectors.end - 1) + s.lanes, s.vector_channels)};
  if (s.form == Form::lanes) return {vectors, vectors};
  return s.form == Form::out_vectors ? UnitChannels{u.rows, vectors} : UnitChannels{vectors, u.rows};
}

std::int64_t copy_pitch(const ConvProblem& p, const Shape& s, std::int64_t channels) {
  const std::int64_t line = kLineBytes / copied_bytes(p, s);
  return channels <= s.lanes ? s.lanes : (ceil_div(channels, line) | 1) * line;
}

std::size_t scratch_bytes(const ConvProblem& p, const Shape& s, const Unit& largest) {
  const bool patches = s.patches != PatchForm::none;
  if (!s.staged && !patches) return 0;
  const std::int64_t outputs = ceil_div(p.output[2], s.segments), taps = std::min(largest.taps.size(), p.kernel[2]);
  const std::int64_t span = ((outputs - 1) * p.stride[2] + (taps - 1) * p.dilation[2]) / p.input_dilation[2] + 2;
  const std::int64_t columns = std::min(span, p.input[2]);
  const UnitChannels channels = unit_channels(p, s, largest);
  const std::int64_t x = patches ? s.patch_rows + (s.patch > 0 ? outputs * copy_pitch(p, s, s.patch) : 0)
                                 : columns * copy_pitch(p, s, channels.x.size());
  const std::int64_t lines = s.form == Form::lanes ? rows_of_block(p, s) : s.lines_per_block;
  const std::int64_t elements = lines * x + s.lines_per_block * outputs * copy_pitch(p, s, channels.dy.size());
  return aligned_bytes((elements + 2 * s.lanes) * copied_bytes(p, s));
}

Partition choose_partition(const Posed& posed, const Device::Traits& traits, std::size_t limit) {
  const ConvProblem& p = posed.p;
  Partition q;
  q.shape = choose_shape(posed, lanes_of(traits, p.dtype));
  q.from_memory = comes_from_memory(traits, posed.source);
  if (waits_in_sets(traits)) q.shape.staged |= crowds_lanes(p, q.shape, q.from_memory);
  q.slots = traits.threads;
  fit_lines(p, traits, q);
  set_sizes(p, q);
  while (q.sums_bytes > static_cast<std::size_t>(kUnitBytes) && split_units(p, q)) {
  }
  // Chunks of a unit run side by side only when units alone are too few.
  const auto enough = [&] {
    const bool tiles = q.shape.form == Form::lanes && largest_unit(p, q).vectors.size() <= tile_vectors(p, q.shape);
    return traits.threads == 1 || tiles ? traits.threads : traits.threads * kTasksPerThread;
  };
  q.by_chunk = q.units() < enough() && q.shape.chunks > 1;
  set_sizes(p, q);
  while (q.tasks < enough() && split_units(p, q)) {
  }
  while (q.workspace_bytes() > limit) {
    if (q.shape.form == Form::lanes && q.shape.staged)
      q.shape.staged = false;
    else if (q.by_chunk)
      q.by_chunk = false;
    else if (q.slots > 1)
      q.slots = (q.slots + 1) / 2;
    else if (!split_units(p, q))
      break;
    set_sizes(p, q);
  }
  return q;
}

Unit unit_at(const ConvProblem& p, const Partition& q, std::int64_t index) {
  const auto part = [&](std::int64_t size, std::int64_t parts) {
    const std::int64_t i = index % parts;
    index /= parts;
    return nth_part(size, i, parts);
  };
  Unit u;
  const Range groups = part(tap_groups(p, q.shape), q.tap_parts);
  u.taps = {first_tap(p, q.shape, groups.begin), first_tap(p, q.shape, groups.end)};
  u.vectors = part(q.shape.vectors, q.vector_parts);
  u.rows = part(q.shape.rows, q.row_parts);
  u.group = index;
  return u;
}

}  // namespace vkconv::cpu::weight_grad
