// Gives up the interpreter's lock for a scope.
#pragma once
#include <pybind11/pybind11.h>

#include <chrono>
#include <thread>

namespace vkconv::bindings {

// Like pybind11's gil_scoped_release, but for a daemon thread that computes while the interpreter ends: taking the lock
// would end the thread by unwinding its stack, which C++ answers by aborting the process. It sleeps until the process
// ends instead, as Python's own threads do from 3.14 on.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    while (finalizing()) std::this_thread::sleep_for(std::chrono::hours(1));
    PyEval_RestoreThread(state_);
  }
  WithoutGil(const WithoutGil&) = delete;

 private:
  static bool finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
    return Py_IsFinalizing();
#else
    return _Py_IsFinalizing();
#endif
  }

  PyThreadState* state_;
};

}  // namespace vkconv::bindings
