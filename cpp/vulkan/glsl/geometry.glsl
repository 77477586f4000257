// The fields of a ConvProblem that kernels read, by axis D, H, W. kernel_params.h fills them, and kernel_support() there
// proves that every position o * stride + k * dilation - pad_lo and every count below fits 32 bits.
struct Geometry {
  int batch, in_channels, out_channels, groups;
  int input_extent[3], kernel[3], output_extent[3];
  int stride[3], dilation[3], input_dilation[3], pad_lo[3];
};

// The element of an input axis that a position of the dilated axis reads, or -1 for padding and inserted zeros.
int input_index(int position, int extent, int input_dilation) {
  if (position < 0) return -1;
  const int i = position / input_dilation;
  return i < extent && i * input_dilation == position ? i : -1;
}

// Takes the last digit off a mixed-radix index: returns index % extent and leaves index / extent.
uint take_digit(inout uint index, uint extent) {
  const uint quotient = index / extent, digit = index - quotient * extent;
  index = quotient;
  return digit;
}
