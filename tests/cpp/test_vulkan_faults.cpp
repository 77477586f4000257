// Vulkan functions and host memory that fail anywhere in a call: an exception, nothing leaked (the validation layer
// counts the objects of a device that ends), and the next call is right.
#if VKCONV_VULKAN
#include <gtest/gtest.h>

#include <optional>

#include "fault_calls.h"
#include "host_faults.h"
#include "vulkan/array_queue.h"
#include "vulkan_faults.h"
#include "vulkan_test.h"

namespace vkconv::vulkan {
namespace {

constexpr std::int64_t kMostCalls = 5000;

class VulkanFaultsTest : public VulkanTest {
 protected:
  void SetUp() override {
    VulkanTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    faults_ = std::make_unique<VulkanFaults>(Instance::get().devices()[0]);
    backend_ = make_backend(0);
    replace_device();
  }
  void TearDown() override {
    backend_.reset();
    faults_.reset();
    replace_device();
    VulkanTest::TearDown();
  }

  // By one whose functions can fail, or no longer can.
  void replace_device() {
    if (!device_) return;
    device_->set_lost();
    device_ = open_device(0);
  }

  // What the call gives, or nothing when it raised what it may raise.
  static std::optional<std::vector<double>> attempt(const tools::Call& call) try {
    return call.run();
  } catch (const Error&) {
    return std::nullopt;
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }

  // `arm(n)` makes the n-th of something fail, `disarm()` says what failed.
  template <class Arm, class Disarm>
  void expect_survival(const tools::FaultCall& c, Arm&& arm, Disarm&& disarm) {
    const tools::Call call(c, *backend_);
    const std::vector<double> expected = call.run();
    std::string failed = "-";
    for (std::int64_t n = 0; !failed.empty() && n < kMostCalls; ++n) {
      device_->memory().trim();
      device_->pipelines().set_capacity(0);
      device_->pipelines().set_capacity(64);
      arm(n);
      const auto got = attempt(call);
      failed = disarm();
      const std::string where = std::string(c.problem) + ", failure " + std::to_string(n) + " of " + failed;
      ASSERT_TRUE(!failed.empty() || got) << where;
      ASSERT_EQ(got.value_or(expected), expected) << where;
      ASSERT_EQ(call.run(), expected) << "the call after: " << where;
      device_ = open_device(0);
      ASSERT_EQ(memory_info(0).used_bytes, 0u) << where;
    }
    EXPECT_EQ(failed, "");
  }

  void expect_survival_of(const tools::FaultCall& c, vk::Result result) {
    expect_survival(
        c, [&](std::int64_t n) { faults_->arm(n, result); }, [&] { return faults_->disarm(); });
  }

  std::unique_ptr<VulkanFaults> faults_;
  std::unique_ptr<Backend> backend_;
};

// Every `share`-th of the calls, or all of them.
std::vector<tools::FaultCall> chosen_calls(std::size_t share) {
  std::vector<tools::FaultCall> calls;
  for (std::size_t i = 0; i < std::size(tools::kFaultCalls); i += tools::full() ? 1 : share)
    calls.push_back(tools::kFaultCalls[i]);
  return calls;
}

TEST_F(VulkanFaultsTest, OutOfDeviceMemory) {
  for (const tools::FaultCall& c : chosen_calls(4)) expect_survival_of(c, vk::Result::eErrorOutOfDeviceMemory);
}

TEST_F(VulkanFaultsTest, LostDevice) {
  for (const tools::FaultCall& c : chosen_calls(4)) expect_survival_of(c, vk::Result::eErrorDeviceLost);
}

TEST_F(VulkanFaultsTest, NewDevice) {
  std::string failed = "-";
  for (std::int64_t n = 0; !failed.empty() && n < kMostCalls; ++n) {
    device_->set_lost();
    faults_->arm(n, vk::Result::eErrorOutOfHostMemory);
    bool opened = true;
    try {
      device_ = open_device(0);
    } catch (const OutOfMemory&) {
      opened = false;
    }
    failed = faults_->disarm();
    EXPECT_EQ(opened, failed.empty());
    device_ = open_device(0);
  }
}

TEST_F(VulkanFaultsTest, HostMemory) {
  for (const tools::FaultCall& c : chosen_calls(20)) {
    std::optional<tools::HostFaults> faults;
    expect_survival(
        c, [&](std::int64_t n) { faults.emplace(n, tools::Shortage::once); },
        [&] {
          const bool fired = faults->fired();
          faults.reset();
          return std::string(fired ? "operator new" : "");
        });
  }
}

}  // namespace
}  // namespace vkconv::vulkan
#endif
