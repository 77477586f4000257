// Slices (output depths of images) laid side by side along x, so that tiles do not end where a small image ends. A slice
// takes `pitch` output columns, its input pitch * stride columns: enough that the taps of its last output read at most
// the gap before the next slice, which counts as padding. Or a slice takes whole tiles, and no tile reads another's
// columns. side_by_side.h chooses, and computes the pitch.

#include "vulkan/glsl/divisor.glsl"

struct Column {
  int slice, x;
};

// The slice that holds a column, and the column in it; slice -1 left of the first.
Column column_of(int column, Divisor pitch) {
  const int slice = column < 0 ? -1 : int(divide(uint(column), pitch));
  return Column(slice, column - slice * int(pitch.value));
}

// A column under a tile that lies in one slice.
Column column_in(int slice, int column, Divisor pitch) {
  const int x = column - slice * int(pitch.value);
  return Column(x < 0 ? -1 : slice, x);
}
