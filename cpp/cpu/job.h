// What a task of the thread pools (thread_pool.h) may ask about the job that it belongs to.
#pragma once

namespace vkconv::cpu {

// For tasks that may take a tenth of a second, between parts of their work: throws where another task has failed or
// the caller is interrupted (core/interruption.h). A call that the interruption makes may run in this thread meanwhile.
void check_job();

}  // namespace vkconv::cpu
