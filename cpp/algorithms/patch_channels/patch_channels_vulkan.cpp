// patch_channels: the weight gradient of a strided layer whose kernel is a whole number of strides wide, with the
// pixels under one stride as the channels of one pixel. They lie side by side in memory, as the weights under them do,
// so arrays become views: a patch embedding of 3 channels, 16x16 taps 16 apart, is a problem of 48 channels and 16x1
// taps. Where the pixels of the input or the gradient do not lie side by side, the plain algorithm runs instead, whose
// sums are rounded in another order.
// It wins where channels are few: they fill octets and matrices, and shared memory holds a tile's input without the
// pixels that a column tap steps over. Forward kernels read patches in one run as they are. Source: pixel unshuffle
// (Shi et al. 2016) read as a view.
#include <algorithm>
#include <string>

#include "algorithms/registry_vulkan.h"
#include "core/planner.h"

namespace vkconv::vulkan {
namespace {

ConvProblem patches(const ConvProblem& p) {
  const std::int64_t s = p.stride[2];
  ConvProblem c = p;
  c.in_channels *= s;
  c.input[2] /= s;
  c.kernel[2] /= s;
  c.pad_lo[2] /= s;
  c.stride[2] = 1;
  return canonical(c);
}

// The algorithm for what it does not apply to.
const Algorithm<Device>& plain(const ConvProblem& p, const Context<Device>& c) {
  const bool matrix = kWeightGradMatrix.supports(p, c) && kWeightGradMatrix.seconds(p, c) < kWeightGrad.seconds(p, c);
  return matrix ? kWeightGradMatrix : kWeightGrad;
}

class PatchChannelsPlan final : public Plan<Device> {
 public:
  PatchChannelsPlan(const ConvProblem& p, const Context<Device>& c)
      : p_(p),
        patches_(c.planner.plan({patches(p), "", c.workspace_limit_bytes})),
        plain_(c.planner.plan({p, std::string(plain(p, c).name), c.workspace_limit_bytes})) {}

  void execute(Stream& stream, const Operands<Device>& operands, Pointer workspace) const override {
    Operands<Device> a = operands;
    const bool side_by_side =
        a.input.stride[3] == p_.in_channels && a.weight.in == 1 && a.weight.tap[2] == p_.in_channels;
    if (!side_by_side) return plain_->execute(stream, a, workspace);
    a.input.stride[3] *= p_.stride[2];
    a.weight.tap[2] *= p_.stride[2];
    patches_->execute(stream, a, workspace);
  }
  std::size_t workspace_bytes() const override {
    return std::max(patches_->workspace_bytes(), plain_->workspace_bytes());
  }
  std::string describe() const override { return "patch_channels(" + patches_->describe() + ")"; }

 private:
  ConvProblem p_;
  std::shared_ptr<const Plan<Device>> patches_, plain_;
};

Support supports(const ConvProblem& p, const Context<Device>& c) {
  if (Support s = kWeightGrad.supports(p, c); !s) return s;
  const std::int64_t stride = p.stride[2];
  if (stride == 1) return Support::no("the stride along width is 1");
  if (p.groups > 1) return Support::no("the channels of a group would not lie side by side");
  if (p.dilation[2] != 1 || p.input_dilation[2] != 1) return Support::no("width is dilated");
  if (p.kernel[2] % stride != 0 || p.pad_lo[2] % stride != 0)
    return Support::no("the kernel's width or the padding is not a whole number of strides");
  // Pixels behind the last whole patch are nobody's.
  const std::int64_t read = (p.output[2] - 1) * stride + p.kernel[2] - p.pad_lo[2];
  if (p.input[2] % stride != 0 && read > p.input[2] / stride * stride)
    return Support::no("padding begins inside the last patch");
  return Support::yes();
}

double seconds(const ConvProblem& p, const Context<Device>& c) {
  return c.planner.seconds(patches(p), c.workspace_limit_bytes);
}

}  // namespace

const Algorithm<Device> kPatchChannels{"patch_channels", supports, seconds, make_plan<PatchChannelsPlan>};

}  // namespace vkconv::vulkan
