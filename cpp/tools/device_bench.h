// Times plans on a Vulkan device by its own timestamps, for problems of any size: arrays are filled on the device from
// one block of random numbers, and answers are checked at randomly chosen elements.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <thread>

#include "algorithms/registry_vulkan.h"
#include "definition.h"
#include "harness.h"
#include "timing.h"
#include "vulkan/backend.h"
#include "vulkan_harness.h"

namespace vkconv::tools {

// Numbers that every array repeats, as the type of its elements holds them.
class RandomBlock {
 public:
  RandomBlock(vulkan::Stream& stream, DType t) : type_(t) {
    std::mt19937 random(7);
    values_ = make_values(kElements, t, Data::random, random);
    const std::vector<std::byte> bytes = encode(values_, t);
    staging_ = stream.allocate(bytes.size(), vulkan::MemoryKind::staging);
    std::memcpy(staging_.mapped(), bytes.data(), bytes.size());
    block_ = stream.allocate(bytes.size());
    stream.copy(block_.pointer(), staging_.pointer(), bytes.size());
  }

  double value(std::int64_t element) const { return values_[static_cast<std::size_t>(element % kElements)]; }

  void repeat(vulkan::Stream& stream, const vulkan::Buffer& to) const {
    const std::size_t period = kElements * size_bytes(type_);
    for (std::size_t at = 0; at < to.size_bytes(); at += period)
      stream.copy(to.pointer() + at, block_.pointer(), std::min(period, to.size_bytes() - at));
  }

 private:
  static constexpr std::int64_t kElements = 3'999'974;  // even, for copies of fours of bytes; 2 * a prime
  DType type_;
  std::vector<double> values_;
  vulkan::Buffer staging_, block_;
};

class DeviceBench {
 public:
  explicit DeviceBench(int index)
      : planner(registry<vulkan::Device>(), usable_traits(index)),
        device_(vulkan::open_device(index)),
        stream_(device_) {}

  Planner<vulkan::Device> planner;

  // Creates the pipelines of plans by several threads, so that timing does not wait for them: recorded, never
  // submitted.
  void compile(const std::vector<std::pair<ConvProblem, std::string>>& requests, bool prepared) {
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
      for (std::size_t i; (i = next++) < requests.size();) {
        const auto& [p, algorithm] = requests[i];
        if (p.flops() > kMostCompiledFlops) continue;
        try {
          std::unique_ptr<Arrays> arrays;  // outlive the stream, which may submit long work
          vulkan::Stream stream(device_);
          const auto plan = planner.plan({without_flip(p), algorithm});
          arrays = std::make_unique<Arrays>(p, *plan, stream, prepared);
          plan->execute(stream, arrays->operands, arrays->workspace.pointer());
        } catch (const std::exception& e) {
          std::fprintf(stderr, "%s %s: %s\n", to_string(p).c_str(), algorithm.c_str(), e.what());
        }
      }
    };
    std::vector<std::thread> threads(std::max(2u, std::thread::hardware_concurrency()));
    for (std::thread& t : threads) t = std::thread(work);
    for (std::thread& t : threads) t.join();
  }

  struct Result {
    double seconds = 0;
    Accuracy accuracy;
  };

  Result run(const ConvProblem& p, const Plan<vulkan::Device>& plan, bool prepared, bool check, double budget) {
    const RandomBlock& numbers = block(p.dtype);
    Arrays arrays(p, plan, stream_, false);
    for (const vulkan::Buffer* b : {&arrays.input, &arrays.weight, &arrays.output})
      if (b != &arrays.written(p)) numbers.repeat(stream_, *b);
    stream_.fill(arrays.written(p).pointer(), arrays.written(p).size_bytes(), 0xffffffffu);
    if (prepared) arrays.prepare(plan, stream_);
    Result r;
    r.seconds = median_seconds([&] { plan.execute(stream_, arrays.operands, arrays.workspace.pointer()); }, budget);
    if (check) r.accuracy = sampled_accuracy(p, arrays.written(p), numbers);
    return r;
  }

 private:
  static constexpr double kMostCompiledFlops = 2e11;  // a stream submits by itself what takes longer

