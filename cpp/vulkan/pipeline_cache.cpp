#include "vulkan/pipeline_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

namespace vkconv::vulkan {
namespace {

constexpr char kMagic[8] = {'v', 'k', 'c', 'o', 'n', 'v', '0', '1'};
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 30;

// Followed by the identity and the data.
struct Header {
  char magic[8];
  std::uint64_t identity_bytes, data_bytes, checksum;
};

// FNV-1a over 64-bit words, the last one padded with zeros: detects truncation and damage.
std::uint64_t checksum(std::span<const std::byte> data) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (std::size_t i = 0; i < data.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, data.data() + i, std::min<std::size_t>(8, data.size() - i));
    hash = (hash ^ word) * 0x100000001b3u;
    hash ^= hash >> 32;
  }
  return hash;
}

class File {
 public:
  File(const std::filesystem::path& path, int flags) : descriptor_(open(path.c_str(), flags | O_CLOEXEC, 0600)) {}
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(const File&) = delete;
  int descriptor() const { return descriptor_; }

  bool read_all(void* to, std::size_t bytes) {
    for (auto* p = static_cast<char*>(to); bytes > 0;) {
      const ssize_t n = ::read(descriptor_, p, bytes);
      if (n <= 0) return false;
      p += n;
      bytes -= static_cast<std::size_t>(n);
    }
    return true;
  }
  bool write_all(const void* from, std::size_t bytes) {
    for (auto* p = static_cast<const char*>(from); bytes > 0;) {
      const ssize_t n = ::write(descriptor_, p, bytes);
      if (n <= 0) return false;
      p += n;
      bytes -= static_cast<std::size_t>(n);
    }
    return true;
  }

 private:
  int descriptor_;
};

// Only the user may write what the driver will trust.
bool private_to_user(const struct stat& s) { return s.st_uid == geteuid() && (s.st_mode & (S_IWGRP | S_IWOTH)) == 0; }

// What is wrong with the file, or nullptr after filling `data`.
const char* read_file(File& file, const std::string& identity, std::vector<std::byte>& data) {
  struct stat status;
  if (fstat(file.descriptor(), &status) != 0 || !S_ISREG(status.st_mode)) return "it is not a file";
  if (!private_to_user(status)) return "others can write it";
  Header header;
  if (!file.read_all(&header, sizeof header) || std::memcmp(header.magic, kMagic, sizeof kMagic) != 0)
    return "it is not a pipeline cache";
  if (header.data_bytes > kMaxBytes || header.identity_bytes != identity.size() ||
      static_cast<std::uint64_t>(status.st_size) != sizeof header + header.identity_bytes + header.data_bytes)
    return "its size is wrong";
  std::string owner(identity.size(), '\0');
  data.resize(header.data_bytes);
  if (!file.read_all(owner.data(), owner.size()) || !file.read_all(data.data(), data.size())) return "it is cut short";
  if (owner != identity) return "another driver made it";
  return checksum(data) == header.checksum ? nullptr : "its checksum is wrong";
}

}  // namespace

PipelineCacheFile::PipelineCacheFile(std::filesystem::path directory, std::string identity)
    : directory_(std::move(directory)), identity_(std::move(identity)) {
  if (directory_.empty()) return;
  char name[40];
  const auto bytes = std::as_bytes(std::span(identity_));
  std::snprintf(name, sizeof name, "pipelines-%016llx", static_cast<unsigned long long>(checksum(bytes)));
  path_ = directory_ / name;
}

std::filesystem::path PipelineCacheFile::default_directory() {
  const auto variable = [](const char* name) {
    const char* text = std::getenv(name);
    return std::string(text ? text : "");
  };
  if (std::getenv("VKCONV_PIPELINE_CACHE")) {
    const std::string given = variable("VKCONV_PIPELINE_CACHE");
    return given == "0" ? "" : given;
  }
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) return cache + "/vkconv";
  const std::string home = variable("HOME");
  return home.empty() ? "" : home + "/.cache/vkconv";
}

std::vector<std::byte> PipelineCacheFile::load() const {
  if (path_.empty()) return {};
  File file(path_, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);  // a pipe would wait for its writer
  if (file.descriptor() < 0) return {};
  std::vector<std::byte> data;
  if (const char* problem = read_file(file, identity_, data)) {
    std::fprintf(stderr, "vkconv: the pipeline cache %s is ignored: %s\n", path_.c_str(), problem);
    return {};
  }
  return data;
}

void PipelineCacheFile::save(std::span<const std::byte> data) const noexcept try {
  if (path_.empty() || data.size() > kMaxBytes) return;
  std::filesystem::create_directories(directory_.parent_path());
  mkdir(directory_.c_str(), 0700);
  struct stat status;
  if (lstat(directory_.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || !private_to_user(status)) return;
  std::string temporary = path_.string() + ".XXXXXX";
  const int descriptor = mkostemp(temporary.data(), O_CLOEXEC);
  if (descriptor < 0) return;
  close(descriptor);
  Header header{{}, identity_.size(), data.size(), checksum(data)};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  bool written = false;
  {
    File file(temporary, O_WRONLY);
    written = file.descriptor() >= 0 && file.write_all(&header, sizeof header) &&
              file.write_all(identity_.data(), identity_.size()) && file.write_all(data.data(), data.size());
  }
  if (!written || rename(temporary.c_str(), path_.c_str()) != 0) unlink(temporary.c_str());
} catch (const std::exception&) {  // a full disk or no memory: the next process compiles again
}

}  // namespace vkconv::vulkan
