// The sizes of direct_matrix's tile, part of direct_matrix.comp. A GPU's kernel knows all of them when it is compiled;
// one emulated kernel serves every problem and reads them when it starts.

const uint kTilePixels = kSubgroupsM * kFragmentsM * kMatrixM;
const uint kTileRows = kStrip ? 1 : kSubgroupsM * kFragmentsM;
const uint kTileColumns = kStrip ? kTilePixels : kMatrixM;
const uint kStepsK = kChunkOctets / kOctetsK, kOwnStepsK = kStepsK / kSubgroupsK;  // of a tap: all, a subgroup's
const uint kSubgroupsMN = kSubgroupsM * kSubgroupsN;
const uint kStepOctets = kParts * kFragmentsN * kBlockOctets;
const uint kHeldOctets = kLaneOctets > 1 ? kLaneOctets : 1;

// Octets of a column that invocations bring, of so many that are read: one more of an even number, so that a column is
// odd, unless invocations are whole columns. Those of fp32 are split as they come, which takes longer than the odd one.
#ifdef VARIANT_F32
#define BROUGHT(octets) ((octets) | 1)
#else
#define BROUGHT(octets) (kThreads % (octets) == 0 ? (octets) : (octets) | 1)
#endif

#ifdef VARIANT_EMULATED
#define GIVEN(constant, parameter) (constant != 0 ? constant : uint(params.geometry.parameter))
#define SIZE(name, value) uint name;
#else
#define GIVEN(constant, parameter) constant
#define SIZE(name, value) const uint name = value;
#endif

// The tile with its halo. Columns that a strided tap reads together lie together: column x is number x / stride of
// phase x % stride. A column takes an odd number of octets, which spreads the rows of a matrix over the banks.
#define SIZES                                                                                          \
  SIZE(tap_rows, GIVEN(kTapRows, kernel[1]))                                                           \
  SIZE(tap_columns, GIVEN(kTapColumns, kernel[2]))                                                     \
  SIZE(stride_rows, GIVEN(kStrideRows, stride[1]))                                                     \
  SIZE(stride_columns, GIVEN(kStrideColumns, stride[2]))                                               \
  SIZE(dilation_rows, GIVEN(kDilationRows, dilation[1]))                                               \
  SIZE(dilation_columns, GIVEN(kDilationColumns, dilation[2]))                                         \
  SIZE(halo_rows, (kTileRows - 1) * stride_rows + (tap_rows - 1) * dilation_rows + 1)                  \
  SIZE(halo_columns, (kTileColumns - 1) * stride_columns + (tap_columns - 1) * dilation_columns + 1)   \
  SIZE(column_octets, halo_rows * kChunkOctets | 1)                                                    \
  SIZE(brought_octets, BROUGHT(halo_rows * kChunkOctets))                                              \
  SIZE(phase_columns, (halo_columns + stride_columns - 1) / stride_columns)                            \
  SIZE(part_octets, phase_columns * stride_columns * column_octets)                                    \
  SIZE(stage_octets, kParts * part_octets)                                                             \
  SIZE(brought, phase_columns * stride_columns * brought_octets)                                       \
  SIZE(load_count, (brought + kThreads - 1) / kThreads)                                                \
  SIZE(stage_steps, tap_rows * tap_columns * kStepsK)
SIZES

void read_sizes() {
#ifdef VARIANT_EMULATED
#undef SIZE
#define SIZE(name, value) name = value;
  SIZES
#endif
}

uint column_slot(uint x) { return (x % stride_columns * phase_columns + x / stride_columns) * column_octets; }
