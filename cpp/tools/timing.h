// The clock of the tools, and what they make of repeated measurements.
#pragma once
#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

namespace vkconv::tools {

// Seconds from some moment on.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class F>
double seconds_of(F&& call) {
  const double begin = now();
  call();
  return now() - begin;
}

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The shortest of the runs that begin within `budget` seconds: what the machine does when nothing disturbs it.
template <class F>
double shortest_seconds(F&& run, double budget = 0.2) {
  double shortest = std::numeric_limits<double>::infinity();
  for (const double start = now(); now() - start < budget;) shortest = std::min(shortest, seconds_of(run));
  return shortest;
}

}  // namespace vkconv::tools
