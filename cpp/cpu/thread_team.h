// Threads of another library of the process, borrowed.
#pragma once

namespace vkconv::cpu {

// Calls f(data) in each of `threads` threads, the caller one of them, and returns when all have. `flags` is 0. This is
// the form of GOMP_parallel, which every OpenMP runtime of GCC and LLVM exports.
using Team = void (*)(void (*f)(void*), void* data, unsigned threads, unsigned flags);

// Runs every job of the thread pools in `team` instead of their own workers; null undoes it. Two libraries that
// alternate in one program would otherwise wait for each other's idle threads, which spin for milliseconds before they
// sleep.
void set_team(Team team);

}  // namespace vkconv::cpu
