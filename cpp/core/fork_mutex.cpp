#include "core/fork_mutex.h"

#include <pthread.h>

#include <vector>

namespace vkconv {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<ForkMutex*> all;
};

Registry& registry() {
  static Registry& r = *[] {
    const auto take_all = [] {
      registry().mutex.lock();
      for (ForkMutex* m : registry().all) m->lock();
    };
    const auto give_all = [] {
      for (ForkMutex* m : registry().all) m->unlock();
      registry().mutex.unlock();
    };
    pthread_atfork(take_all, give_all, give_all);
    return new Registry;
  }();
  return r;
}

}  // namespace

ForkMutex::ForkMutex() {
  std::lock_guard lock(registry().mutex);
  registry().all.push_back(this);
}

ForkMutex::~ForkMutex() {
  std::lock_guard lock(registry().mutex);
  std::erase(registry().all, this);
}

}  // namespace vkconv
