// Four output channels of a depthwise convolution. Includers have defined kLoadsFours, and Params with input_array.
struct Channels {
  uint first;        // output channel of component 0
  uint count;        // of all output channels
  uint input_of[4];  // input channel of each component
};

// `multiplier`: output channels an input channel.
Channels channels_from(uint first, uint count, uint multiplier) {
  Channels c;
  c.first = first;
  c.count = count;
  [[unroll]] for (uint j = 0; j < 4; ++j) c.input_of[j] = (first + j) / multiplier;
  return c;
}

real4 load_input(int64_t pixel, Channels c) {
  if (kLoadsFours) return load4(params.input_array, pixel + c.first);
  real4 v = real4(0);
  [[unroll]] for (uint j = 0; j < 4; ++j)
    if (c.first + j < c.count) v[j] = load(params.input_array, pixel + c.input_of[j]);
  return v;
}
