#pragma once
#include <stdexcept>

namespace vkconv {

// Root of every exception this library throws on its own account.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The caller asked for something that has no meaning; becomes ValueError in Python.
struct ProblemError : Error {
  using Error::Error;
};

// Host or device memory ran out; becomes MemoryError in Python. The next call works.
struct OutOfMemory : Error {
  using Error::Error;
};

// A device is missing, lost or refused a call; becomes vkconv.DeviceError in Python. The next call works.
struct DeviceError : Error {
  using Error::Error;
};

}  // namespace vkconv
