#include "cpu/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <map>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/fork_mutex.h"
#include "core/interruption.h"
#include "core/number_text.h"
#include "cpu/affinity.h"
#include "cpu/job.h"
#include "cpu/thread_scratch.h"
#include "cpu/thread_team.h"

namespace vkconv::cpu {
namespace {

constexpr auto kSpin = std::chrono::microseconds(100);

// Of the job whose task this thread is in; null outside.
thread_local const std::atomic<bool>* job_failed = nullptr;

struct JobFailed : std::exception {};

std::atomic<Team> shared_team{nullptr};
std::atomic<int> caller_processor{-1};  // where the last job was started, of any pool

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) : workers_(static_cast<std::size_t>(threads)), shares_(threads) {
  try {
    for (int i = 1; i < threads; ++i) threads_.emplace_back([this, i] { work_loop(i); });
  } catch (const std::exception&) {  // the system has no more threads, or no memory for one: fewer do the work
  }
  for (int i = 1; i < size(); ++i)
    while (!workers_[static_cast<std::size_t>(i)].started) std::this_thread::yield();
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  ++epoch_;
  epoch_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void ThreadPool::run_tasks(std::int64_t tasks, TaskRef f) {
  std::unique_lock lock(busy_, std::defer_lock);
  if (tasks <= 1 || threads_.empty() || job_failed || !lock.try_lock()) {
    for (std::int64_t t = 0; t < tasks; ++t) {
      check_job();
      f(t);
    }
    return;
  }
  job_ = &f;
  shares_.reset(tasks);
  error_ = nullptr;
  failed_ = false;
  if (const Team team = shared_team) {
    caller_ = std::this_thread::get_id();
    borrowed_threads_ = 0;
    const auto work = [](void* data) {
      auto* pool = static_cast<ThreadPool*>(data);
      pool->drain(std::this_thread::get_id() == pool->caller_ ? 0 : ++pool->borrowed_threads_);
    };
    team(work, this, static_cast<unsigned>(size()), 0);
  } else {
    caller_processor = sched_getcpu();
    open_ = true;
    ++epoch_;
    if (sleepers_ > 0) epoch_.notify_all();
    drain(0);
    if (orphaned_ && !error_)
      throw std::runtime_error("the process forked within a call, whose other threads its child lacks");
    // A worker that enters after this line finds the job closed; the others are waited for.
    open_ = false;
    for (const Worker& worker : workers_)
      while (worker.in_job) pause();
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::drain(int thread) {
  job_failed = &failed_;
  shares_.drain(thread, [&](std::int64_t task) {
    try {
      check_job();
      (*job_)(task);
    } catch (...) {
      if (!failed_.exchange(true)) error_ = std::current_exception();
      shares_.abandon();
    }
  });
  job_failed = nullptr;
}

void check_job() {
  if (job_failed && *job_failed) throw JobFailed();
  check_interruption();
}

void ThreadPool::work_loop(int thread) {
  Worker& worker = workers_[static_cast<std::size_t>(thread)];
  // Variables of a thread, this library's and those of exceptions, get their memory when it first uses one, and without
  // memory the process ends there: that is now, and the pool waits for it.
  job_failed = nullptr;
  { const ThreadScratch nothing(0); }
  [[maybe_unused]] const std::exception_ptr none = std::current_exception();
  worker.started = true;
  std::uint32_t seen = 0;  // a thread that starts late still joins the job that is open
  while (!stop_) {
    auto deadline = std::chrono::steady_clock::now() + kSpin;
    while (epoch_ == seen) {
      for (int i = 0; i < 32 && epoch_ == seen; ++i) pause();
      if (epoch_ == seen && std::chrono::steady_clock::now() > deadline) {
        ++sleepers_;
        epoch_.wait(seen);
        --sleepers_;
      }
    }
    seen = epoch_;
    worker.in_job = true;
    if (open_) {
      if (const int processor = caller_processor; processor == sched_getcpu()) leave_processor(processor);
      drain(thread);
    }
    worker.in_job = false;
  }
}

int quota_processors(const std::string& cgroups) {
  std::string quota, period;
  if (!(std::ifstream(cgroups + "/cpu.max") >> quota >> period)) {  // of version 2, else of version 1
    std::ifstream(cgroups + "/cpu/cpu.cfs_quota_us") >> quota;
    std::ifstream(cgroups + "/cpu/cpu.cfs_period_us") >> period;
  }
  const auto given = number_of<double>(quota), every = number_of<double>(period);
  if (!given || !every || *given <= 0 || *every <= 0) return kNoQuota;
  return static_cast<int>(std::clamp(std::round(*given / *every), 1.0, double{kNoQuota}));
}

int usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int affinity = sched_getaffinity(0, sizeof set, &set) == 0
                           ? CPU_COUNT(&set)
                           : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, std::min(affinity, quota_processors()));
}

int default_num_threads() {
  const char* text = std::getenv("VKCONV_NUM_THREADS");
  if (!text || !*text) return usable_processors();
  if (const auto n = number_of<int>(text); n && *n >= 1) return std::min(*n, kMaxThreads);
  throw ProblemError("VKCONV_NUM_THREADS is '" + std::string(text) + "', wanted an integer of at least 1");
}

namespace {

// A pool is never destroyed, as a call in flight may hold it: its workers sleep until its size is asked for again.
// After fork the child's workers do not exist, so the child abandons the parent's pools and the team, whose threads are
// gone as well.
struct Global {
  ForkMutex mutex;
  std::map<int, ThreadPool*> pools;        // by size
  std::atomic<ThreadPool*> pool{nullptr};  // the one in use
  std::atomic<int> threads{0};
};

Global& global() {
  static Global& g = *[] {
    auto* made = new Global;
    pthread_atfork(nullptr, nullptr, [] {
      for (const auto& [size, pool] : global().pools) pool->orphan();
      global().pool = nullptr;
      global().pools.clear();
      shared_team = nullptr;
    });
    return made;
  }();
  return g;
}

}  // namespace

void set_team(Team team) {
  global();  // its handler of fork is what takes the team from a child
  shared_team = team;
}

int num_threads() {
  Global& g = global();
  if (g.threads == 0) g.threads = default_num_threads();
  return g.threads;
}

ThreadPool& thread_pool() {
  Global& g = global();
  if (ThreadPool* p = g.pool) return *p;
  std::lock_guard lock(g.mutex);
  if (!g.pool) {
    // More threads than processors would take turns and wait for each other.
    const int size = std::min(num_threads(), usable_processors());
    ThreadPool*& pool = g.pools[size];
    if (!pool) pool = new ThreadPool(size);
    g.pool = pool;
  }
  return *g.pool;
}

void set_num_threads(int threads) {
  Global& g = global();
  std::lock_guard lock(g.mutex);
  if (threads == g.threads) return;
  g.threads = threads;
  g.pool = nullptr;
}

}  // namespace vkconv::cpu
