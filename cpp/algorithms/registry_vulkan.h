// The rows of Vulkan's registry, each defined in its algorithm's folder.
#pragma once
#include <memory>

#include "core/algorithm.h"
#include "vulkan/device.h"

namespace vkconv {

template <>
std::span<const Algorithm<vulkan::Device>> registry<vulkan::Device>();

namespace vulkan {

// Algorithm::make of a plan that is constructed from problem and context.
template <class P>
std::shared_ptr<const Plan<Device>> make_plan(const ConvProblem& p, const Context<Device>& c) {
  return std::make_shared<P>(p, c);
}

extern const Algorithm<Device> kReference;
extern const Algorithm<Device> kDepthwise;
extern const Algorithm<Device> kDirect;
extern const Algorithm<Device> kDirectMatrix;
extern const Algorithm<Device> kImageFilter;
extern const Algorithm<Device> kImplicitGemm;
extern const Algorithm<Device> kSubgroupGemm;
extern const Algorithm<Device> kUnfoldGemm;
extern const Algorithm<Device> kWeightGrad;
extern const Algorithm<Device> kWeightGradMatrix;
extern const Algorithm<Device> kWinograd;

}  // namespace vulkan
}  // namespace vkconv
