// Arrays of a Vulkan device: submits, memory in the order of the work, and what happens when memory or the device is
// gone.
#if VKCONV_VULKAN
#include <cstring>
#include <thread>

#include "harness.h"
#include "vulkan/array_queue.h"
#include "vulkan_test.h"

namespace vkconv::vulkan {
namespace {

// A square convolution with as many outputs as inputs, so that its output feeds it again.
constexpr const char* kLayer = "fwd_f32_n1c8o8_i12x10_k3x3_p1x1_relu";

class VulkanArrays : public VulkanTest {
 protected:
  void SetUp() override {
    VulkanTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    backend_ = make_backend(0);
    problem_ = parse_problem(kLayer);
    tools::Arrays arrays = tools::make_arrays(problem_, tools::Data::random);
    for (double& w : arrays.weight) w /= 16;  // a long chain neither grows nor fades
    host_ = std::make_unique<tools::HostOperands>(problem_, arrays);
    synchronize();
  }
  void TearDown() override {
    memory_budget(~std::uint64_t{0});
    VulkanTest::TearDown();
  }

  void synchronize() { backend_->synchronize(); }
  void memory_budget(std::uint64_t bytes) {
    if (backend_) open_device(0)->memory().set_budget(bytes);
  }
  StridedArray host_input() const {
    StridedArray a = flat(problem_.input_elements());
    a.data = host_->input.data();
    return a;
  }
  static StridedArray flat(std::int64_t elements) {
    return packed({nullptr, {1, 1, 1, 1, 1, elements}, {}, 4}, nullptr);
  }

  // Records output = layer(input). The weight is host memory unless `weight` is given.
  std::shared_ptr<ArrayMemory> layer(const ArrayMemory& input, const ArrayMemory* weight = nullptr,
                                     PreparedConv* prepared = nullptr, double* device_seconds = nullptr) {
    auto output = backend_->allocate(static_cast<std::size_t>(problem_.output_elements()) * 4);
    Execution e{host_->operands, prepared, {&input, weight, output.get()}, device_seconds};
    e.operands.input.data = input.address();
    e.operands.output.data = output->address();
    if (weight) e.operands.weight.data = weight->address();
    backend_->execute({problem_, ""}, e);
    return output;
  }

  std::vector<float> read(const ArrayMemory& memory) {
    std::vector<float> v(static_cast<std::size_t>(problem_.output_elements()));
    StridedArray from = flat(problem_.output_elements()), to = from;
    from.data = memory.address();
    to.data = reinterpret_cast<std::byte*>(v.data());
    backend_->download(memory, from, to);
    return v;
  }

  // The same chain through host memory.
  std::vector<float> chain_on_host(int layers) {
    tools::HostOperands host = *host_;
    rebind(host);
    for (int i = 0; i < layers; ++i) {
      backend_->execute({problem_, ""}, {host.operands});
      std::memcpy(host.input.data(), host.output.data(), static_cast<std::size_t>(problem_.output_elements()) * 4);
    }
    std::vector<float> v(static_cast<std::size_t>(problem_.output_elements()));
    std::memcpy(v.data(), host.output.data(), v.size() * 4);
    return v;
  }
  void rebind(tools::HostOperands& host) const {
    host.operands.input.data = host.input.data();
    host.operands.weight.data = host.weight.data();
    host.operands.output.data = host.output.data();
  }

