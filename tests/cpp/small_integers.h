// Numbers whose products and short sums are exact.
#pragma once
#include <cstdint>
#include <random>
#include <vector>

namespace vkconv::tools {

// -3 to 3.
template <class T>
std::vector<T> small_integers(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<T> v(static_cast<std::size_t>(count));
  for (T& x : v) x = static_cast<T>(static_cast<int>(random() % 7) - 3);
  return v;
}

}  // namespace vkconv::tools
