#pragma once

#include <lockstep/config.h>
#include <lockstep/dataset.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::store {

/// What a backend needs from the run. It is stored in run.json, because restore() has the backend only as a pickle, and
/// only workers unpickle it.
struct BackendNeeds {
  std::map<std::string, std::string> environment{};  ///< of workers; the user's own variables take precedence
  std::vector<std::string> preload{};                ///< modules that are imported before workers start
  std::string backend_cls{};                         ///< class whose hooks run in the driver's process; empty: none
  std::map<std::string, Value> services{};           ///< what the run offers to the workers: options by name
  bool replace_workers = false;                      ///< a worker that dies is restarted alone

  bool operator==(const BackendNeeds&) const = default;
};

/// The settings of a run as they are stored in run.json ("config_run").
struct RunSettings {
  ScalingConfig scaling{};
  RunConfig run{};                        ///< without name, storage_path and callbacks
  std::optional<BackendNeeds> backend{};  ///< nothing: the run's trainer has no backends

  bool operator==(const RunSettings&) const = default;
};

Value to_value(const RunSettings& settings);
Value to_value(const DataConfig& config);
Value to_value(const EngineConfig& engine);

/// Reads what `in` has. Throws another error than ConfigError if a value has another type.
void read_engine_settings(const Value& in, EngineConfig& engine);

/// The inverse. Missing values keep their defaults; throws StorageError if a value has another type.
RunSettings run_settings_from(const Value& config_run);

/// The settings of the run at `path`. Throws ConfigError if there is no run.
RunSettings read_run_settings(const std::filesystem::path& path);

}  // namespace lockstep::store
