#include "store/settings.h"

#include <lockstep/error.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "base/ids.h"
#include "base/text.h"

namespace lockstep::store {
namespace {

using Amounts = std::map<std::string, double>;
using Duration = std::chrono::duration<double>;

bool is_one_of(std::string_view value, std::initializer_list<std::string_view> choices) {
  return std::ranges::find(choices, value) != choices.end();
}

std::string in_single_quotes(std::string_view text) {
  const std::string quoted = in_quotes(text);
  return "'" + quoted.substr(1, quoted.size() - 2) + "'";
}

// Values in Python's spelling.
std::string value_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.12g", value);
  return text;
}
std::string value_text(int value) { return std::to_string(value); }
std::string value_text(std::int64_t value) { return std::to_string(value); }
std::string value_text(std::uint64_t value) { return std::to_string(value); }
std::string value_text(const WorkerCount& value) {
  if (!value.is_elastic()) return std::to_string(value.least);
  return "(" + std::to_string(value.least) + ", " + std::to_string(value.most) + ")";
}
std::string value_text(bool value) { return value ? "True" : "False"; }
std::string value_text(Duration value) { return value_text(value.count()); }
std::string value_text(const std::string& value) { return in_single_quotes(value); }
std::string value_text(const std::filesystem::path& value) { return in_single_quotes(value.native()); }
std::string value_text(const Amounts& amounts) {
  std::string text;
  for (const auto& [name, amount] : amounts)
    text += (text.empty() ? "" : ", ") + in_single_quotes(name) + ": " + value_text(amount);
  return "{" + text + "}";
}
std::string value_text(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + in_single_quotes(name);
  return "[" + text + "]";
}
template <class T>
std::string value_text(const std::optional<T>& value) {
  return value ? value_text(*value) : "None";
}

template <class Struct>
std::optional<WrongSetting> problem_of_one(const Struct& given) {
  std::optional<WrongSetting> found;
  each_setting<Struct>([&](const auto& setting) {
    if (!found && setting.is_allowed != nullptr && !setting.is_allowed(given.*setting.field))
      found = WrongSetting{setting.name, "it must be " + std::string(setting.must_be)};
  });
  return found;
}

template <class Struct>
void check_settings(const Struct& given) {
  const auto problem = problem_of(given);
  if (!problem) return;
  std::string value;
  each_setting<Struct>([&](const auto& setting) {
    if constexpr (!HasSettings<std::remove_cvref_t<decltype(given.*setting.field)>>)
      if (setting.name == problem->setting) value = value_text(given.*setting.field);
  });
  refuse_setting(Settings<Struct>::kName, problem->setting, value, problem->rule);
}

}  // namespace

namespace allowed {

bool workers(const WorkerCount& value) { return value.is_elastic() || value.least >= 1; }
bool count_or_nothing(const std::optional<int>& value) { return !value || *value >= 0; }
bool seconds(const Duration& value) { return value.count() > 0 && std::isfinite(value.count()); }
bool seconds_or_nothing(const std::optional<Duration>& value) { return !value || seconds(*value); }
bool strategy(const std::string& value) { return is_one_of(value, {"PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"}); }
bool order(const std::string& value) { return is_one_of(value, {"max", "min"}); }
/// Also ranks, as "0,2": not for users of RunConfig, but for `lockstep run`.
bool shown_ranks(const std::string& value) {
  const bool is_list = !value.empty() && value.find_first_not_of("0123456789,") == std::string::npos;
  return is_list || is_one_of(value, {"rank0", "all", "none"});
}
bool not_empty(const std::string& value) { return !value.empty(); }
bool when_busy(const std::string& value) { return is_one_of(value, {"wait", "skip"}); }
bool window(const std::int64_t& value) { return value >= 1 && value <= std::int64_t{1} << 62; }
bool prefetch(const int& value) { return value >= 1 && value <= 1000; }
bool engine(const std::string& value) { return is_one_of(value, {"auto", "local", "slurm", "ray", "ssh", "join"}); }
bool positive_or_nothing(const std::optional<int>& value) { return !value || *value >= 1; }
bool port(const std::optional<int>& value) { return !value || (*value >= 1 && *value <= 65535); }
bool tail(const std::string& value) { return is_one_of(value, {"pad", "drop", "uneven"}); }

}  // namespace allowed

