// Where threads run.
#pragma once

namespace vkconv::cpu {

// Moves the calling thread to another processor, if it may use one. Where every other processor has something to do,
// and be it another library's idle thread that spins, the kernel wakes a worker beside its caller and leaves it there:
// a pool of two would run at half its speed.
void leave_processor(int processor);

}  // namespace vkconv::cpu
