#include "dashboard/open_metrics.h"

#include <lockstep/value.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "base/json.h"

namespace lockstep::dashboard {
namespace {

constexpr std::array kStates{"running", "finished", "failed", "interrupted", "stopped", "preempted", "died"};

std::string label(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || c == '"') escaped += '\\';
    if (c == '\n')
      escaped += "\\n";
    else
      escaped += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  }
  return escaped;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return Value(value).dump();
}

/// The number at a key; nothing if it is missing or null.
std::optional<double> number_in_run(const Value& run, const char* key) {
  const auto found = run.find(key);
  if (found == run.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

/// A metric as a number; nothing if it is a text. See page_json().
std::optional<double> number_of_metric(const Value& value) {
  if (value.is_number()) return value.get<double>();
  if (value == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (value == "Infinity") return std::numeric_limits<double>::infinity();
  if (value == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

class MetricsText {
 public:
  explicit MetricsText(const Value& runs) : runs_(runs) {}

  /// One sample for each run that has the number.
  void add(const std::string& name, const char* type, const char* help,
           const std::function<std::optional<double>(const Value& run)>& of) {
    begin(name, type, help);
    const std::string suffix = std::string_view(type) == "counter" ? "_total" : "";
    for (const Value& run : runs_)
      if (const auto value = of(run)) sample(name + suffix, run, "", *value);
  }
  void add_states() {
    begin("lockstep_run_state", "stateset", "How the run is going.");
    for (const Value& run : runs_)
      for (const char* state : kStates)
        sample("lockstep_run_state", run, std::string(",lockstep_run_state=\"") + state + '"', run["state"] == state);
  }
  void add_metrics() {
    begin("lockstep_metric", "gauge", "Numbers of rank 0's last report.");
    for (const Value& run : runs_)
      for (const auto& [name, value] : run["metrics"].items())
        if (const auto number = number_of_metric(value))
          sample("lockstep_metric", run, ",name=\"" + label(name) + '"', *number);
  }
  std::string take() && { return std::move(text_) + "# EOF\n"; }

 private:
  void begin(const std::string& name, const char* type, const char* help) {
    text_ += "# TYPE " + name + ' ' + type + "\n# HELP " + name + ' ' + help + '\n';
  }
  void sample(const std::string& name, const Value& run, const std::string& labels, double value) {
    text_ += name + "{run=\"" + label(run["id"].get<std::string>()) + '"' + labels + "} " + number(value) + '\n';
  }

  const Value& runs_;
  std::string text_;
};

}  // namespace

std::string open_metrics(std::string_view list_json) {
  const Value list = parse_json(list_json, "[dashboard] the list of runs");
  MetricsText text(list["runs"]);
  const auto field = [](const char* key) { return [key](const Value& run) { return number_in_run(run, key); }; };
  text.add("lockstep_reports", "counter", "Reports of rank 0.", field("iteration"));
  text.add("lockstep_restarts", "counter", "Attempts after the first.", [](const Value& run) {
    const auto attempts = number_in_run(run, "attempts");
    return attempts ? std::optional(*attempts - 1) : std::nullopt;
  });
  text.add("lockstep_failures", "counter", "Workers that failed.", field("failures"));
  text.add("lockstep_checkpoints", "counter",
           "Checkpoints that were committed, and those before the one that the run resumed from.",
           field("checkpoints"));
  text.add("lockstep_checkpoints_skipped", "counter", "Checkpoints that were dropped because the disk was busy.",
           field("checkpoints_skipped"));
  text.add("lockstep_workers", "gauge", "Workers of the last attempt.", field("workers"));
  text.add("lockstep_run_seconds", "gauge", "How long the run has lasted.", field("duration"));
  text.add("lockstep_last_update_timestamp_seconds", "gauge", "When the run's record was written.", field("updated"));
  text.add("lockstep_progress_ratio", "gauge", "How far the run is, from 0 to 1.", field("progress"));
  text.add_states();
  text.add_metrics();
  return std::move(text).take();
}

}  // namespace lockstep::dashboard
