#include <lockstep/error.h>
#include <lockstep/torch/collectives.h>
#include <lockstep/torch/profiler.h>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <utility>

#include "torch/group.h"

namespace lockstep::torch {
namespace {

namespace fs = std::filesystem;
namespace kineto = ::torch::autograd::profiler;
namespace profiling = ::torch::profiler::impl;

/// Whether there is a Profile that records.
std::atomic<bool> recording = false;

/// A path with a number that no earlier trace of the rank has; ranks that do the same get the same numbers.
fs::path free_path(const fs::path& directory) {
  for (int number = 0;; ++number) {
    const fs::path path =
        directory / ("rank_" + std::to_string(rank()) + "." + std::to_string(number) + ".pt.trace.json");
    if (!fs::exists(path)) return path;
  }
}

/// Workers must not overwrite each other's files.
fs::path of_this_rank(const fs::path& file) {
  if (world_size() == 1) return file;
  return file.parent_path() / (file.stem().string() + ".rank_" + std::to_string(rank()) + file.extension().string());
}

fs::path trace_directory(const ProfileOptions& options) {
  if (!options.directory.empty()) return options.directory;
  const Session* session = current_session();
  return (session != nullptr ? fs::path(session->trial_dir()) : fs::current_path()) / "pytorch_profiler";
}

std::set<profiling::ActivityType> activities() {
  std::set<profiling::ActivityType> found{profiling::ActivityType::CPU};
  if (::torch::cuda::is_available()) found.insert(profiling::ActivityType::CUDA);
  return found;
}

}  // namespace

Profile::Profile(const ProfileOptions& options) {
  if (options.only_rank_zero && rank() != 0) return;
  const bool to_file = !options.file.empty();
  const fs::path directory = to_file ? fs::absolute(options.file).parent_path() : trace_directory(options);
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw StorageError("[profile] cannot make " + directory.string() + ": " + error.message());
  if (recording.exchange(true))
    throw ConfigError("[profile] this process already records a trace; end it (stop()) before the next one starts");
  path_ = to_file ? of_this_rank(fs::absolute(options.file)) : free_path(directory);
  // Without a GPU, Kineto only prints on stderr that it starts and stops.
  if (!::torch::cuda::is_available()) ::setenv("KINETO_LOG_LEVEL", "99", 0);
  const profiling::ProfilerConfig config(profiling::ProfilerState::KINETO, options.record_shapes,
                                         options.profile_memory);
  try {
    kineto::prepareProfiler(config, activities());
    kineto::enableProfiler(config, activities());
  } catch (...) {
    recording = false;
    throw;
  }
  running_ = true;
}

Profile::~Profile() {
  try {
    stop();
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
  }
}

void Profile::stop() {
  if (!std::exchange(running_, false)) return;
  recording = false;
  const auto trace = kineto::disableProfiler();
  if (!trace)
    throw StorageError("[profile] something else ended the recording; " + path_.string() + " was not written");
  trace->save(path_.string());
  std::error_code error;
  fs::permissions(path_, fs::perms::owner_read | fs::perms::owner_write, error);
  if (error) throw StorageError("[profile] the trace was not written to " + path_.string() + ": " + error.message());
}

}  // namespace lockstep::torch
