// Records work in order, submits it and waits for it. One stream is used by one thread at a time; streams of
// different threads share the device's queue.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include "vulkan/buffer.h"
#include "vulkan/kernel.h"
#include "vulkan/traits.h"

namespace vkconv::vulkan {

class LogicalDevice;

// Workgroups along x, y, z.
using Groups = std::array<std::uint32_t, 3>;

// Work of one submit. Displays and other processes wait while it runs, and drivers kill work that takes seconds.
inline constexpr double kSubmitSeconds = 0.05;

class Stream {
 public:
  explicit Stream(std::shared_ptr<LogicalDevice> device);
  Stream(Stream&&) noexcept;
  ~Stream();  // waits for submitted work; recorded work that was not submitted is dropped

  // Runs `kernel` over `groups` workgroups. `params` is copied, for the shader's uniforms (scalar layout), see
  // glsl/dispatch.glsl.
  // `seconds` estimates the run time: a long dispatch is cut into several, and submits stay under kSubmitSeconds. Where
  // the thread is interruptible it waits for the last submit but one, as what is submitted runs to its end.
  // Zero groups along an axis record nothing.
  template <class Params>
  void dispatch(const Kernel& kernel, const Params& params, Groups groups, double seconds = 0) {
    static_assert(std::is_trivially_copyable_v<Params> && sizeof(Params) <= kMaxParamsBytes);
    dispatch_bytes(kernel, std::as_bytes(std::span(&params, 1)), groups, seconds);
  }
  // The workgroups of a one-dimensional count, folded into two axes under the device's limits. The shader's index
  // is linear_group(), and it returns when that is not below `count`.
  Groups linear_groups(std::int64_t count) const;

  // Each dispatch, copy and fill waits for the ones before it, except here: f(0) .. f(count - 1) write disjoint
  // memory and may run at the same time. What one call records is in order. Calls that share a workspace run one
  // after another.
  template <class F>
  void for_each_independent(std::int64_t count, bool share_workspace, F&& f) {
    const std::uint64_t before = recorded();
    for (std::int64_t i = 0; i < count; ++i) {
      if (!share_workspace && recorded() != before) wait_before_next(false);
      f(i);
    }
    wait_before_next(true);
  }
  void copy(Pointer to, Pointer from, std::size_t bytes);
  void fill(Pointer to, std::size_t bytes, std::uint32_t value);

  Buffer allocate(std::size_t bytes);  // throws OutOfMemory
  Buffer allocate(std::size_t bytes, MemoryKind kind);
  const Buffer& keep(Buffer buffer);  // until wait() returns

  // What was recorded so far; does not wait, returns the number to wait for. After a failure for want of memory the
  // next submit tries again.
  std::uint64_t submit();
  void wait_for(std::uint64_t number);  // a submit of this stream
  void wait();                          // submits and waits for everything

  // Device time between the two calls, known after wait(): 0 on devices without timestamps.
  void start_timer();
  void stop_timer();
  double timed_seconds() const;

  std::uint64_t recorded() const;      // commands since the stream was made
  double unsubmitted_seconds() const;  // estimate of what is recorded and not submitted
  std::size_t kept_bytes() const;      // in buffers of keep()

  const Traits& traits() const;
  LogicalDevice& device() const;

 private:
  struct State;
  void dispatch_bytes(const Kernel& kernel, std::span<const std::byte> params, Groups groups, double seconds);

  // Whether the next command waits for the earlier ones.
  void wait_before_next(bool waits);

  std::unique_ptr<State> state_;
};

}  // namespace vkconv::vulkan
