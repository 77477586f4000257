#include "core/fork_mutex.h"

#include <pthread.h>

#include <array>
#include <vector>

namespace vkconv {
namespace {

struct Registry {
  void take_all() {
    mutex.lock();
    for (ForkMutex* m : all) m->lock();
  }
  void give_all() {
    for (ForkMutex* m : all) m->unlock();
    mutex.unlock();
  }

  std::mutex mutex;
  std::vector<ForkMutex*> all;  // in the order they were made
};

// One for each level.
std::array<Registry, 2>& registries() {
  static std::array<Registry, 2>& r = *[] {
    const auto take_all = [] {
      for (Registry& level : registries()) level.take_all();
    };
    const auto give_all = [] {
      for (Registry& level : registries()) level.give_all();
    };
    pthread_atfork(take_all, give_all, give_all);
    return new std::array<Registry, 2>;
  }();
  return r;
}

Registry& registry(ForkMutex::Level level) { return registries()[static_cast<std::size_t>(level)]; }

}  // namespace

ForkMutex::ForkMutex(Level level) : level_(level) {
  Registry& r = registry(level);
  std::lock_guard lock(r.mutex);
  r.all.push_back(this);
}

ForkMutex::~ForkMutex() {
  Registry& r = registry(level_);
  std::lock_guard lock(r.mutex);
  std::erase(r.all, this);
}

}  // namespace vkconv
