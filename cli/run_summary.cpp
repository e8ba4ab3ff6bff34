#include "run_summary.h"

#include <lockstep/error.h>

#include <optional>

#include "base/clock.h"
#include "base/ids.h"
#include "base/text.h"
#include "metrics/metric_texts.h"
#include "store/address.h"
#include "store/fetch.h"
#include "store/find_run.h"
#include "store/run_directory.h"

namespace lockstep::cli {

namespace fs = std::filesystem;

bool is_run(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path / "run.json", ignored);
}

fs::path storage_of(const std::string& path) { return path.empty() ? store::default_storage_path() : fs::path(path); }

std::vector<fs::path> runs_in(const std::string& path) {
  const std::string storage = path.empty() ? store::default_storage_path().native() : path;
  if (store::is_address(storage)) return store::fetch_records_below(store::Address::parse(storage));
  const fs::path place = storage_of(path);
  std::vector<fs::path> found;
  std::error_code error;
  if (path.empty() && !fs::exists(place, error)) return found;
  for (fs::directory_iterator entries(place, error), end; !error && entries != end; entries.increment(error))
    if (is_run(entries->path())) found.push_back(entries->path());
  if (error)
    throw ConfigError("[runs] there is no run " + in_quotes(path) + ", and no directory of runs can be listed there: " +
                      error.message() + "; `lockstep runs` lists the runs");
  return found;
}

RunSummary read_run(const fs::path& path) {
  try {
    store::RunView view = store::RunView::read(path, store::OddFields::ignore);
    return {path, view.state(), view.record.error, std::move(view)};
  } catch (const StorageError& error) {
    return {path, "unreadable", error.what(), {}};
  }
}

namespace {

std::optional<fs::path> fetch(const store::Address& run, Needs needs) {
  switch (needs) {
    case Needs::record:
      return store::fetch_record(run);
    case Needs::logs:
      return store::fetch_logs(run);
    case Needs::manifests:
      return store::fetch_manifests(run);
    case Needs::everything:
      break;
  }
  return store::fetch_run(run);
}

}  // namespace

fs::path find_run(const std::string& name, Needs needs) {
  if (name.empty()) throw ConfigError("[runs] the run's name is empty; `lockstep runs` lists the runs");
  if (store::is_address(name)) {
    if (auto found = fetch(store::Address::parse(name), needs)) return *found;
    throw ConfigError("[runs] there is no run at " + in_quotes(name) + ": it has no run.json; `lockstep runs " +
                      "ADDRESS` lists the runs below an address");
  }
  if (auto found = store::find_run(name)) return *found;
  std::vector<std::string> places;
  for (const fs::path& place : store::places_of_run(name)) places.push_back(in_quotes(place.native()));
  throw ConfigError("[runs] there is no run " + in_quotes(name) + ": no run.json in " + joined(places, " or ") +
                    "; `lockstep runs` lists the runs");
}

std::string name_of(const fs::path& path) {
  std::error_code ignored;
  const fs::path whole = fs::weakly_canonical(path, ignored);
  return whole.filename().string();
}

std::string metrics_text(const Value& metrics) {
  return joined(metrics::metric_texts(metrics, metrics::Keys::reported, std::string::npos), " ");
}

std::string time_text(double unix_seconds) {
  if (unix_seconds <= 0 || unix_seconds > 1e11) return "-";
  return time_string(WallTime(std::chrono::seconds(static_cast<std::int64_t>(unix_seconds))));
}

}  // namespace lockstep::cli
