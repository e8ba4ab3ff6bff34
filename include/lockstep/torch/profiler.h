#pragma once

#include <filesystem>
#include <string>
#include <type_traits>

namespace lockstep::torch {

struct ProfileOptions {
  std::filesystem::path directory{};  ///< empty: pytorch_profiler in the run directory, or here outside of a worker
  std::filesystem::path file{};       ///< not empty: the trace itself; one of several workers adds .rank_<rank>
  bool record_shapes = false;
  bool profile_memory = false;
  bool only_rank_zero = false;  ///< other ranks then record nothing
};

/// Records what this worker does from its construction on, and saves it at its end as
/// rank_<rank>.<number>.pt.trace.json, which Chrome (chrome://tracing), Perfetto and TensorBoard show. One at a time in
/// a process, begun and ended in one thread; a second one is a ConfigError.
///
///     {
///       auto trace = lockstep::torch::profile();
///       train_steps(model, loader, 10);
///     }
class Profile {
 public:
  explicit Profile(const ProfileOptions& options = {});
  /// As stop(); an error is printed and not thrown.
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// Ends the recording and saves it; a second call does nothing. Throws StorageError.
  void stop();
  /// Where the trace will lie; empty when this rank records nothing.
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
