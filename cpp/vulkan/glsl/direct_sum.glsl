// One output by the definition, skipping padding. The tiled kernels read padding as zeros, and 0 * infinity is NaN: they
// compute an output that came out as NaN again by this sum. Includers have defined `Params` with input_array,
// input_stride, weight_array, weight_stride and geometry.
real direct_sum(int image, int depth, int row, int column, int o) {
  const int group_in = params.geometry.in_channels / params.geometry.groups;
  const int group_out = params.geometry.out_channels / params.geometry.groups;
  const int group = o / group_out, out_position[3] = {depth, row, column};
  const int64_t weight_base = group * params.weight_stride.group + (o - group * group_out) * params.weight_stride.out_channel;
  const int taps = params.geometry.kernel[0] * params.geometry.kernel[1] * params.geometry.kernel[2];
  real sum = real(0);
  for (int tap = 0; tap < taps; ++tap) {
    int rest = tap;
    bool inside = true;
    int64_t pixel = image * params.input_stride[0] + group * group_in, weight = weight_base;
    for (int axis = 2; axis >= 0; --axis) {
      const int k = rest % params.geometry.kernel[axis];
      rest /= params.geometry.kernel[axis];
      const int i = input_index(out_position[axis] * params.geometry.stride[axis] + k * params.geometry.dilation[axis] -
                                    params.geometry.pad_lo[axis],
                                params.geometry.input_extent[axis], params.geometry.input_dilation[axis]);
      inside = inside && i >= 0;
      pixel += i * params.input_stride[1 + axis];
      weight += k * params.weight_stride.tap[axis];
    }
    if (!inside) continue;
    for (int c = 0; c < group_in; ++c)
      sum = fma(load(params.input_array, pixel + c), load(params.weight_array, weight + c * params.weight_stride.in_channel), sum);
  }
  return sum;
}
