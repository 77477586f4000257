// Least-recently-used cache with counters. Thread-safe; a full cache evicts, capacity 0 stores nothing.
#pragma once
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <utility>

#include "core/fork_mutex.h"

namespace vkconv {

struct CacheInfo {
  std::uint64_t hits = 0, misses = 0;
  std::size_t size = 0, capacity = 0;
};

template <class Key, class Value>
class LruCache {
 public:
  explicit LruCache(std::size_t capacity) : capacity_(capacity) {}

  std::optional<Value> find(const Key& key) {
    std::lock_guard lock(mutex_);
    auto it = index_.find(key);
    if (it == index_.end()) {
      ++misses_;
      return std::nullopt;
    }
    ++hits_;
    order_.splice(order_.begin(), order_, it->second);
    return it->second->second;
  }

  // Keeps the value already there when two threads computed the same key, and none that was begun in a `generation`
  // before.
  void insert(const Key& key, Value value, std::optional<std::uint64_t> generation = std::nullopt) {
    std::lock_guard lock(mutex_);
    if (capacity_ == 0 || index_.contains(key) || generation.value_or(generation_) != generation_) return;
    Entries made;
    made.emplace_front(key, std::move(value));
    index_.emplace(key, made.begin());  // the last that may throw
    order_.splice(order_.begin(), made);
    shrink();
  }

  void clear() {
    std::lock_guard lock(mutex_);
    index_.clear();
    order_.clear();
    hits_ = misses_ = 0;
    ++generation_;
  }

  // How often it was cleared.
  std::uint64_t generation() const {
    std::lock_guard lock(mutex_);
    return generation_;
  }

  void set_capacity(std::size_t capacity) {
    std::lock_guard lock(mutex_);
    capacity_ = capacity;
    shrink();
  }

  CacheInfo info() const {
    std::lock_guard lock(mutex_);
    return {hits_, misses_, order_.size(), capacity_};
  }

 private:
  void shrink() {
    while (order_.size() > capacity_) {
      index_.erase(order_.back().first);
      order_.pop_back();
    }
  }

  using Entries = std::list<std::pair<Key, Value>>;
  mutable ForkMutex mutex_;
  std::size_t capacity_;
  Entries order_;  // most recently used first
  std::map<Key, typename Entries::iterator> index_;
  std::uint64_t hits_ = 0, misses_ = 0, generation_ = 0;
};

}  // namespace vkconv
