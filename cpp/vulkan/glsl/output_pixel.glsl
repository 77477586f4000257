// Where output pixel m lies, counted through images and positions. Includers have defined `Params` with output_stride,
// epilogue and geometry, and what direct_sum.glsl reads.
#include "vulkan/glsl/direct_sum.glsl"

struct OutputPixel {
  int image, position[3];
  int64_t output_offset, addend_offset;
};

OutputPixel output_pixel(uint m) {
  OutputPixel p;
  p.output_offset = p.addend_offset = 0;
  [[unroll]] for (int axis = 2; axis >= 0; --axis) {
    p.position[axis] = int(take_digit(m, uint(params.geometry.output_extent[axis])));
    p.output_offset += p.position[axis] * params.output_stride[1 + axis];
    p.addend_offset += p.position[axis] * params.epilogue.addend_stride[1 + axis];
  }
  p.image = int(m);
  p.output_offset += p.image * params.output_stride[0];
  p.addend_offset += p.image * params.epilogue.addend_stride[0];
  return p;
}

real direct_sum(OutputPixel p, int o) { return direct_sum(p.image, p.position[0], p.position[1], p.position[2], o); }
