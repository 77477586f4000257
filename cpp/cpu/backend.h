#pragma once
#include <memory>

#include "core/backend.h"

namespace vkconv::cpu {

// The CPU of this process, described by host_traits() at the time of the call.
std::unique_ptr<Backend> make_backend();

}  // namespace vkconv::cpu
