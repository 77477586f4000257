#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "core/lru_cache.h"

namespace vkconv {
namespace {

using Cache = LruCache<int, std::string>;

TEST(LruCache, CountsHitsAndMisses) {
  Cache cache(2);
  EXPECT_FALSE(cache.find(1));
  cache.insert(1, "one");
  EXPECT_EQ(cache.find(1), "one");
  EXPECT_EQ(cache.find(1), "one");
  EXPECT_FALSE(cache.find(2));
  const CacheInfo info = cache.info();
  EXPECT_EQ(info.hits, 2u);
  EXPECT_EQ(info.misses, 2u);
  EXPECT_EQ(info.size, 1u);
  EXPECT_EQ(info.capacity, 2u);
}

TEST(LruCache, EvictsTheLeastRecentlyUsed) {
  Cache cache(3);
  for (int key : {1, 2, 3}) cache.insert(key, std::to_string(key));
  EXPECT_TRUE(cache.find(1));  // 2 is now the oldest
  cache.insert(4, "4");
  EXPECT_FALSE(cache.find(2));
  for (int key : {1, 3, 4}) EXPECT_EQ(cache.find(key), std::to_string(key));
  EXPECT_EQ(cache.info().size, 3u);
}

TEST(LruCache, KeepsTheFirstValueOfAKey) {
  Cache cache(2);
  cache.insert(1, "first");
  cache.insert(1, "second");
  EXPECT_EQ(cache.find(1), "first");
  EXPECT_EQ(cache.info().size, 1u);
}

TEST(LruCache, CapacityZeroStoresNothing) {
  Cache cache(0);
  cache.insert(1, "one");
  EXPECT_FALSE(cache.find(1));
  EXPECT_EQ(cache.info().size, 0u);
}

TEST(LruCache, ShrinkingKeepsTheMostRecent) {
  Cache cache(4);
  for (int key : {1, 2, 3, 4}) cache.insert(key, "");
  cache.set_capacity(2);
  EXPECT_EQ(cache.info().size, 2u);
  EXPECT_FALSE(cache.find(2));
  EXPECT_TRUE(cache.find(3));
  EXPECT_TRUE(cache.find(4));
  cache.set_capacity(3);
  cache.insert(5, "");
  EXPECT_EQ(cache.info().size, 3u);
}

TEST(LruCache, ClearForgetsValuesAndCounters) {
  Cache cache(4);
  cache.insert(1, "one");
  cache.find(1);
  cache.clear();
  const CacheInfo info = cache.info();
  EXPECT_EQ(info.hits + info.misses + info.size, 0u);
  EXPECT_EQ(info.capacity, 4u);
  EXPECT_FALSE(cache.find(1));
}

TEST(LruCache, TakesNothingFromBeforeItWasCleared) {
  Cache cache(4);
  const auto before = cache.generation();
  cache.insert(1, "one", before);
  cache.clear();
  cache.insert(1, "early", before);
  EXPECT_FALSE(cache.find(1));
  cache.insert(1, "late", cache.generation());
  EXPECT_EQ(cache.find(1), "late");
}

// Far more keys than places: every insert evicts, nothing throws, nothing grows.
TEST(LruCache, ThrashingOnlyEvicts) {
  LruCache<int, int> cache(8);
  for (int round = 0; round < 100; ++round)
    for (int key = 0; key < 64; ++key) {
      EXPECT_FALSE(cache.find(key));
      cache.insert(key, key);
    }
  EXPECT_EQ(cache.info().size, 8u);
  EXPECT_EQ(cache.info().hits, 0u);
}

TEST(LruCache, ThreadsSeeTheirOwnValues) {
  LruCache<int, int> cache(16);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&cache, &wrong, t] {
      for (int i = 0; i < 5000; ++i) {
        const int key = (i * 7 + t) % 40;
        if (auto value = cache.find(key))
          wrong[t] += *value != key * 3;
        else
          cache.insert(key, key * 3);
        if (i % 1000 == 0) cache.set_capacity(8 + i / 1000);
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
  const CacheInfo info = cache.info();
  EXPECT_EQ(info.hits + info.misses, 4u * 5000u);
  EXPECT_LE(info.size, info.capacity);
}

}  // namespace
}  // namespace vkconv
