#include "core/interruption.h"

#include <utility>

namespace vkconv {
namespace {

using Clock = std::chrono::steady_clock;

thread_local InterruptionCheck check = nullptr;
thread_local Clock::time_point due;  // of the next check; none yet at 0

}  // namespace

Interruptible::Interruptible(InterruptionCheck c)
    : outer_(std::exchange(check, c)), outer_due_(std::exchange(due, {})) {}
Interruptible::~Interruptible() {
  check = outer_;
  due = outer_due_;
}

bool interruptible() { return check != nullptr; }

void check_interruption() {
  if (!check) return;
  const Clock::time_point now = Clock::now();
  if (due == Clock::time_point{}) due = now + kInterruptionPeriod;
  if (now < due) return;
  due = now + kInterruptionPeriod;
  check();
}

}  // namespace vkconv
