// Decompositions on Vulkan, through the backend: the order of the commands their children record, workspaces that
// children share, and views of device memory.
#if VKCONV_VULKAN
#include "vulkan_kernel_test.h"

namespace vkconv::vulkan {
namespace {

struct Case {
  const char* algorithm;
  const char* problem;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.algorithm << " " << c.problem; }

class VulkanDecomposition : public VulkanKernelTest, public testing::WithParamInterface<Case> {};

TEST_P(VulkanDecomposition, EqualsCpu) {
  const ConvProblem p = parse_problem(GetParam().problem);
  if (!supports_dtype(device_->traits(), p.dtype)) GTEST_SKIP() << "the device has no 64-bit floats";
  Planner<cpu::Device> cpu(registry<cpu::Device>(), cpu::host_traits());
  const auto backend = make_backend(0);
  const tools::Arrays arrays = tools::make_arrays(p, tools::Data::small_integers);
  const auto expected = tools::run_cpu(p, arrays, cpu, "reference");
  const PlanRequest request{tools::without_flip(p), GetParam().algorithm};
  tools::HostOperands host(p, arrays);
  backend->execute(request, {host.operands});
  EXPECT_EQ(host.result(p), expected);
  if (p.pass != Pass::weight_grad) {
    tools::HostOperands again(p, arrays);
    const auto prepared = backend->prepare(p, again.operands);
    backend->execute(request, {again.operands, prepared.get()});
    EXPECT_EQ(again.result(p), expected) << "prepared";
  }
  expect_exact(GetParam().algorithm, GetParam().problem, true);  // by the plan, though it may want no layout
}

INSTANTIATE_TEST_SUITE_P(
    Problems, VulkanDecomposition,
    testing::Values(Case{"small_kernel_depth", "fwd_f32_n1c3o4_i5x6x7_k2x3x3_p0x1x1"},
                    Case{"small_kernel_depth", "fwd_f16_n2c3o4_i5x6x7_k3x1x1_p1x0x0_bias_relu"},
                    Case{"small_kernel_depth", "fwd_bf16_n2c4o4g2_i7x3x3_k3x2x2_s2x1x1_d2x1x1_p3:1x0x1_flip_bias"},
                    Case{"small_kernel_depth", "fwd_f64_n1c2o3_i9x3x3_k5x1x1_p-1x0x0_add_relu"},
                    Case{"transpose_phases", "fwd_f32_n2c3o4_i5_k3_t2_p2"},
                    Case{"transpose_phases", "fwd_f32_n1c2o2_i4_k1_t3_p2:4_bias_relu"},
                    Case{"transpose_phases", "fwd_f32_n1c3o4_i4x5x6_k3x4x4_t1x2x2_p1x2x2_bias"},
                    Case{"transpose_phases", "fwd_bf16_n1c4o2g2_i4x5x6_k3x2x4_t2x1x3_d2x3x6_p1x2x3_bias"},
                    Case{"phase_channels", "fwd_f32_n1c1o1_i13_k16_t8_p15"},
                    Case{"phase_channels", "fwd_f32_n1c2o1_i40_k16_t8_p15"},
                    Case{"phase_channels", "fwd_f16_n2c3o1_i9_k12_t4_p-2:9_flip_bias"},
                    Case{"phase_channels", "fwd_f32_n2c3o1_i5x9_k3x6_t1x3_p1x5_s2x1_d2x1_add"},
                    Case{"dilation_phases", "fwd_f32_n1c3o4_i19_k3_d5_p5"},
                    Case{"dilation_phases", "fwd_f16_n1c2o2g2_i3x4x5_k2x2x2_d2x9x3_p0x9x3_add"},
                    Case{"dilation_phases", "fwd_f32_n1c3o4_i12x15_k3x3_d4x5_p4x5_add_bias_relu"},
                    Case{"dilation_phases", "fwd_f16_n2c3o4_i13x9_k3x2_d4x3_s3x2_p3x1_flip_add"},
                    Case{"trimmed_kernel", "fwd_f32_n2c3o4_i9x7_k3x3_d12x4_p12x4_bias_relu"},
                    Case{"trimmed_kernel", "fwd_f16_n1c4o2g2_i4x3x5_k3x5x2_d1x2x7_s1x3x2_p1x3x-1:9_flip_add"},
                    Case{"trimmed_kernel", "fwd_f32_n1c2o3_i5_k2_d20_p10_bias"},
                    Case{"column_taps", "wgrad_f32_n2c3o5_i40_k3_d16_p16"},
                    Case{"column_taps", "wgrad_f16_n1c4o6g2_i5x19_k3x2_d2x9_p2x4_s1x2_flip"},
                    Case{"column_taps", "wgrad_bf16>f32_n1c6o2g2_i7x11_k2x4_s2x2_d1x2_p1:2x3:0"},
                    Case{"column_taps", "wgrad_bf16_n2c5o3_i3x4x12_k2x1x3_d1x1x20_p0x0x30:2"},
                    Case{"patch_channels", "wgrad_f32_n2c3o5_i9x8_k2x4_s2x4"},
                    Case{"patch_channels", "wgrad_f16_n2c3o4_i13_k6_s3"},
                    Case{"patch_channels", "wgrad_bf16_n1c2o3_i5x12_k3x4_s1x2_p1x2"},
                    Case{"patch_channels", "wgrad_f64_n2c1o3_i2x4x15_k2x2x3_s1x2x3_p1x0x-3"},
                    Case{"patch_channels", "wgrad_f32_n1c2o3_i8x8_k2x2_s2x2_flip"},  // taps lie backwards
                    Case{"input_grad", "igrad_f32_n2c3o4_i9_k3_s2_p1"},
                    Case{"input_grad", "igrad_f64_n1c2o3_i4x5x6_k2x3x1_s2x1x4_p1x1x0"},
                    // An inverse STFT's shape with a shorter input; 1024 phases that do not wait for each other.
                    Case{"transpose_phases", "fwd_f32_n1c1o1_i58_k4096_t1024_p4095"}));

}  // namespace
}  // namespace vkconv::vulkan
#endif
