// The rows of the CPU's registry, each defined in its algorithm's folder.
#pragma once
#include "core/algorithm.h"
#include "cpu/device.h"

namespace vkconv::cpu {

extern const Algorithm<Device> kReference;
extern const Algorithm<Device> kImplicitGemm;
extern const Algorithm<Device> kImplicitGemmParts;
extern const Algorithm<Device> kUnfoldGemm;
extern const Algorithm<Device> kDepthwise;
extern const Algorithm<Device> kFftDepthwise;
extern const Algorithm<Device> kImageFilter;
extern const Algorithm<Device> kMatrixVector;
extern const Algorithm<Device> kWinograd;
extern const Algorithm<Device> kEmptySum;
extern const Algorithm<Device> kWeightGrad;
extern const Algorithm<Device> kWinogradWeightGrad;
extern const Algorithm<Device> kWeightGradPairs;

}  // namespace vkconv::cpu