  std::shared_ptr<Backend> backend_;
  ConvProblem problem_;
  std::unique_ptr<tools::HostOperands> host_;
};

TEST_F(VulkanArrays, AChainOfTenIsOneSubmit) {
  const auto input = backend_->upload(host_input());
  StridedArray from = flat(problem_.weight_elements());
  from.data = host_->weight.data();
  const auto weight = backend_->upload(from);
  layer(*input, weight.get());  // the first may ask the device how matrices lie in registers
  synchronize();
  const std::uint64_t before = device_->submits();
  std::shared_ptr<ArrayMemory> y = input;
  for (int i = 0; i < 10; ++i) y = layer(*y, weight.get());
  EXPECT_EQ(device_->submits(), before);
  synchronize();
  EXPECT_EQ(device_->submits(), before + 1);
  EXPECT_EQ(read(*y), chain_on_host(10));
}

TEST_F(VulkanArrays, FreedMemoryServesLaterWork) {
  const std::uint64_t before = device_->memory().info().used_bytes;
  std::shared_ptr<ArrayMemory> y = backend_->upload(host_input());
  device_->memory().reset_peak();
  for (int i = 0; i < 50; ++i) y = layer(*y);
  const auto bytes = static_cast<std::uint64_t>(problem_.output_elements()) * 4;
  EXPECT_LE(device_->memory().info().peak_used_bytes, before + 6 * bytes + (1 << 20));
  EXPECT_EQ(read(*y), chain_on_host(50));
  y.reset();
  synchronize();
  EXPECT_EQ(device_->memory().info().used_bytes, before);
}

TEST_F(VulkanArrays, BatchesAreBounded) {
  std::shared_ptr<ArrayMemory> y = backend_->upload(host_input());
  synchronize();
  const std::uint64_t before = device_->submits();
  for (int i = 0; i < 700; ++i) y = layer(*y);
  EXPECT_GT(device_->submits(), before);
  synchronize();
}

TEST_F(VulkanArrays, PreparedWeightsServeArraysAndHostMemoryAlike) {
  const auto prepared = backend_->prepare(problem_, host_->operands);
  const auto input = backend_->upload(host_input());
  const auto y = layer(*input, nullptr, prepared.get());
  const std::vector<float> expected = chain_on_host(1);
  EXPECT_EQ(read(*y), expected);
  tools::HostOperands host = *host_;
  rebind(host);
  backend_->execute({problem_, ""}, {host.operands, prepared.get()});
  EXPECT_EQ(std::memcmp(host.output.data(), expected.data(), expected.size() * 4), 0);
}

TEST_F(VulkanArrays, DeviceTimeIsMeasuredOnDemand) {
  if (device_->traits().timestamp_seconds == 0) GTEST_SKIP() << "the device has no timestamps";
  const auto input = backend_->upload(host_input());
  double seconds = 0;
  const auto y = layer(*input, nullptr, nullptr, &seconds);
  EXPECT_GT(seconds, 0);
  EXPECT_LT(seconds, 10);
  EXPECT_EQ(read(*y), chain_on_host(1));
}

TEST_F(VulkanArrays, OutOfMemoryLeavesArraysAndDeviceWorking) {
  auto y = layer(*backend_->upload(host_input()));
  memory_budget(device_->memory().info().reserved_bytes);
  EXPECT_THROW(backend_->allocate(std::size_t{256} << 20), OutOfMemory);
  EXPECT_THROW(backend_->allocate(~std::size_t{0} / 2), OutOfMemory);
  memory_budget(~std::uint64_t{0});
  y = layer(*y);
  EXPECT_EQ(read(*y), chain_on_host(2));
}

// What nobody refers to any more is waited for before memory counts as short.
TEST_F(VulkanArrays, ShortMemoryWaitsForFreedArrays) {
  constexpr std::size_t kBytes = std::size_t{96} << 20;
  device_->memory().trim();
  memory_budget(device_->memory().info().reserved_bytes + 2 * kBytes);
  auto y = layer(*backend_->upload(host_input()));
  for (int i = 0; i < 6; ++i) {
    const auto large = backend_->allocate(kBytes + static_cast<std::size_t>(i) * 4096);
    y = layer(*y);
  }
  memory_budget(~std::uint64_t{0});
  EXPECT_EQ(read(*y), chain_on_host(7));
}

TEST_F(VulkanArrays, ArraysOfALostDeviceSaySo) {
  const auto prepared = backend_->prepare(problem_, host_->operands);
  const auto input = backend_->upload(host_input());
  const auto y = layer(*input, nullptr, prepared.get());
  device_->set_lost();
  EXPECT_THROW(layer(*y), DeviceError);
  EXPECT_THROW(read(*y), DeviceError);
  const auto again = backend_->upload(host_input());
  const auto z = layer(*again, nullptr, prepared.get());
  EXPECT_EQ(read(*z), chain_on_host(1));
  EXPECT_NE(open_device(0), device_);
}

TEST_F(VulkanArrays, ManyThreadsShareTheQueue) {
  const std::vector<float> expected = chain_on_host(5);
  std::vector<std::vector<float>> got(8);
  std::vector<std::thread> threads;
  for (auto& mine : got)
    threads.emplace_back([&] {
      for (int round = 0; round < 4; ++round) {
        std::shared_ptr<ArrayMemory> y = backend_->upload(host_input());
        for (int i = 0; i < 5; ++i) y = layer(*y);
        mine = read(*y);
      }
    });
  for (std::thread& t : threads) t.join();
  for (const auto& mine : got) EXPECT_EQ(mine, expected);
}

TEST_F(VulkanArrays, OldPipelinesAreDroppedAndMadeAgain) {
  device_->pipelines().set_capacity(2);
  const auto input = backend_->upload(host_input());
  std::shared_ptr<ArrayMemory> y = input;
  for (const char* algorithm : {"reference", "implicit_gemm", "reference", "unfold_gemm", "reference"}) {
    Execution e{.operands = host_->operands, .residents = {.input = input.get()}};
    e.operands.input.data = input->address();
    y = backend_->allocate(static_cast<std::size_t>(problem_.output_elements()) * 4);
    e.operands.output.data = y->address();
    e.residents.output = y.get();
    backend_->execute({problem_, algorithm}, e);
    EXPECT_LE(device_->pipelines().size(), 2u);
  }
  tools::HostOperands host = *host_;
  rebind(host);
  backend_->execute({problem_, "reference"}, {host.operands});
  const std::vector<float> got = read(*y);
  EXPECT_EQ(std::memcmp(host.output.data(), got.data(), got.size() * 4), 0);
  device_->pipelines().set_capacity(256);
}

}  // namespace
}  // namespace vkconv::vulkan
#endif
