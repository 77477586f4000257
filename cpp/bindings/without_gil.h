// Gives up the interpreter's lock for a scope.
#pragma once
#include <pybind11/pybind11.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "core/interruption.h"

namespace vkconv::bindings {

[[noreturn]] inline void sleep_until_the_process_ends() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

// Counts the threads that compute without the interpreter's lock. When the interpreter ends it waits for their calls
// and lets no other thread begin one: daemon threads would else meet drivers that the process is unloading.
class ExitGate {
 public:
  static ExitGate& instance();
  void enter() {
    ++inside_;
    if (!closed_ || std::this_thread::get_id() == closer_) return;
    leave();
    sleep_until_the_process_ends();
  }
  void leave() { --inside_; }
  // By a thread that is inside. Waits for a minute at most.
  void close();

 private:
  ExitGate();

  std::atomic<int> inside_ = 0;
  std::atomic<bool> closed_ = false;
  std::thread::id closer_;  // set before closed_
};

// Calls the handlers of signals that have come, in Python's main thread, and throws what they raise.
void raise_of_signals();

// Like pybind11's gil_scoped_release, but for a daemon thread that computes while the interpreter ends: Python ends a
// thread that waits for the lock then by unwinding its stack, which C++ answers by aborting the process. It sleeps
// until the process ends instead, as Python's own threads do from 3.14 on.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) { ExitGate::instance().enter(); }
  ~WithoutGil() {
    ExitGate::instance().leave();
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {  // the unwinding, which may not end here and does not go on
      sleep_until_the_process_ends();
    }
  }
  WithoutGil(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

// For work of seconds: a signal whose Python handler raises, as that of Ctrl-C does, ends it with that exception.
class WithoutGilForLong : WithoutGil {
  const Interruptible by_signals_{&raise_of_signals};
};

}  // namespace vkconv::bindings
