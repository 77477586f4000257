// Tests under one instruction set, or under each that kernels are compiled for and this machine supports.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>

#include "hwy/targets.h"

namespace vkconv::tools {

// Restricts run-time dispatch to one instruction set while it lives.
class OnlyTarget {
 public:
  explicit OnlyTarget(std::int64_t target) { choose(target); }
  ~OnlyTarget() { choose(0); }
  OnlyTarget(const OnlyTarget&) = delete;

 private:
  static void choose(std::int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

template <class F>
void for_each_target(F test) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const OnlyTarget only(target);
    test();
  }
}

}  // namespace vkconv::tools
