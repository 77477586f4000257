// A call of seconds may be ended before it is done: between parts of its work, the thread that made it asks whether to
// go on.
#pragma once
#include <chrono>

namespace vkconv {

// Throws to end what its thread does. It may run any code, other calls too.
using InterruptionCheck = void (*)();
inline constexpr std::chrono::milliseconds kInterruptionPeriod{50};

// While it lives, what this thread does may be ended by `check`, or by nothing where that is null: as while a lock is
// held.
class Interruptible {
 public:
  explicit Interruptible(InterruptionCheck check);
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;

 private:
  InterruptionCheck outer_;
  std::chrono::steady_clock::time_point outer_due_;  // of its next check
};

bool interruptible();  // this thread, now

// Calls the check once in kInterruptionPeriod, else only looks at the clock.
void check_interruption();

}  // namespace vkconv