  struct Arrays {
    Arrays(const ConvProblem& p, const Plan<vulkan::Device>& plan, vulkan::Stream& stream, bool prepared)
        : input(make(stream, p.input_elements(), p.dtype_of(Pass::input_grad))),
          weight(make(stream, p.weight_elements(), p.dtype_of(Pass::weight_grad))),
          output(make(stream, p.output_elements(), p.dtype_of(Pass::forward))),
          workspace(stream.allocate(std::max<std::size_t>(plan.workspace_bytes(), 4))) {
      operands.input = contiguous_view(input.pointer(), p.input, p.in_channels);
      operands.output = contiguous_view(output.pointer(), p.output, p.out_channels);
      operands.weight = contiguous_weight(weight.pointer(), p);
      if (p.flip) operands.weight = operands.weight.mirrored(p.kernel, p.dtype_of(Pass::weight_grad));
      if (prepared) prepare(plan, stream);
    }
    static vulkan::Buffer make(vulkan::Stream& stream, std::int64_t elements, DType t) {
      return stream.allocate((static_cast<std::size_t>(elements) * size_bytes(t) + 3) / 4 * 4);
    }
    void prepare(const Plan<vulkan::Device>& plan, vulkan::Stream& stream) {
      weights = plan.prepare(stream, operands.weight);
      operands.prepared = &weights;
    }
    const vulkan::Buffer& written(const ConvProblem& p) const {
      return p.pass == Pass::forward ? output : p.pass == Pass::input_grad ? input : weight;
    }
    vulkan::Buffer input, weight, output, workspace;
    PreparedWeights<vulkan::Device> weights;
    Operands<vulkan::Device> operands;
  };

  const RandomBlock& block(DType t) {
    auto& found = blocks_[static_cast<std::size_t>(t)];
    if (!found) found = std::make_unique<RandomBlock>(stream_, t);
    return *found;
  }

  // Of one execution among many between two timestamps, the clocks warmed up.
  template <class F>
  double median_seconds(F&& execute, double budget) {
    const auto batch = [&](int count) {
      stream_.start_timer();
      for (int i = 0; i < count; ++i) execute();
      stream_.stop_timer();
      stream_.wait();
      last_busy_ = now();
      return stream_.timed_seconds() / count;
    };
    constexpr int kBatches = 5;
    constexpr double kIdleSeconds = 0.2;                       // after which an idle GPU lowers its clocks
    constexpr double kColdSeconds = 0.6, kWarmSeconds = 0.02;  // to reach its clocks again, or to fill its caches
    const double busy = last_busy_;
    double once = batch(1);  // the device idles while pipelines that compile() left out are compiled
    if (budget <= 0) return once;
    const double begin = now(), warm = begin - busy > kIdleSeconds ? kColdSeconds : kWarmSeconds;
    int count;
    do {
      count = std::clamp(static_cast<int>(budget / kBatches / std::max(once, 1e-6)), 1, 2000);
      once = batch(count);
    } while (now() - begin < warm);
    std::vector<double> times(kBatches);
    for (double& seconds : times) seconds = batch(count);
    return median(std::move(times));
  }

  Accuracy sampled_accuracy(const ConvProblem& p, const vulkan::Buffer& written, const RandomBlock& numbers) {
    constexpr double kSampledTerms = 1 << 24;  // take a tenth of a second
    const double terms = p.flops() / 2 / static_cast<double>(p.written_elements());
    const auto samples = static_cast<std::int64_t>(std::clamp(kSampledTerms / terms, 256., 16384.));
    const vulkan::Buffer staging = stream_.allocate(written.size_bytes(), vulkan::MemoryKind::staging);
    stream_.copy(staging.pointer(), written.pointer(), written.size_bytes());
    stream_.wait();
    std::mt19937_64 random(11);
    std::vector<double> got, exact, magnitude;
    const Definition definition(p, [&](std::int64_t element) { return numbers.value(element); });
    for (std::int64_t i = 0; i < samples; ++i) {
      const auto element = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(p.written_elements()));
      const Sum s = definition(element);
      got.push_back(decode(staging.mapped() + element * size_bytes(p.output_dtype), 1, p.output_dtype)[0]);
      exact.push_back(s.value);
      magnitude.push_back(s.magnitude);
    }
    return accuracy(p, got, exact, magnitude);
  }

  std::shared_ptr<vulkan::LogicalDevice> device_;
  vulkan::Stream stream_;
  std::unique_ptr<RandomBlock> blocks_[4];
  double last_busy_ = 0;
};

}  // namespace vkconv::tools
