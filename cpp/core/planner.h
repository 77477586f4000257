// Chooses an algorithm for a problem and remembers the choice. The lock of the cache is never held while planning:
// a decomposition plans its children through the same planner.
#pragma once
#include <algorithm>
#include <any>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/algorithm.h"
#include "core/error.h"
#include "core/fork_mutex.h"
#include "core/lru_cache.h"

namespace vkconv {

inline constexpr std::size_t kDefaultPlanCacheCapacity = 128;
inline constexpr std::size_t kRememberedChoices = 512;
inline constexpr std::size_t kDefaultWorkspaceLimitBytes = std::size_t{256} << 20;

// A problem with everything that can change its plan. `algorithm` is a registry name, or empty for the fastest.
struct PlanRequest {
  ConvProblem problem;
  std::string algorithm;
  std::size_t workspace_limit_bytes = kDefaultWorkspaceLimitBytes;
  int siblings = 1;  // see Context
  auto operator<=>(const PlanRequest&) const = default;
};

// Algorithms measured to be the fastest for some problems, by registry name.
using Preferences = std::map<ConvProblem, std::string>;

// One line of `explain`: an estimate, or the reason why not.
struct Candidate {
  std::string name;
  std::string reason;  // empty when the algorithm can run
  double seconds = std::numeric_limits<double>::infinity();
  bool preferred = false;  // the choice, whatever the estimates say
};

template <class Device>
class Planner {
 public:
  using PlanPtr = std::shared_ptr<const Plan<Device>>;

  Planner(std::span<const Algorithm<Device>> table, typename Device::Traits traits,
          std::size_t capacity = kDefaultPlanCacheCapacity)
      : table_(table), traits_(std::move(traits)), cache_(capacity) {}

  // The plan of the forced, preferred or fastest algorithm. Throws ProblemError with the algorithm's reason when it
  // cannot run.
  PlanPtr plan(const PlanRequest& request) {
    if (auto hit = cache_.find(request)) return *hit;
    const std::uint64_t generation = cache_.generation();
    const Context<Device> context = context_for(request.workspace_limit_bytes, request.siblings);
    PlanPtr made = choose(request, context).make(request.problem, context);
    cache_.insert(request, made, generation);  // unless the preferences changed meanwhile
    return made;
  }

  // What `choose` returns, which depends on the request alone, searched for once: the functions of an algorithm share
  // it under the algorithm's name, and all decompositions share estimates under the empty name.
  template <class F>
  auto remembered(const PlanRequest& request, F&& choose) {
    if (auto known = choices_.find(request)) return std::any_cast<decltype(choose())>(*std::move(known));
    auto made = choose();
    choices_.insert(request, made);
    return made;
  }

  // Estimate of the fastest algorithm: what a decomposition adds up over its children. Of siblings each one's part.
  double seconds(const ConvProblem& problem, std::size_t workspace_limit_bytes, int siblings = 1) {
    return remembered({problem, "", workspace_limit_bytes, siblings}, [&] {
      double best = std::numeric_limits<double>::infinity();
      for (const Candidate& c : explain(problem, workspace_limit_bytes, siblings)) best = std::min(best, c.seconds);
      return best;
    });
  }

  std::vector<Candidate> explain(const ConvProblem& problem, std::size_t workspace_limit_bytes, int siblings = 1) {
    const Context<Device> context = context_for(workspace_limit_bytes, siblings);
    const Algorithm<Device>* chosen = preferred(problem);
    std::vector<Candidate> candidates;
    for (const Algorithm<Device>& row : table_) {
      Candidate& c = candidates.emplace_back();
      c.name = row.name;
      if (Support s = supports(row, problem, context)) {
        c.seconds = row.seconds(problem, context);
        c.preferred = &row == chosen;
      } else {
        c.reason = std::move(s.reason);
      }
    }
    return candidates;
  }

  // An algorithm that cannot run its problem is not preferred. Plans made before are forgotten.
  void set_preferences(Preferences preferences) {
    {
      std::lock_guard lock(preferences_mutex_);
      preferences_ = std::move(preferences);
    }
    cache_.clear();
  }

  const typename Device::Traits& traits() const { return traits_; }
  std::span<const Algorithm<Device>> table() const { return table_; }
  CacheInfo cache_info() const { return cache_.info(); }
  void clear_cache() {
    cache_.clear();
    choices_.clear();
  }
  void set_cache_capacity(std::size_t capacity) { cache_.set_capacity(capacity); }

 private:
  Context<Device> context_for(std::size_t limit, int siblings) { return {traits_, limit, *this, siblings}; }

  // What an algorithm keeps may exceed 64-bit sizes, for which checked.h throws, where another needs no such size.
  static Support supports(const Algorithm<Device>& row, const ConvProblem& problem, const Context<Device>& context) {
    try {
      return row.supports(problem, context);
    } catch (const ProblemError& error) {
      return Support::no(error.what());
    }
  }

  const Algorithm<Device>& choose(const PlanRequest& request, const Context<Device>& context) {
    if (!request.algorithm.empty()) return forced(request, context);
    if (const Algorithm<Device>* row = preferred(request.problem); row && supports(*row, request.problem, context))
      return *row;
    const Algorithm<Device>* best = nullptr;
    double best_seconds = std::numeric_limits<double>::infinity();
    for (const Algorithm<Device>& row : table_) {
      if (!supports(row, request.problem, context)) continue;
      const double s = row.seconds(request.problem, context);
      if (!best || s < best_seconds) best = &row, best_seconds = s;
    }
    if (!best) throw ProblemError("no algorithm can run " + to_string(request.problem) + advice(request));
    return *best;
  }

  // Of a request that no algorithm can run: which one could if only the workspace were larger.
  std::string advice(const PlanRequest& request) {
    const Context<Device> roomy = context_for(std::numeric_limits<std::int64_t>::max(), request.siblings);
    for (const Algorithm<Device>& row : table_)
      if (supports(row, request.problem, roomy))
        return " with workspace_limit=" + std::to_string(request.workspace_limit_bytes) + ", with a larger one " +
               std::string(row.name) + " can";
    return {};
  }

  const Algorithm<Device>& forced(const PlanRequest& request, const Context<Device>& context) {
    const Algorithm<Device>* row = find(request.algorithm);
    if (!row) throw ProblemError("algorithm '" + request.algorithm + "' does not exist");
    if (Support s = supports(*row, request.problem, context); !s)
      throw ProblemError("algorithm '" + request.algorithm + "' cannot run this problem: " + s.reason);
    return *row;
  }

  const Algorithm<Device>* preferred(const ConvProblem& problem) const {
    std::lock_guard lock(preferences_mutex_);
    const auto found = preferences_.find(problem);
    return found == preferences_.end() ? nullptr : find(found->second);
  }

  const Algorithm<Device>* find(std::string_view name) const {
    const auto row = std::find_if(table_.begin(), table_.end(), [&](auto& r) { return r.name == name; });
    return row == table_.end() ? nullptr : &*row;
  }

  std::span<const Algorithm<Device>> table_;
  typename Device::Traits traits_;
  mutable ForkMutex preferences_mutex_;
  Preferences preferences_;
  LruCache<PlanRequest, PlanPtr> cache_;
  LruCache<PlanRequest, std::any> choices_{kRememberedChoices};
};

}  // namespace vkconv
