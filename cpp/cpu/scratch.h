// Per-thread scratch inside one plan's workspace: a fixed number of equal slots that tasks borrow. The workspace is
// sized when the plan is made; if more threads run than there are slots, a task waits for one.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>

#include "cpu/thread_pool.h"

namespace vkconv::cpu {

class ScratchSlots {
 public:
  ScratchSlots(std::byte* base, std::size_t slot_bytes, int slots)
      : base_(base),
        slot_bytes_(slot_bytes),
        slots_(slots),
        taken_(std::make_unique<std::atomic<bool>[]>(static_cast<std::size_t>(slots))) {}

  class Borrowed {
   public:
    Borrowed(ScratchSlots& owner, int slot) : owner_(owner), slot_(slot) {}
    Borrowed(const Borrowed&) = delete;
    ~Borrowed() { owner_.taken_[static_cast<std::size_t>(slot_)].store(false, std::memory_order_release); }
    std::byte* data() const { return owner_.base_ + owner_.slot_bytes_ * static_cast<std::size_t>(slot_); }

   private:
    ScratchSlots& owner_;
    int slot_;
  };

  Borrowed borrow() {
    for (;; std::this_thread::yield())
      for (int i = 0; i < slots_; ++i)
        if (!taken_[static_cast<std::size_t>(i)].exchange(true, std::memory_order_acquire)) return Borrowed(*this, i);
  }

  // f(task, scratch) for each of so many tasks, in the thread pool.
  template <class F>
  void run(std::int64_t tasks, F&& f) {
    thread_pool().run(tasks, [&](std::int64_t task) {
      const Borrowed slot = borrow();
      f(task, slot.data());
    });
  }

 private:
  std::byte* base_;
  std::size_t slot_bytes_;
  int slots_;
  std::unique_ptr<std::atomic<bool>[]> taken_;
};

}  // namespace vkconv::cpu