std::optional<WrongSetting> problem_of(const ScalingConfig& scaling) {
  if (auto problem = problem_of_one(scaling)) return problem;
  const WorkerCount& workers = scaling.num_workers;
  if (workers.least < 1 || workers.least > workers.most)
    return WrongSetting{"num_workers", "it must be (minimum, maximum), two ints of at least 1, such as (2, 8)"};
  constexpr auto kResources = "resources_per_worker";
  for (const auto& [name, amount] : scaling.resources_per_worker) {
    if (name.empty()) return WrongSetting{kResources, "the name '' is not the name of a resource"};
    if (!(amount >= 0) || std::isinf(amount))
      return WrongSetting{kResources, "the amount of " + in_single_quotes(name) + " must be a number of at least 0"};
    if (name != "GPU") continue;
    if (amount > 1 && amount != std::floor(amount))
      return WrongSetting{kResources, "the amount of 'GPU' must be a whole number, or less than 1"};
    if ((amount > 0) != scaling.use_gpu)
      return WrongSetting{kResources, "its GPU entry contradicts use_gpu=" + value_text(scaling.use_gpu)};
  }
  return std::nullopt;
}

std::optional<WrongSetting> problem_of(const FailureConfig& failure) { return problem_of_one(failure); }

std::optional<WrongSetting> problem_of(const CheckpointConfig& checkpoint) {
  if (auto problem = problem_of_one(checkpoint)) return problem;
  if (checkpoint.when_busy == "skip" && checkpoint.keep_all_ranks)
    return WrongSetting{"when_busy",
                        "with keep_all_ranks it must be 'wait': a checkpoint needs the parts of all ranks"};
  return std::nullopt;
}

std::optional<WrongSetting> problem_of(const DataConfig& data) { return problem_of_one(data); }

std::optional<WrongSetting> problem_of(const EngineConfig& engine) {
  if (auto problem = problem_of_one(engine)) return problem;
  if (!engine.hosts.empty() && !engine.hostfile.empty())
    return WrongSetting{"hostfile", "hosts names the hosts already; give one of the two"};
  if (!engine.hosts.empty() && engine.kind != "ssh" && engine.kind != "auto")
    return WrongSetting{"hosts", "only the engine 'ssh' has hosts"};
  return std::nullopt;
}

std::optional<WrongSetting> problem_of(const RunConfig& run) {
  if (auto problem = problem_of_one(run)) return problem;
  if (const auto why = run.name.empty() ? "" : run_name_problem(run.name); !why.empty())
    return WrongSetting{"name", "it " + std::string(why) + "; choose one path component such as 'digits-1'"};
  if (run.resume == "auto" && run.name.empty())
    return WrongSetting{"resume", "it needs a name, by which the run is found again: RunConfig(name='digits-1')"};
  if (run.resume != "auto" && run.resume != "never" && !run.name.empty())
    return WrongSetting{"resume", "a path names the run, so leave out name"};
  if (run.max_report_size > 1 << 30) return WrongSetting{"max_report_size", "it must be at most 2**30 bytes"};
  for (const auto& [name, least] : run.stop) {
    if (name.empty()) return WrongSetting{"stop", "the name '' is not the name of a metric"};
    if (std::isnan(least)) return WrongSetting{"stop", "the value of " + in_single_quotes(name) + " must be a number"};
  }
  return std::nullopt;
}

void refuse_setting(std::string_view where, std::string_view setting, std::string_view value, std::string_view rule) {
  std::string text = "[";
  for (const std::string_view part :
       {where, std::string_view("] "), setting, std::string_view(" is "), value, std::string_view("; "), rule})
    text += part;
  throw ConfigError(text);
}

}  // namespace lockstep::store

namespace lockstep {

void validate(const TrainerOptions& options) {
  store::check_settings(options.scaling);
  store::check_settings(options.run);
  store::check_settings(options.run.failure);
  store::check_settings(options.run.checkpoint);
  store::check_settings(options.run.engine);
}

void validate(const DataConfig& config) { store::check_settings(config); }

}  // namespace lockstep
