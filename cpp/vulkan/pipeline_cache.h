// The driver's compiled pipelines on disk, so that a process does not compile what an earlier one did. One file a
// device and driver version, in a directory only the user can write. A file that is damaged, made by another driver or
// not the user's is ignored with a warning: drivers trust this data.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace vkconv::vulkan {

class PipelineCacheFile {
 public:
  // `identity` names the device and its driver's version; it is part of the file's name and of its content.
  // An empty directory stores nothing.
  PipelineCacheFile(std::filesystem::path directory, std::string identity);

  // $VKCONV_PIPELINE_CACHE (0 or empty: none), else vkconv in $XDG_CACHE_HOME or in ~/.cache.
  static std::filesystem::path default_directory();

  const std::filesystem::path& path() const { return path_; }
  std::vector<std::byte> load() const;                        // empty when there is none
  void save(std::span<const std::byte> data) const noexcept;  // replaces the file at once; failures are ignored

 private:
  std::filesystem::path directory_, path_;
  std::string identity_;
};

}  // namespace vkconv::vulkan
