// The Vulkan host layer on the first usable device, under the validation layer: any message fails the test.
#if VKCONV_VULKAN
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/interruption.h"
#include "harness.h"
#include "vulkan/backend.h"
#include "vulkan/device.h"
#include "vulkan/logical_device.h"
#include "vulkan/transfer.h"
#include "vulkan_test.h"

namespace vkconv::vulkan {
namespace {

class VulkanHost : public VulkanTest {};

std::vector<std::uint32_t> counted(std::size_t n) {
  std::vector<std::uint32_t> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<std::uint32_t>(i * 2654435761u);
  return v;
}

HostArray flat(std::vector<std::uint32_t>& v) {
  return {reinterpret_cast<std::byte*>(v.data()),
          {1, 1, 1, 1, 1, static_cast<std::int64_t>(v.size())},
          {0, 0, 0, 0, 0, 1},
          4};
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

// Else its silence would mean nothing.
TEST_F(VulkanHost, TheValidationLayerIsHeard) {
  if (std::string_view(std::getenv("VKCONV_VALIDATION")) == "0") GTEST_SKIP() << "VKCONV_VALIDATION=0: there is none";
  const vk::raii::Device& device = device_->handle();
  ASSERT_EQ(take_validation_messages(), std::vector<std::string>{});
  (void)device.createBuffer({{}, 0, vk::BufferUsageFlagBits::eStorageBuffer});  // of no bytes
  const std::vector<std::string> messages = take_validation_messages();
  ASSERT_FALSE(messages.empty());
  EXPECT_NE(messages[0].find("size"), std::string::npos) << messages[0];
}

TEST_F(VulkanHost, SaysWhyThereIsNoSuchDevice) {
  EXPECT_THROW(make_backend(-1), DeviceError);
  try {
    make_backend(1000);
    FAIL();
  } catch (const DeviceError& e) {
    EXPECT_NE(std::string(e.what()).find("vulkan:1000"), std::string::npos) << e.what();
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

// A chain of fills and copies sees each step; independent calls keep their own order.
TEST_F(VulkanHost, CommandsRunInOrder) {
  constexpr std::size_t kBytes = 1 << 20, kCount = 8;
  Stream stream(device_);
  const Buffer a = stream.allocate(kBytes * kCount), b = stream.allocate(kBytes * kCount);
  std::vector<std::uint32_t> result(kBytes * kCount / 4);
  for (const bool share_workspace : {false, true}) {
    stream.for_each_independent(kCount, share_workspace, [&](std::int64_t i) {
      const std::uint64_t at = static_cast<std::uint64_t>(i) * kBytes;
      for (std::uint32_t step = 0; step < 3; ++step) {
        stream.fill(a.pointer() + at, kBytes, static_cast<std::uint32_t>(i) * 3 + step);
        stream.copy(b.pointer() + at, a.pointer() + at, kBytes);
        if (i % 2) stream.submit();
      }
    });
    stream.copy(a.pointer(), b.pointer(), kBytes * kCount);
    download(stream, a, flat(result));
    for (std::size_t i = 0; i < result.size(); ++i) ASSERT_EQ(result[i], i * 4 / kBytes * 3 + 2);
  }
}

TEST_F(VulkanHost, MeasuresDeviceTime) {
  if (device_->traits().timestamp_seconds == 0) GTEST_SKIP() << "the device has no timestamps";
  constexpr std::size_t kBytes = 64 << 20;
  Stream stream(device_);
  const Buffer buffer = stream.allocate(kBytes);
  const auto begin = std::chrono::steady_clock::now();
  stream.start_timer();
  stream.fill(buffer.pointer(), kBytes, 1);
  stream.submit();
  stream.fill(buffer.pointer(), kBytes, 2);
  stream.stop_timer();
  stream.wait();
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_GT(stream.timed_seconds(), wall / 100);
  EXPECT_LE(stream.timed_seconds(), wall);
}

// Slices through staging buffers, as on a device whose memory the host cannot map.
TEST_F(VulkanHost, MovesArraysThroughStaging) {
  std::vector<std::uint32_t> from = counted(20'000'003), to(from.size());
  Stream stream(device_);
  const Buffer a = stream.allocate(from.size() * 4);
  upload_staged(stream, flat(from), a.pointer());
  download_staged(stream, a.pointer(), flat(to));
  EXPECT_TRUE(from == to);
}

// The device may still write what an interrupted transfer leaves behind.
TEST_F(VulkanHost, AnInterruptedTransferKeepsItsStaging) {
  std::vector<std::uint32_t> to(20'000'003);
  Stream stream(device_);
  const Buffer from = stream.allocate(to.size() * 4);
  const Interruptible by([] { throw ProblemError("interrupted"); });
  const auto download_for_ever = [&] {
    for (;;) download_staged(stream, from.pointer(), flat(to));
  };
  EXPECT_THROW(download_for_ever(), ProblemError);
  EXPECT_GT(stream.kept_bytes(), 0u);
}

TEST(VulkanTransfer, PacksAnyStrides) {
  std::vector<std::uint32_t> host = counted(7 * 6 * 5 * 4), packed(3 * 6 * 2 * 4), back(host.size());
  // Axis 0 backwards from 6 in steps of 2, axis 2 backwards from 3 in steps of 2, the last axis contiguous.
  HostArray array{
      reinterpret_cast<std::byte*>(host.data() + 6 * 120 + 3 * 4), {3, 6, 2, 1, 1, 4}, {-240, 20, -8, 9, 9, 1}, 4};
  ASSERT_EQ(array.elements(), 3 * 6 * 2 * 4);
  pack(array, 0, array.elements(), reinterpret_cast<std::byte*>(packed.data()));
  std::size_t i = 0;
  for (int a = 6; a >= 2; a -= 2)
    for (int b = 0; b < 6; ++b)
      for (int c = 3; c >= 1; c -= 2)
        for (int d = 0; d < 4; ++d, ++i)
          ASSERT_EQ(packed[i], host[static_cast<std::size_t>(((a * 6 + b) * 5 + c) * 4 + d)]);
  array.data = reinterpret_cast<std::byte*>(back.data() + 6 * 120 + 3 * 4);
  unpack(array, 0, 50, reinterpret_cast<const std::byte*>(packed.data()));
  unpack(array, 50, array.elements(), reinterpret_cast<const std::byte*>(packed.data() + 50));
  std::size_t written = 0;
  for (std::size_t j = 0; j < back.size(); ++j) {
    written += back[j] != 0;
    EXPECT_TRUE(back[j] == 0 || back[j] == host[j]);
  }
  EXPECT_EQ(written, packed.size());
}

// ---- the reference algorithm proves streams, parameters, pipelines and the backend

class VulkanReference : public VulkanHost, public ::testing::WithParamInterface<const char*> {};

TEST_P(VulkanReference, EqualsCpu) {
  const ConvProblem p = parse_problem(GetParam());
  if (!supports_dtype(device_->traits(), p.dtype)) GTEST_SKIP() << "the device has no 64-bit floats";
  Planner<cpu::Device> cpu(registry<cpu::Device>(), cpu::host_traits());
  const auto backend = make_backend(0);
  tools::Arrays arrays = tools::make_arrays(p, tools::Data::small_integers);
  if (p.epilogue.activation <= Activation::relu6) {
    EXPECT_EQ(run_backend(*backend, p, arrays, "reference"), tools::run_cpu(p, arrays, cpu, "reference"));
  }
  arrays = tools::make_arrays(p, tools::Data::random);
  const auto a = tools::accuracy(p, arrays, run_backend(*backend, p, arrays, "reference"), cpu);
  EXPECT_TRUE(a.finite);
  if (size_bytes(p.output_dtype) == 2)
    EXPECT_GE(a.rounded, 0.99);
  else
    EXPECT_LE(a.c, 8);
}

INSTANTIATE_TEST_SUITE_P(
    Problems, VulkanReference,
    testing::Values("fwd_f32_n2c3o4_i9x7_k3x3_p1x1", "fwd_f32_n1c4o6g2_i5x6x7_k2x3x3_s2x1x2_p1x0:1x2_d1x2x1_bias_relu",
                    "fwd_f32_n2c3o5_i9_k3_t2_p2_flip_bias_gelu", "fwd_f16_n1c5o3_i8x9_k3x2_p1x1_bias_silu",
                    "fwd_bf16_n2c4o4g4_i7x5_k3x3_p1x1_add_relu6", "fwd_f16>f32_n1c3o2_i6_k3_p1_add",
                    "fwd_f64_n1c3o4_i6x6_k3x3_p1x1_bias", "fwd_f64_n1c3o4_i6x6_k3x3_p1x1_bias_tanh",
                    "fwd_f32_n1c2o3_i8_k3_t2_p-1", "fwd_f32_n1c3o4_i9x9_k3x3_p1x1_tanh",
                    "fwd_f32_n1c3o4_i9x9_k3x3_p1x1_leaky_relu0.1", "fwd_f32_n1c3o4_i9x9_k3x3_p1x1_bias_hardswish",
                    "fwd_f32_n1c3o4_i9x9_k3x3_p1x1_clip-1:0.5", "fwd_f32_n1c3o4_i9x9_k3x3_p1x1_sigmoid",
                    "fwd_f32_n1c700o2_i4_k3_p1", "fwd_f32_n3c1o70_i40x41_k1x1_p0x0", "igrad_f32_n2c3o4_i9_k3_s2_p1",
                    "igrad_f16_n2c6o4g2_i9x8_k3x2_s3x2_d2x1_p1x2_flip", "igrad_f64_n1c2o3_i4x5x6_k2x3x1_s2x1x4_p1x1x0",
                    "igrad_bf16_n1c4o4_i8_k3_t2_s3_p-1", "wgrad_f32_n2c6o4g2_i9x8_k3x2_s2x1_p1x2",
                    "wgrad_f16>f32_n3c2o3_i5x5_k2x2_p0x0_flip", "wgrad_f64_n1c2o2_i5x4x3_k2x2x2_p0x0x0",
                    "wgrad_f32_n1c2o2_i3000_k3_p1"));

TEST_F(VulkanHost, EmptySumsAndEmptyArrays) {
  Planner<cpu::Device> cpu(registry<cpu::Device>(), cpu::host_traits());
  const auto backend = make_backend(0);
  for (const char* text : {"fwd_f32_n0c3o4_i9_k3_p1", "fwd_f32_n2c0o4_i9_k3_p1_bias_relu", "igrad_f32_n2c3o0_i9_k3_p1",
                           "wgrad_f32_n0c3o4_i9_k3_p1"}) {
    const ConvProblem p = parse_problem(text);
    const tools::Arrays arrays = tools::make_arrays(p, tools::Data::small_integers);
    EXPECT_EQ(run_backend(*backend, p, arrays, "reference"), tools::run_cpu(p, arrays, cpu, "reference")) << text;
  }
}

TEST_F(VulkanHost, StridedAndBroadcastHostViews) {
  const ConvProblem p = parse_problem("fwd_f32_n3c2o2_i6x5_k3x3_p1x1");
  Planner<cpu::Device> cpu(registry<cpu::Device>(), cpu::host_traits());
  const auto backend = make_backend(0);
  tools::HostOperands host(p, tools::make_arrays(p, tools::Data::small_integers));
  View<std::byte*>& x = host.operands.input;
  x.stride[0] = 0;                  // one image for the batch
  x = x.sliced(2, 5, -1, p.dtype);  // upside down
  std::vector<double> results[2];
  for (int i = 0; i < 2; ++i) {
    std::memset(host.written, 0xff, host.output.size());
    const PlanRequest request{p, "reference"};
    if (i == 0) {
      backend->execute(request, {host.operands});
    } else {
      cpu::Device::Stream stream;
      cpu.plan(request)->execute(stream, host.operands, nullptr);
    }
    results[i] = host.result(p);
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST_F(VulkanHost, PreparedWeightsAreACopy) {
  const ConvProblem p = parse_problem("fwd_f32_n1c3o4_i9x9_k3x3_p1x1");
  const auto backend = make_backend(0);
  tools::Arrays arrays = tools::make_arrays(p, tools::Data::small_integers);
  const std::vector<double> expected = run_backend(*backend, p, arrays, "reference");
  tools::HostOperands host(p, arrays);
  const auto prepared = backend->prepare(p, host.operands);
  std::fill(arrays.weight.begin(), arrays.weight.end(), 100.0);
  EXPECT_EQ(run_backend(*backend, p, arrays, "reference", prepared.get()), expected);
  EXPECT_NE(run_backend(*backend, p, arrays, "reference"), expected);
}

TEST_F(VulkanHost, LongDispatchesAreCutWithoutChangingTheResult) {
  // By the estimate of a software device's rates this takes several submits.
  const ConvProblem p = parse_problem("fwd_f32_n1c16o16_i40x40_k5x5_p2x2");
  Planner<cpu::Device> cpu(registry<cpu::Device>(), cpu::host_traits());
  Planner<Device> planner(registry<Device>(), device_->traits());
  double seconds = 0;
  for (const Candidate& c : planner.explain(p, kDefaultWorkspaceLimitBytes))
    if (c.name == "reference") seconds = c.seconds;
  const auto backend = make_backend(0);
  const tools::Arrays arrays = tools::make_arrays(p, tools::Data::small_integers);
  const std::uint64_t before = device_->submits();
  EXPECT_EQ(run_backend(*backend, p, arrays, "reference"), tools::run_cpu(p, arrays, cpu, "reference"));
  EXPECT_GE(static_cast<double>(device_->submits() - before), seconds / kSubmitSeconds);
}

TEST_F(VulkanHost, ManyThreadsAtOnce) {
  const auto backend = make_backend(0);
  const char* texts[] = {"fwd_f32_n2c3o4_i9x7_k3x3_p1x1", "fwd_f16_n1c5o3_i8x9_k3x2_p1x1_bias",
                         "wgrad_f32_n2c6o4g2_i9x8_k3x2_s2x1_p1x2", "fwd_f32_n1c8o8_i12x12_k3x3_p1x1_relu"};
  std::vector<std::vector<double>> expected, got(16);
  for (const char* text : texts) {
    const ConvProblem p = parse_problem(text);
    expected.push_back(run_backend(*backend, p, tools::make_arrays(p, tools::Data::random), "reference"));
  }
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < got.size(); ++t)
    threads.emplace_back([&, t] {
      const ConvProblem p = parse_problem(texts[t % 4]);
      for (int i = 0; i < 5; ++i)
        got[t] = run_backend(*backend, p, tools::make_arrays(p, tools::Data::random), "reference");
    });
  for (std::thread& t : threads) t.join();
  for (std::size_t t = 0; t < got.size(); ++t) EXPECT_EQ(got[t], expected[t % 4]);
}

TEST_F(VulkanHost, ALostDeviceIsCreatedAgain) {
  const ConvProblem p = parse_problem("fwd_f32_n1c3o4_i9x9_k3x3_p1x1");
  const auto backend = make_backend(0);
  const tools::Arrays arrays = tools::make_arrays(p, tools::Data::small_integers);
  tools::HostOperands host(p, arrays);
  const auto prepared = backend->prepare(p, host.operands);
  const auto expected = run_backend(*backend, p, arrays, "reference", prepared.get());
  device_->set_lost();
  EXPECT_EQ(run_backend(*backend, p, arrays, "reference", prepared.get()), expected);
  EXPECT_NE(open_device(0), device_);
  EXPECT_FALSE(open_device(0)->lost());
}

TEST_F(VulkanHost, AForkedChildIsTold) {
  const pid_t child = fork();
  if (child == 0) {
    int code = 1;
    try {
      Buffer buffer = device_->allocate(1024);
    } catch (const DeviceError&) {
      code = enumerate_devices().devices.empty() ? 0 : 2;
    }
    _exit(code);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace vkconv::vulkan
#endif
