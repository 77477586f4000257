// A small pool: workers spin for a moment after a job, then sleep. The caller works too, so a pool of one thread
// has no workers. Results never depend on which thread runs a task.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cpu/lines.h"
#include "cpu/task_shares.h"

namespace vkconv::cpu {

// A borrowed callable void(int64 task): no allocation, valid during the call it is passed to.
class TaskRef {
 public:
  template <class F>
  TaskRef(F& f) : object_(&f), call_([](void* o, std::int64_t task) { (*static_cast<F*>(o))(task); }) {}
  void operator()(std::int64_t task) const { call_(object_, task); }

 private:
  void* object_;
  void (*call_)(void*, std::int64_t);
};

class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls f(0) .. f(tasks - 1), each once, on any thread, and returns when all are done. The first exception is
  // rethrown here. A call from inside a task, or while another thread uses the pool, runs in the calling thread.
  template <class F>
  void run(std::int64_t tasks, F&& f) {
    run_tasks(tasks, TaskRef(f));
  }

  // Of a child process after fork, which has no workers: a job that the fork interrupted, in a handler of signals, ends
  // with an exception, the handler's if it raised one. The threads of a team wait for each other whatever happens.
  void orphan() {
    orphaned_ = true;
    shares_.abandon();
    for (Worker& worker : workers_) worker.in_job = false;
  }

 private:
  void run_tasks(std::int64_t tasks, TaskRef f);
  void work_loop(int thread);
  void drain(int thread);

  // A worker's own line of memory: one that all of them write goes from core to core, 100 ns for each.
  struct alignas(kLineBytes) Worker {
    std::atomic<bool> started{false}, in_job{false};
  };

  std::vector<std::thread> threads_;
  std::vector<Worker> workers_;
  std::mutex busy_;
  const TaskRef* job_ = nullptr;
  std::exception_ptr error_;
  TaskShares shares_;                     // the caller's first
  std::thread::id caller_;                // of the job
  std::atomic<int> borrowed_threads_{0};  // of a team, in the job beside the caller
  std::atomic<bool> failed_{false};
  bool orphaned_ = false;
  alignas(kLineBytes) std::atomic<std::uint32_t> epoch_{0};  // what idle workers look at, written once a job
  std::atomic<bool> stop_{false};
  alignas(kLineBytes) std::atomic<bool> open_{false};
  std::atomic<int> sleepers_{0};  // workers waiting on epoch_
};

// The process-wide pool, of num_threads() threads but no more than there are processors. A child process after fork
// gets a new one.
ThreadPool& thread_pool();
inline constexpr int kMaxThreads = 1024;
// 1 <= threads <= kMaxThreads. Running jobs keep their threads.
void set_num_threads(int threads);
int num_threads();
// Processors that the quota of this process's cgroup allows, kNoQuota without one.
inline constexpr int kNoQuota = 1 << 20;
int quota_processors(const std::string& cgroups = "/sys/fs/cgroup");
// Processors this process may use: affinity mask and cgroup quota.
int usable_processors();
// VKCONV_NUM_THREADS when set, else usable_processors().
int default_num_threads();

}  // namespace vkconv::cpu
