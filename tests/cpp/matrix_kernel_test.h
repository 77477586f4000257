// What the tests of kernels on cooperative matrices share: on a device that has them the real kernels run, on a
// software device the emulated ones.
#pragma once
#include "vulkan/matrix_unit.h"
#include "vulkan_kernel_test.h"

namespace vkconv::vulkan {

class MatrixKernelTest : public VulkanKernelTest {
 protected:
  explicit MatrixKernelTest(std::string algorithm) : algorithm_(std::move(algorithm)) {}

  bool has_matrices(DType t) const { return matrix_unit(traits_, matrix_operand(t)).has_value(); }

  void expect_exact(const std::string& text, bool prepare = false) {
    if (has_matrices(parse_problem(text).dtype)) VulkanKernelTest::expect_exact(algorithm_, text, prepare);
  }
  void expect_exact_views(const ConvProblem& p, tools::HostOperands& host) {
    if (has_matrices(p.dtype)) VulkanKernelTest::expect_exact_views(algorithm_, p, host);
  }
  void expect_accurate(const std::string& text, bool positive, double most_c) {
    if (has_matrices(parse_problem(text).dtype))
      VulkanKernelTest::expect_accurate(algorithm_, text, positive, {most_c, 0.94});
  }

 private:
  const std::string algorithm_;
};

}  // namespace vkconv::vulkan
