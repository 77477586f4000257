#include "bindings/without_gil.h"

#include <pthread.h>
#include <unistd.h>

namespace vkconv::bindings {

ExitGate& ExitGate::instance() {
  static ExitGate& gate = *new ExitGate;  // daemon threads outlive static objects
  return gate;
}

ExitGate::ExitGate() {
  // The thread that forks holds the interpreter's lock; the others are not in the child.
  pthread_atfork(nullptr, nullptr, [] { instance().inside_ = 0; });
}

void ExitGate::close() {
  using namespace std::chrono;
  closer_ = std::this_thread::get_id();
  closed_ = true;
  for (const auto end = steady_clock::now() + minutes(1); inside_ > 1 && steady_clock::now() < end;)
    std::this_thread::sleep_for(milliseconds(1));
}

void raise_of_signals() {
  if (gettid() != getpid()) return;  // other threads do not take the lock
  const pybind11::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
}

}  // namespace vkconv::bindings
