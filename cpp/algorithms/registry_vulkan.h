// The rows of Vulkan's registry, each defined in its algorithm's folder.
#pragma once
#include "core/algorithm.h"
#include "vulkan/device.h"

namespace vkconv {

template <>
std::span<const Algorithm<vulkan::Device>> registry<vulkan::Device>();

namespace vulkan {

extern const Algorithm<Device> kReference;
extern const Algorithm<Device> kDepthwise;
extern const Algorithm<Device> kDepthwiseWeightGrad;
extern const Algorithm<Device> kDirect;
extern const Algorithm<Device> kDirectMatrix;
extern const Algorithm<Device> kEmptySum;
extern const Algorithm<Device> kImageFilter;
extern const Algorithm<Device> kImplicitGemm;
extern const Algorithm<Device> kPatchChannels;
extern const Algorithm<Device> kSubgroupGemm;
extern const Algorithm<Device> kUnfoldGemm;
extern const Algorithm<Device> kWeightGrad;
extern const Algorithm<Device> kWeightGradMatrix;
extern const Algorithm<Device> kWinograd;

}  // namespace vulkan
}  // namespace vkconv
