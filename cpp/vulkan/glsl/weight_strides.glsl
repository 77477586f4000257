// Strides of a WeightView, in elements; kernel_params.h fills them.
struct WeightStrides {
  int64_t group, out_channel, in_channel, tap[3];  // taps D H W
};
