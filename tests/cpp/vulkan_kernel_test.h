// What the tests of kernels share: one algorithm by its name beside the CPU's reference.
#pragma once
#include "vulkan_harness.h"
#include "vulkan_test.h"

namespace vkconv::vulkan {

class VulkanKernelTest : public VulkanTest {
 protected:
  // What an answer may differ from the exact one.
  struct Bounds {
    double c = 8;           // see tools::Accuracy
    double rounded = 0.99;  // least share of correctly rounded halves
  };

  void SetUp() override {
    VulkanTest::SetUp();
    if (device_) traits_ = device_->traits();
  }

  std::vector<double> run(const ConvProblem& p, const tools::Arrays& arrays, const std::string& algorithm,
                          std::size_t workspace_limit = kDefaultWorkspaceLimitBytes, bool prepare = false) {
    Planner<Device> planner(registry<Device>(), traits_);
    Stream stream(device_);
    return tools::run_vulkan(p, arrays, planner, stream, algorithm, workspace_limit, prepare);
  }
  std::vector<double> reference(const ConvProblem& p, const tools::Arrays& arrays) {
    return tools::run_cpu(p, arrays, cpu_, "reference");
  }

  // Exactly the reference's bits.
  void expect_exact(const std::string& algorithm, const std::string& text, bool prepare = false) {
    const ConvProblem p = parse_problem(text);
    if (!supports_dtype(traits_, p.dtype)) return;
    const tools::Arrays arrays = tools::make_arrays(p, tools::Data::small_integers);
    EXPECT_EQ(run(p, arrays, algorithm, kDefaultWorkspaceLimitBytes, prepare), reference(p, arrays))
        << algorithm << " " << text << (prepare ? " prepared" : "");
  }

  // The same where the input and the output are views of the arrays in `host`, whose other elements stay.
  void expect_exact_views(const std::string& algorithm, const ConvProblem& p, tools::HostOperands& host) {
    tools::HostOperands got = host;
    const auto move_to = [](std::byte* at, const std::vector<std::byte>& from, std::vector<std::byte>& to) {
      return to.data() + (at - from.data());
    };
    got.operands.input.data = move_to(host.operands.input.data, host.input, got.input);
    got.operands.output.data = move_to(host.operands.output.data, host.output, got.output);
    got.operands.weight.data = got.weight.data();
    got.operands.bias = got.bias.data();
    got.operands.addend.data = got.addend.data();
    cpu::Device::Stream cpu_stream;
    cpu_.plan({p, "reference"})->execute(cpu_stream, host.operands, nullptr);
    Planner<Device> planner(registry<Device>(), traits_);
    Stream stream(device_);
    const tools::DeviceOperands device(got, stream);
    tools::execute(*planner.plan({p, algorithm}), stream, device.operands, false);
    device.download(got, stream);
    EXPECT_EQ(got.output, host.output) << algorithm << " " << to_string(p);
  }

  void expect_accurate(const std::string& algorithm, const std::string& text) {
    expect_accurate(algorithm, text, false, Bounds{});
  }
  // Random data, or its absolute values: sums that only grow.
  void expect_accurate(const std::string& algorithm, const std::string& text, bool positive, const Bounds& bounds) {
    const ConvProblem p = parse_problem(text);
    if (!supports_dtype(traits_, p.dtype)) return;
    tools::Arrays arrays = tools::make_arrays(p, tools::Data::random);
    if (positive) arrays = tools::magnitudes(std::move(arrays));
    const auto a = tools::accuracy(p, arrays, run(p, arrays, algorithm), cpu_);
    const std::string name = algorithm + " " + text + (positive ? " positive" : "");
    EXPECT_TRUE(a.finite) << name;
    EXPECT_LE(a.c, bounds.c) << name;
    EXPECT_GE(size_bytes(p.output_dtype) == 2 ? a.rounded : 1, bounds.rounded) << name;
  }

  Traits traits_;
  Planner<cpu::Device> cpu_{registry<cpu::Device>(), cpu::host_traits()};
};

}  // namespace vkconv::vulkan
