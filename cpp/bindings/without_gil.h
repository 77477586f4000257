// Gives up the interpreter's lock for a scope.
#pragma once
#include <pybind11/pybind11.h>

#include <chrono>
#include <thread>

namespace vkconv::bindings {

// Like pybind11's gil_scoped_release, but for a daemon thread that computes while the interpreter ends: Python ends a
// thread that waits for the lock then by unwinding its stack, which C++ answers by aborting the process. It sleeps
// until the process ends instead, as Python's own threads do from 3.14 on.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {  // the unwinding, which may not end here and does not go on
      for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    }
  }
  WithoutGil(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace vkconv::bindings
