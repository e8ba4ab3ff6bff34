#pragma once

#include <lockstep/config.h>
#include <lockstep/dataset.h>

#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

/// Every setting of a run, one line each. Validation, run.json and the binding to Python go through these tables: a new
/// setting is a field in lockstep/config.h, a line here, a field of the dataclass in lockstep/config.py and a row in
/// docs/configuration.md.
namespace lockstep::store {

/// One field of a struct of settings.
template <class Struct, class T>
struct Setting {
  using Check = bool (*)(const std::type_identity_t<T>&);

  constexpr Setting(const char* name, T Struct::*field, const char* must_be, Check is_allowed = nullptr,
                    bool is_stored = true)
      : name(name), field(field), must_be(must_be), is_allowed(is_allowed), is_stored(is_stored) {}

  const char* name;     ///< in Python, in run.json and in messages
  T Struct::*field;     ///< empty texts and maps are None in Python
  const char* must_be;  ///< completes "it must be ..."
  Check is_allowed;     ///< null: every value is allowed
  bool is_stored;       ///< whether run.json has it
};

/// The table of a struct: its name in messages and its settings.
template <class Struct>
struct Settings;

template <class T>
concept HasSettings = requires {
  Settings<T>::kName;
};

namespace allowed {

template <int least>
bool from(const int& value) {
  return value >= least;
}
bool workers(const WorkerCount& value);
bool count_or_nothing(const std::optional<int>& value);
bool seconds(const std::chrono::duration<double>& value);
bool seconds_or_nothing(const std::optional<std::chrono::duration<double>>& value);
bool strategy(const std::string& value);
bool order(const std::string& value);
bool shown_ranks(const std::string& value);
bool not_empty(const std::string& value);
bool when_busy(const std::string& value);
bool window(const std::int64_t& value);
bool prefetch(const int& value);
bool tail(const std::string& value);
bool engine(const std::string& value);
bool positive_or_nothing(const std::optional<int>& value);
bool port(const std::optional<int>& value);

}  // namespace allowed

template <>
struct Settings<ScalingConfig> {
  static constexpr const char* kName = "ScalingConfig";
  static constexpr std::tuple kFields{
      Setting{"num_workers", &ScalingConfig::num_workers, "an int of at least 1", allowed::workers},
      Setting{"use_gpu", &ScalingConfig::use_gpu, "True or False"},
      Setting{"resources_per_worker", &ScalingConfig::resources_per_worker, "a dict such as {\"CPU\": 2} or None"},
      Setting{"placement_strategy", &ScalingConfig::placement_strategy,
              "one of 'PACK', 'SPREAD', 'STRICT_PACK', 'STRICT_SPREAD'", allowed::strategy},
      Setting{"resize_interval", &ScalingConfig::resize_interval, "a positive number of seconds or a timedelta",
              allowed::seconds}};
};

template <>
struct Settings<FailureConfig> {
  static constexpr const char* kName = "FailureConfig";
  static constexpr std::tuple kFields{
      Setting{"max_failures", &FailureConfig::max_failures, "-1 (no limit), 0 or more", allowed::from<-1>},
      Setting{"count_node_failures", &FailureConfig::count_node_failures, "True or False"}};
};

template <>
struct Settings<CheckpointConfig> {
  static constexpr const char* kName = "CheckpointConfig";
  static constexpr std::tuple kFields{
      Setting{"num_to_keep", &CheckpointConfig::num_to_keep, "None (all), 0 (in memory only) or more",
              allowed::count_or_nothing},
      Setting{"checkpoint_score_attribute", &CheckpointConfig::score_attribute, "the name of a metric or None"},
      Setting{"checkpoint_score_order", &CheckpointConfig::score_order, "one of 'max', 'min'", allowed::order},
      Setting{"keep_all_ranks", &CheckpointConfig::keep_all_ranks, "True or False"},
      Setting{"persist_every", &CheckpointConfig::persist_every, "an int of at least 1", allowed::from<1>},
      Setting{"when_busy", &CheckpointConfig::when_busy, "'wait' or 'skip'", allowed::when_busy}};
};

template <>
struct Settings<EngineConfig> {
  static constexpr const char* kName = "EngineConfig";
  static constexpr const char* kSeconds = "a positive number of seconds or a timedelta";
  static constexpr std::tuple kFields{
      Setting{"kind", &EngineConfig::kind, "one of 'auto', 'local', 'slurm', 'ray', 'ssh', 'join'", allowed::engine},
      Setting{"nodes", &EngineConfig::nodes, "an int of at least 1, or None", allowed::positive_or_nothing},
      Setting{"hosts", &EngineConfig::hosts, "hosts such as 'a:8,b:8', a list of them, or None"},
      Setting{"hostfile", &EngineConfig::hostfile, "a path or None"},
      Setting{"address", &EngineConfig::address, "the address of a Ray cluster or None"},
      Setting{"port", &EngineConfig::port, "a port from 1 to 65535, or None", allowed::port},
      Setting{"secret_file", &EngineConfig::secret_file, "a path or None"},
      Setting{"head_works", &EngineConfig::head_works, "True, False or None"},
      Setting{"network_interface", &EngineConfig::network_interface,
              "the name of an interface such as 'eth0', or None"},
      Setting{"node_timeout", &EngineConfig::node_timeout, kSeconds, allowed::seconds},
      Setting{"start_timeout", &EngineConfig::start_timeout, kSeconds, allowed::seconds},
      Setting{"replace_timeout", &EngineConfig::replace_timeout, kSeconds, allowed::seconds}};
};

template <>
struct Settings<RunConfig> {
  static constexpr const char* kName = "RunConfig";
  static constexpr std::tuple kFields{
      Setting{"name", &RunConfig::name, "one path component such as 'digits-1', or None", nullptr, false},
      Setting{"storage_path", &RunConfig::storage_path, "a path, in UTF-8", nullptr, false},
      Setting{"failure_config", &RunConfig::failure, "a FailureConfig or None"},
      Setting{"checkpoint_config", &RunConfig::checkpoint, "a CheckpointConfig or None"},
      Setting{"verbose", &RunConfig::verbose, "an int of at least 0", allowed::from<0>},
      Setting{"hang_timeout", &RunConfig::hang_timeout, "a positive number of seconds or a timedelta",
              allowed::seconds_or_nothing},
      Setting{"heartbeat_timeout", &RunConfig::heartbeat_timeout, "a positive number of seconds or a timedelta",
              allowed::seconds},
      Setting{"max_report_size", &RunConfig::max_report_size, "an int of at least 1", allowed::from<1>},
      Setting{"stop", &RunConfig::stop,
              "a dict such as {\"training_iteration\": 10}, a function of trial id and result, or None"},
      Setting{"resume", &RunConfig::resume, "'never', 'auto' or the path of a run", allowed::not_empty, false},
      Setting{"preemption", &RunConfig::preemption,
              "the path of a file, a command with its arguments (a list, or a text with spaces), or None"},
      Setting{"preemption_grace", &RunConfig::preemption_grace, "a positive number of seconds or a timedelta",
              allowed::seconds},
      Setting{"wait_for_resources", &RunConfig::wait_for_resources, "True or False"},
      Setting{"log_to_console", &RunConfig::log_to_console, "'rank0', 'all' or 'none'", allowed::shown_ranks},
      Setting{"engine", &RunConfig::engine, "'auto', 'local', 'slurm', 'ray', 'ssh', 'join', an EngineConfig or None"}};
};

template <>
struct Settings<DataConfig> {
  static constexpr const char* kName = "DataConfig";
  static constexpr const char* kNames = "\"all\" or a list of names of data sets";
  static constexpr std::tuple kFields{
      Setting{"datasets_to_split", &DataConfig::datasets_to_split, kNames},
      Setting{"datasets_to_shuffle", &DataConfig::datasets_to_shuffle, kNames},
      Setting{"seed", &DataConfig::seed, "an int from 0 to 2**64 - 1"},
      Setting{"window", &DataConfig::window, "an int from 1 to 2**62", allowed::window},
      Setting{"equal", &DataConfig::equal, "'pad' (or True), 'drop' or 'uneven' (or False)", allowed::tail},
      Setting{"prefetch", &DataConfig::prefetch, "an int from 1 to 1000", allowed::prefetch},
      Setting{"resume", &DataConfig::resume, "True or False"}};
};

/// Calls `visit` with each Setting of the struct.
template <class Struct, class Visit>
void each_setting(Visit&& visit) {
  std::apply([&](const auto&... setting) { (visit(setting), ...); }, Settings<Struct>::kFields);
}

/// A setting that is wrong, and what it must be.
struct WrongSetting {
  std::string_view setting;
  std::string rule;
};

/// The first wrong setting. Settings of nested structs are not checked.
std::optional<WrongSetting> problem_of(const ScalingConfig& scaling);
std::optional<WrongSetting> problem_of(const FailureConfig& failure);
std::optional<WrongSetting> problem_of(const CheckpointConfig& checkpoint);
std::optional<WrongSetting> problem_of(const RunConfig& run);
std::optional<WrongSetting> problem_of(const DataConfig& data);
std::optional<WrongSetting> problem_of(const EngineConfig& engine);

/// Throws ConfigError: "[RunConfig] verbose is -1; it must be an int of at least 0".
[[noreturn]] void refuse_setting(std::string_view where, std::string_view setting, std::string_view value,
                                 std::string_view rule);

}  // namespace lockstep::store
