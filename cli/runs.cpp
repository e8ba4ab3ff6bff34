#include <lockstep/error.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/json.h"
#include "base/text.h"
#include "commands.h"
#include "run_summary.h"
#include "store/address.h"
#include "store/fetch.h"
#include "store/find_run.h"
#include "table.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

Colour colour_of(const std::string& state) {
  if (state == "running") return Colour::blue;
  if (state == "finished") return Colour::green;
  if (state == "interrupted" || state == "stopped" || state == "preempted") return Colour::yellow;
  return Colour::red;
}

std::optional<std::size_t> count_of_checkpoints(const fs::path& path) {
  try {
    return store::count_checkpoints(path);
  } catch (const StorageError&) {
    return std::nullopt;
  }
}

std::vector<Table::Cell> row_of(const RunSummary& run) {
  const bool known = run.state != "unreadable";
  const auto checkpoints = count_of_checkpoints(run.path);
  const auto duration = run.view.duration();
  const std::size_t failures = run.record().failures.size();
  return {{name_of(run.path)},
          {run.state.empty() ? "?" : run.state, colour_of(run.state)},
          {known ? std::to_string(run.record().attempt + 1) : "?"},
          {known ? std::to_string(failures) : "?", failures > 0 ? Colour::red : Colour::plain},
          {known ? std::to_string(run.record().training_iteration) : "?"},
          {time_text(run.record().created)},
          {!known     ? "-"
           : duration ? human_duration(*duration)
                      : "?"},
          {checkpoints ? std::to_string(*checkpoints) : "?"},
          {metrics_text(run.record().metrics)}};
}

/// JSON cannot represent NaN and infinity.
void replace_non_finite(Value& value) {
  if (value.is_number_float() && !std::isfinite(value.get<double>())) value = nullptr;
  if (value.is_structured())
    for (auto& item : value) replace_non_finite(item);
}

Value object_of(const RunSummary& run) {
  const bool known = run.state != "unreadable";
  const auto checkpoints = count_of_checkpoints(run.path);
  const auto duration = run.view.duration();
  const store::RunRecord& record = run.record();
  const auto if_known = [&](auto number) { return known ? Value(number) : Value(nullptr); };
  Value metrics = record.metrics;
  replace_non_finite(metrics);
  std::error_code ignored;
  return Value{{"name", name_of(run.path)},
               {"path", store::shown(fs::weakly_canonical(run.path, ignored))},
               {"state", or_null(run.state)},
               {"trainer", or_null(record.trainer)},
               {"num_workers", if_known(record.num_workers)},
               {"attempts", if_known(record.attempt + 1)},
               {"failures", if_known(record.failures.size())},
               {"iterations", if_known(record.training_iteration)},
               {"created", or_null(record.created)},
               {"updated", or_null(record.updated)},
               {"finished", or_null(record.finished)},
               {"duration", duration ? Value(*duration) : Value(nullptr)},
               {"checkpoints", checkpoints ? Value(*checkpoints) : Value(nullptr)},
               {"metrics", std::move(metrics)},
               {"error", or_null(run.error)},
               {"driver", {{"hostname", or_null(record.driver.hostname)}, {"pid", or_null(record.driver.pid)}}}};
}

std::optional<fs::path> named_run(const std::string& path) {
  if (!store::is_address(path)) return store::find_run(path);
  return store::fetch_record(store::Address::parse(path));
}

/// The named run, or those in the directory that the options select, newest first.
std::vector<RunSummary> wanted_runs(const RunsOptions& options) {
  const auto named = named_run(options.path);
  std::vector<RunSummary> found;
  for (const fs::path& path : named ? std::vector{*named} : runs_in(options.path)) {
    RunSummary run = read_run(path);
    const auto& states = options.states;
    if (states.empty() || std::find(states.begin(), states.end(), run.state) != states.end())
      found.push_back(std::move(run));
  }
  std::sort(found.begin(), found.end(), [](const RunSummary& a, const RunSummary& b) {
    const double first = a.record().created, second = b.record().created;
    return first != second ? first > second : a.path < b.path;
  });
  if (options.limit && found.size() > *options.limit) found.resize(*options.limit);
  return found;
}

void print_json(const std::vector<RunSummary>& runs) {
  Value list = Value::array();
  for (const RunSummary& run : runs) list.push_back(object_of(run));
  std::fputs(to_pretty_json(list).c_str(), stdout);
}

}  // namespace

int runs(const RunsOptions& options) {
  const std::vector<RunSummary> found = wanted_runs(options);
  if (options.json) {
    print_json(found);
    return 0;
  }
  if (found.empty()) {
    const std::string which = options.states.empty() ? "" : joined(options.states, " or ") + " ";
    std::printf("no %sruns in %s\n", which.c_str(), printable(storage_of(options.path).native()).c_str());
    return 0;
  }
  Table table(
      {"NAME", "STATE", ">ATTEMPTS", ">FAILURES", ">ITERATIONS", "STARTED", ">DURATION", ">CHECKPOINTS", "METRICS"});
  for (const RunSummary& run : found) table.add(row_of(run));
  std::fputs(table.to_text(OutputStyle::of_stdout()).c_str(), stdout);
  return 0;
}

}  // namespace lockstep::cli
