#pragma once

#include <filesystem>
#include <utility>

namespace lockstep::train {

/// Keeps the other runs of this process out of a run directory while it exists. Other processes are kept out by the
/// directory's lock, which a run takes only when it begins. Any thread may use it; a fork begins with none.
class DirectoryClaim {
 public:
  DirectoryClaim() = default;
  /// Throws ConfigError if another run of this process has the directory.
  explicit DirectoryClaim(const std::filesystem::path& directory);
  DirectoryClaim(DirectoryClaim&& other) noexcept : directory_(std::move(other.directory_)), owner_(other.owner_) {
    other.directory_.clear();
  }
  DirectoryClaim& operator=(DirectoryClaim&&) = delete;
  ~DirectoryClaim();

 private:
  std::filesystem::path directory_;  ///< empty: none
  int owner_ = 0;
};

}  // namespace lockstep::train
