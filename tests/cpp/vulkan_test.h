// Tests on the first usable Vulkan device, under the validation layer: any message fails the test.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "harness.h"
#include "vulkan/backend.h"
#include "vulkan/device.h"
#include "vulkan/logical_device.h"

namespace vkconv::vulkan {

class VulkanTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { setenv("VKCONV_VALIDATION", "1", 0); }
  void SetUp() override {
    const DeviceList& list = enumerate_devices();
    ASSERT_EQ(list.reason.find("VKCONV_VALIDATION"), std::string::npos) << list.reason;
    if (list.devices.empty()) GTEST_SKIP() << list.reason;
    ASSERT_EQ(list.devices[0].unusable, "");
    device_ = open_device(0);
    take_validation_messages();
  }
  void TearDown() override {
    for (const std::string& message : take_validation_messages()) ADD_FAILURE() << message;
  }

  std::shared_ptr<LogicalDevice> device_;
};

inline std::vector<double> run_backend(Backend& backend, const ConvProblem& p, const tools::Arrays& arrays,
                                       const std::string& algorithm, PreparedConv* prepared = nullptr) {
  tools::HostOperands host(p, arrays);
  backend.execute({tools::without_flip(p), algorithm}, {host.operands, prepared});
  return host.result(p);
}

}  // namespace vkconv::vulkan
