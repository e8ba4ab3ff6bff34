#pragma once

#include <filesystem>
#include <string>
#include <type_traits>

namespace lockstep::torch {

struct ProfileOptions {
  std::filesystem::path
      directory{};  ///< empty: pytorch_profiler in the run directory, or in the working directory outside a worker
  std::filesystem::path file{};  ///< not empty: the trace file; with several workers .rank_<rank> is appended
  bool record_shapes = false;
  bool profile_memory = false;
  bool only_rank_zero = false;  ///< other ranks record nothing
};

/// Records what this worker does while it exists, and saves it as rank_<rank>.<number>.pt.trace.json, which Chrome
/// (chrome://tracing), Perfetto and TensorBoard can show. One at a time per process, started and stopped in the same
/// thread; a second one throws ConfigError.
///
///     {
///       auto trace = lockstep::torch::profile();
///       train_steps(model, loader, 10);
///     }
class Profile {
 public:
  explicit Profile(const ProfileOptions& options = {});
  /// As stop(), but an error is printed instead of thrown.
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// Ends the recording and saves it; a second call does nothing. Throws StorageError.
  void stop();
  /// The path of the trace; empty if this rank records nothing.
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  bool running_ = false;
};

/// The same as a function.
[[nodiscard]] inline Profile profile(const ProfileOptions& options = {}) { return Profile(options); }
/// `profile("trace.json")`: a path that ends in .json is the file, any other the directory.
template <class Path>
requires std::is_convertible_v<const Path&, std::filesystem::path>
[[nodiscard]] Profile profile(const Path& path) {
  const std::filesystem::path place = path;
  return place.extension() == ".json" ? Profile({.file = place}) : Profile({.directory = place});
}

}  // namespace lockstep::torch
