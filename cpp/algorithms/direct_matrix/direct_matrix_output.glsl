// How a tile's sums become outputs: through shared memory, so that invocations hold neighbouring channels, then the
// epilogue. Part of direct_matrix.comp.

// Of a subgroup's row of matrices in shared memory an invocation finishes one quad of channels in kPasses pixels.
const uint kQuads = kFragmentsN * kRowQuads;
const uint kPassPixels = kLanes / kQuads, kPasses = kMatrixM / kPassPixels;

// An output column: elements to its first channel in the tile's first row.
struct OutputColumn {
  bool exists;
  int64_t result, addend;
};

struct Pixel {
  bool exists;
  int image, depth, column;
};

Pixel pixel_at(Place at, uint x) {
  const Column column = column_of(at.column + int(x), int(params.pitch));
  Pixel p;
  p.exists = column.slice < int(params.slices) && column.x < params.geometry.output_extent[2];
  p.image = kDepth ? column.slice / params.geometry.output_extent[0] : column.slice;
  p.depth = kDepth ? column.slice - p.image * params.geometry.output_extent[0] : 0;
  p.column = column.x;
  return p;
}

OutputColumn output_column(Place at, uint x) {
  const Pixel p = pixel_at(at, x);
  const int64_t stride[4] = params.output_stride, addend_stride[4] = params.epilogue.addend_stride;
  OutputColumn c;
  c.exists = p.exists;
  c.result = p.image * stride[0] + p.depth * stride[1] + at.row * stride[2] + p.column * stride[3];
  c.addend = !kHasAddend ? 0 : p.image * addend_stride[0] + p.depth * addend_stride[1] + at.row * addend_stride[2] +
                                   p.column * addend_stride[3];
  return c;
}

uint row_pixel(uint fragment, uint pass) {
  return (kStrip ? fragment * kMatrixM : 0) + lane_index() / kQuads + pass * kPassPixels;
}

// NaN, which padding may have made of infinities; of fp32 also an infinity, which scales may have made.
bool is_suspect(float v) { return kParts > 1 ? isnan(v) || isinf(v) : kPadded && isnan(v); }
bool is_suspect(vec4 v) { return is_suspect(v.x) || is_suspect(v.y) || is_suspect(v.z) || is_suspect(v.w); }

// Sums in shared memory without the scales of the weights.
vec4 sums_at(Place at, uint slot) {
  vec4 v = uintBitsToFloat(tile[slot]);
#ifdef VARIANT_F32
  const uint group_out = params.runs * (kFragmentsN * kMatrixN), o = at.channel + lane_index() % kQuads * 4;
  v *= uintBitsToFloat(Octets(params.scales_array + (at.group * group_out + o) * 4).at[0]);
#endif
  return v;
}

void finish_quad(Place at, OutputColumn column, int y, vec4 v) {
  const uint group_out = uint(params.geometry.out_channels / params.geometry.groups);
  const uint o = at.channel + lane_index() % kQuads * 4;
  if (o < group_out)
    finish4(params.output_array, column.result + y * params.output_stride[2],
            column.addend + y * params.epilogue.addend_stride[2], at.group * group_out + o,
            (at.group + 1) * group_out, v, params.epilogue);
}

// A quad of which some sum is suspect: that one by its definition.
void repair_quad(Place at, uint fragment, uint pass, int y, vec4 v) {
  const uint group_out = uint(params.geometry.out_channels / params.geometry.groups);
  const Pixel p = pixel_at(at, row_pixel(fragment, pass));
  const uint o = at.channel + lane_index() % kQuads * 4;
  for (uint j = 0; j < 4; ++j)
    if (is_suspect(v[j]) && o + j < group_out)
      v[j] = direct_sum(p.image, p.depth, at.row + y, p.column, int(at.group * group_out + o + j));
  finish_quad(at, output_column(at, row_pixel(fragment, pass)), y, v);
}

// Through shared memory, a row of matrices of each subgroup at a time. The outer loop is a real one: finishing is long.
void store_outputs(Place at) {
  const uint row_octets = kQuads + 1, scratch = subgroup_index() * kMatrixM * row_octets;
  const uint first = scratch + lane_index() / kQuads * row_octets + lane_index() % kQuads;
  OutputColumn columns[kPasses];
  if (!kStrip)
    UNROLL for (uint pass = 0; pass < loop_count(kPasses); ++pass)
      columns[pass] = output_column(at, row_pixel(0, pass));
  barrier();
  [[dont_unroll]] for (uint row = 0; row < kFragmentsM; ++row) {
    UNROLL for (uint i = 0; i < loop_count(kFragmentsM); ++i)
      if (i == row)
        UNROLL for (uint j = 0; j < loop_count(kFragmentsN); ++j) {
          if (kBlockSteps != 0) {
            store_c(total[i][j], scratch + j * kRowQuads, row_octets);
          } else {
            store_c(sum[i][j], scratch + j * kRowQuads, row_octets);
          }
        }
    subgroup_barrier();
    const uint fragment = at.subgroup_m * kFragmentsM + row;
    const int y = kStrip ? 0 : int(fragment);
    const bool row_exists = at.row + y < params.geometry.output_extent[1];
    uint broken = 0;
    UNROLL for (uint pass = 0; pass < loop_count(kPasses); ++pass) {
      if (kStrip) columns[pass] = output_column(at, row_pixel(fragment, pass));
      const vec4 v = sums_at(at, first + pass * kPassPixels * row_octets);
      if (!row_exists || !columns[pass].exists) continue;
      if (is_suspect(v))
        broken |= 1u << pass;
      else
        finish_quad(at, columns[pass], y, v);
    }
    for (uint pass = 0; broken != 0; ++pass, broken >>= 1)
      if ((broken & 1) != 0)
        repair_quad(at, fragment, pass, y, sums_at(at, first + pass * kPassPixels * row_octets));
    subgroup_barrier();
  }
}
