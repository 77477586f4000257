// What Stream::dispatch hands to every kernel: its `Params`, a struct that the including file has defined, as uniforms, and
// the number of workgroups along x and y, gl_NumWorkGroups being that of a part when a dispatch is cut.
layout(set = 0, binding = 0, scalar) uniform Uniforms { Params params; };
layout(push_constant) uniform Push { uint groups_x, groups_y; };

#ifdef VARIANT_F16
void start_rounding() {
  if (!kPacksNearest) packs_nearest = packs_to_nearest(float(min(groups_x, 1)));
}
#else
void start_rounding() {}
#endif

// The workgroup's index in a grid from Stream::linear_groups(count); not below `count` in the last row of workgroups.
uint linear_group() { return gl_WorkGroupID.y * groups_x + gl_WorkGroupID.x; }
