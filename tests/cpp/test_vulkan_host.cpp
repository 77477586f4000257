#if VKCONV_VULKAN
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "harness.h"
#include "vulkan/backend.h"
#include "vulkan/device.h"
#include "vulkan/logical_device.h"
#include "vulkan/transfer.h"

namespace vkconv::vulkan {
namespace {

// Runs on the first usable device, under the validation layer where it is installed. Any message fails the test.
class VulkanHost : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("VKCONV_VALIDATION", "1", 1);
  }
  void SetUp() override {
    const DeviceList& list = enumerate_devices();
    if (list.devices.empty()) GTEST_SKIP() << list.reason;
    ASSERT_EQ(list.devices[0].unusable, "");
    device_ = open_device(0);
  }
  void TearDown() override {
    for (const std::string& message : take_validation_messages()) ADD_FAILURE() << message;
  }

  std::shared_ptr<LogicalDevice> device_;
};

std::vector<std::uint32_t> counted(std::size_t n) {
  std::vector<std::uint32_t> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<std::uint32_t>(i * 2654435761u);
  return v;
}

HostArray flat(std::vector<std::uint32_t>& v) {
  return {reinterpret_cast<std::byte*>(v.data()), {1, 1, 1, 1, 1, static_cast<std::int64_t>(v.size())},
          {0, 0, 0, 0, 0, 1}, 4};
}

TEST_F(VulkanHost, DescribesDevices) {
  for (const DeviceInfo& info : enumerate_devices().devices) {
    const Limits& l = info.traits.limits;
    EXPECT_FALSE(info.traits.name.empty());
    EXPECT_GE(l.shared_memory_bytes, 16u << 10);
    EXPECT_GE(l.workgroup_invocations, 128u);
    EXPECT_GE(l.subgroup_size, 1u);
    EXPECT_LE(l.min_subgroup_size, l.max_subgroup_size);
    EXPECT_GE(l.memory_bytes, std::uint64_t{64} << 20);
  }
}

TEST_F(VulkanHost, MovesArraysThroughDeviceMemory) {
  std::vector<std::uint32_t> from = counted(3'000'001), to(from.size());
  Stream stream(device_);
  const Buffer a = stream.allocate(from.size() * 4), b = stream.allocate(from.size() * 4);
  upload(stream, flat(from), a);
  stream.fill(b.pointer(), 4096, 7);
  stream.copy(b.pointer() + 8, a.pointer() + 8, from.size() * 4 - 8);
  download(stream, b, flat(to));
  EXPECT_EQ(to[0], 7u);
  EXPECT_EQ(to[1], 7u);
  EXPECT_TRUE(std::equal(to.begin() + 2, to.end(), from.begin() + 2));
}

}  // namespace
}  // namespace vkconv::vulkan
#endif
