// What calls on the arrays of a Vulkan device cost the host, and what a chain of them adds to its kernels:
// `vkconv_bench --vulkan --overhead PROBLEM`. The problem's output is its next input. And what planning a new shape
// costs for the described devices: `vkconv_bench --planning PROBLEM`.
#pragma once
#include <algorithm>
#include <cstdio>

#include "harness.h"
#include "timing.h"
#include "vulkan/backend.h"
#include "vulkan/description.h"

namespace vkconv::tools {

class DeviceLayers {
 public:
  DeviceLayers(const ConvProblem& p, int device) : p_(without_flip(p)), backend_(vulkan::make_backend(device)) {
    HostOperands host(p, make_arrays(p, Data::random));
    operands_ = host.operands;
    prepared_ = backend_->prepare(p_, host.operands);
    bytes_ = static_cast<std::size_t>(p.output_elements()) * size_bytes(p.output_dtype);
    host_.resize(bytes_);
    input_ = backend_->upload(flat(host_.data()));
  }

  // Records `count` layers, each on the result of the one before. `device_seconds` asks for the device's time, and
  // waits.
  std::shared_ptr<ArrayMemory> record(int count, double* device_seconds = nullptr) {
    std::shared_ptr<ArrayMemory> x = input_;
    for (int i = 0; i < count; ++i) {
      auto y = backend_->allocate(bytes_);
      Execution e{operands_, prepared_.get(), {.input = x.get(), .output = y.get()}, device_seconds};
      e.operands.input.data = x->address();
      e.operands.output.data = y->address();
      backend_->execute({p_, ""}, e);
      x = std::move(y);
    }
    return x;
  }
  void wait() { backend_->synchronize(); }
  void forget_plans() { backend_->clear_cache(); }
  std::string plan() { return backend_->summary({p_, ""}).tree; }

  // From host memory and back, through `count` layers.
  void round_trip(int count) {
    input_ = backend_->upload(flat(host_.data()));
    const auto y = record(count);
    backend_->download(*y, flat(y->address()), flat(host_.data()));
  }

 private:
  StridedArray flat(std::byte* data) const {
    StridedArray a;
    a.element_bytes = size_bytes(p_.dtype);
    a.extent.back() = p_.input_elements();
    return packed(a, data);
  }

  ConvProblem p_;
  std::unique_ptr<Backend> backend_;
  Operands<cpu::Device> operands_;
  std::shared_ptr<PreparedConv> prepared_;
  std::size_t bytes_ = 0;
  std::vector<std::byte> host_;
  std::shared_ptr<ArrayMemory> input_;
};

// Median of nine, after one that does not count.
template <class F>
double median_microseconds(F&& measured) {
  measured();
  std::vector<double> seconds(9);
  std::generate(seconds.begin(), seconds.end(), measured);
  return median(std::move(seconds)) * 1e6;
}

inline void print_planning(const ConvProblem& p) {
  for (const vulkan::Description& d : vulkan::descriptions()) {
    Planner<vulkan::Device> planner(registry<vulkan::Device>(), vulkan::traits_from_json(d.json));
    const double us = median_microseconds([&] {
      planner.clear_cache();
      return seconds_of([&] { planner.plan({without_flip(p), ""}); });
    });
    std::printf("%s %.*s %.1f us\n", to_string(p).c_str(), int(d.name.size()), d.name.data(), us);
  }
}

inline void print_device_overhead(const ConvProblem& p, int device) {
  constexpr int kChain = 10, kRecorded = 40, kWarm = 200;
  if (p.input_elements() != p.output_elements() || p.dtype != p.output_dtype)
    throw ProblemError("the output of a layer that feeds itself must have the shape of its input");
  DeviceLayers layers(p, device);
  const auto before_wait = [&](auto&& call) {
    layers.wait();
    const double s = seconds_of(call);
    layers.wait();
    return s;
  };
  layers.record(kWarm);  // an idle GPU is slow
  const double recorded =
      median_microseconds([&] { return before_wait([&] { layers.record(kRecorded); }) / kRecorded; });
  const double first = median_microseconds([&] {
    layers.forget_plans();
    return before_wait([&] { layers.record(1); });
  });
  const double kernels = kChain * median_microseconds([&] {
                           double s = 0;
                           layers.record(1, &s);
                           return s;
                         });
  const double chain = median_microseconds([&] {
    return seconds_of([&] {
      layers.record(kChain);
      layers.wait();
    });
  });
  const double there_and_back = median_microseconds([&] { return seconds_of([&] { layers.round_trip(kChain); }); });
  const double transfers = median_microseconds([&] { return seconds_of([&] { layers.round_trip(0); }); });
  std::printf("%s %s\n", to_string(p).c_str(), layers.plan().c_str());
  std::printf("  recording a call, its plan cached   %10.1f us\n", recorded);
  std::printf("  first call of a shape, no plan yet  %10.1f us\n", first);
  std::printf("  %d layers, until the result is there %9.1f us, %.2f of their device times\n", kChain, chain,
              chain / kernels);
  std::printf("  the same from host memory and back  %10.1f us, %.2f of transfers and device times\n", there_and_back,
              there_and_back / (transfers + kernels));
}

}  // namespace vkconv::tools
