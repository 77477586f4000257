// The pipeline cache file: what was saved is loaded, and nothing else.
#if VKCONV_VULKAN
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "vulkan/pipeline_cache.h"

namespace vkconv::vulkan {
namespace {

namespace fs = std::filesystem;

class PipelineCache : public ::testing::Test {
 protected:
  PipelineCache() {
    std::string name = (fs::temp_directory_path() / "vkconv_cache_XXXXXX").string();
    root_ = mkdtemp(name.data());
    for (int i = 0; i < 1001; ++i) data_.push_back(static_cast<std::byte>(i * 7));
  }
  ~PipelineCache() override { fs::remove_all(root_); }

  PipelineCacheFile file(const std::string& identity = "device a") const {
    return PipelineCacheFile(root_ / "deep" / "vkconv", identity);
  }
  // The file's bytes after `change`.
  template <class F>
  void rewrite(const fs::path& path, F&& change) const {
    std::ifstream in(path, std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(in)), {});
    change(bytes);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }

  fs::path root_;
  std::vector<std::byte> data_;
};

TEST_F(PipelineCache, LoadsWhatWasSaved) {
  EXPECT_TRUE(file().load().empty());
  file().save(data_);
  EXPECT_EQ(file().load(), data_);
  data_.resize(10);
  file().save(data_);
  EXPECT_EQ(file().load(), data_);
  EXPECT_TRUE(file("device b").load().empty());
  // Nothing but the file is left, and only the user can enter.
  EXPECT_EQ(std::distance(fs::directory_iterator(root_ / "deep" / "vkconv"), {}), 1);
  struct stat status;
  ASSERT_EQ(stat((root_ / "deep" / "vkconv").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

TEST_F(PipelineCache, IgnoresDamagedFiles) {
  const PipelineCacheFile cache = file();
  const auto expect_ignored = [&](auto&& change) {
    cache.save(data_);
    rewrite(cache.path(), change);
    testing::internal::CaptureStderr();
    EXPECT_TRUE(cache.load().empty());
    EXPECT_NE(testing::internal::GetCapturedStderr().find("is ignored"), std::string::npos);
  };
  expect_ignored([](std::string& s) { s.clear(); });
  expect_ignored([](std::string& s) { s.pop_back(); });
  expect_ignored([](std::string& s) { s += '\0'; });
  expect_ignored([](std::string& s) { s[0] ^= 1; });
  expect_ignored([](std::string& s) { s[s.size() / 2] ^= 1; });
  expect_ignored([](std::string& s) { s.back() ^= 1; });
  expect_ignored([](std::string& s) { s[s.find("device a")] ^= 1; });
  cache.save(data_);
  EXPECT_EQ(cache.load(), data_);
}

TEST_F(PipelineCache, IgnoresFilesCutAnywhere) {
  const PipelineCacheFile cache = file();
  data_.resize(20);
  cache.save(data_);
  for (auto bytes = fs::file_size(cache.path()); bytes-- > 0;) {
    fs::resize_file(cache.path(), bytes);
    testing::internal::CaptureStderr();
    EXPECT_TRUE(cache.load().empty()) << bytes;
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  }
}

// Of a write that fails at any byte, as on a full disk, nothing is seen.
TEST_F(PipelineCache, KeepsTheOldFileWhereTheDiskIsFull) {
  const PipelineCacheFile cache = file();
  cache.save(data_);
  const std::vector<std::byte> others(20);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  for (rlim_t bytes = 0; bytes < 60; ++bytes) {
    const rlimit full{bytes, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &full);
    cache.save(others);
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_EQ(cache.load(), data_) << bytes;
  }
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(std::distance(fs::directory_iterator(cache.path().parent_path()), {}), 1);
}

TEST_F(PipelineCache, TrustsOnlyTheUser) {
  const PipelineCacheFile cache = file();
  cache.save(data_);
  chmod(cache.path().c_str(), 0666);
  testing::internal::CaptureStderr();
  EXPECT_TRUE(cache.load().empty());
  EXPECT_NE(testing::internal::GetCapturedStderr().find("others"), std::string::npos);
  fs::remove(cache.path());
  chmod(cache.path().parent_path().c_str(), 0777);
  cache.save(data_);
  EXPECT_FALSE(fs::exists(cache.path()));
}

TEST_F(PipelineCache, IgnoresWhatIsNoFile) {
  const PipelineCacheFile cache = file();
  cache.save(data_);
  const auto expect_ignored = [&] {
    testing::internal::CaptureStderr();
    EXPECT_TRUE(cache.load().empty());
    EXPECT_NE(testing::internal::GetCapturedStderr().find("not a file"), std::string::npos);
    fs::remove(cache.path());
  };
  fs::remove(cache.path());
  ASSERT_EQ(mkfifo(cache.path().c_str(), 0600), 0);
  expect_ignored();
  fs::create_directory(cache.path());
  expect_ignored();
  fs::create_symlink("/dev/zero", cache.path());
  EXPECT_TRUE(cache.load().empty());
}

// A reader sees the old file or the new one, whoever else writes.
TEST_F(PipelineCache, ReplacesTheFileAtOnce) {
  const PipelineCacheFile cache = file();
  cache.save(data_);
  std::vector<std::thread> writers;
  for (int w = 0; w < 3; ++w)
    writers.emplace_back([&, w] {
      const std::vector<std::byte> own(500 + 100 * static_cast<std::size_t>(w), static_cast<std::byte>(w));
      for (int i = 0; i < 200; ++i) cache.save(own);
    });
  for (int i = 0; i < 500; ++i) EXPECT_FALSE(cache.load().empty());
  for (std::thread& t : writers) t.join();
  EXPECT_EQ(std::distance(fs::directory_iterator(cache.path().parent_path()), {}), 1);
}

TEST_F(PipelineCache, StoresNothingWithoutADirectory) {
  const PipelineCacheFile none("", "device a");
  none.save(data_);
  EXPECT_TRUE(none.load().empty());
  EXPECT_TRUE(none.path().empty());
}

TEST_F(PipelineCache, FollowsTheEnvironment) {
  setenv("VKCONV_PIPELINE_CACHE", "/somewhere", 1);
  EXPECT_EQ(PipelineCacheFile::default_directory(), "/somewhere");
  setenv("VKCONV_PIPELINE_CACHE", "0", 1);
  EXPECT_TRUE(PipelineCacheFile::default_directory().empty());
  unsetenv("VKCONV_PIPELINE_CACHE");
  setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(PipelineCacheFile::default_directory(), "/cache/vkconv");
  unsetenv("XDG_CACHE_HOME");
}

}  // namespace
}  // namespace vkconv::vulkan
#endif
