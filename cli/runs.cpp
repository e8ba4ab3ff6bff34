#include <lockstep/error.h>

#include <algorithm>
#include <cstdio>

#include "base/text.h"
#include "commands.h"
#include "run_summary.h"
#include "store/run_directory.h"
#include "table.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> runs_in(const fs::path& path) {
  if (is_run(path)) return {path};
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entries(path, error), end; !error && entries != end; entries.increment(error))
    if (is_run(entries->path())) found.push_back(entries->path());
  if (error)
    throw ConfigError("[runs] " + in_quotes(path.native()) + " cannot be listed: " + error.message() +
                      "; give a directory that holds runs");
  return found;
}

Colour colour_of(const std::string& state) {
  if (state == "running") return Colour::blue;
  if (state == "finished") return Colour::green;
  if (state == "interrupted") return Colour::yellow;
  return Colour::red;
}

std::string count_of_checkpoints(const fs::path& path) {
  try {
    return std::to_string(store::RunDirectory(path).checkpoints().size());
  } catch (const StorageError&) {
    return "?";
  }
}

/// A path's last component, also of "runs/digits/" and ".".
std::string name_of(const fs::path& path) {
  std::error_code ignored;
  const fs::path whole = fs::weakly_canonical(path, ignored);
  return whole.filename().string();
}

std::vector<Table::Cell> row_of(const RunSummary& run) {
  const bool known = run.state != "unreadable";
  return {{name_of(run.path)},
          {run.state.empty() ? "?" : run.state, colour_of(run.state)},
          {known ? std::to_string(run.attempts) : "?"},
          {known ? std::to_string(run.failures) : "?", run.failures > 0 ? Colour::red : Colour::plain},
          {known ? std::to_string(run.iterations) : "?"},
          {time_text(run.started)},
          {known ? human_duration(run.duration) : "-"},
          {count_of_checkpoints(run.path)},
          {metrics_text(run.metrics)}};
}

}  // namespace

int runs(const std::string& path) {
  const fs::path place = path.empty() ? store::default_storage_path() : fs::path(path);
  std::error_code ignored;
  const bool nothing_yet = path.empty() && !fs::exists(place, ignored);
  std::vector<RunSummary> found;
  if (!nothing_yet)
    for (const fs::path& run : runs_in(place)) found.push_back(read_run(run));
  if (found.empty()) {
    std::printf("no runs in %s\n", printable(place.native()).c_str());
    return 0;
  }
  std::sort(found.begin(), found.end(), [](const RunSummary& a, const RunSummary& b) {
    return a.started != b.started ? a.started > b.started : a.path < b.path;
  });
  Table table(
      {"NAME", "STATE", ">ATTEMPTS", ">FAILURES", ">ITERATIONS", "STARTED", ">DURATION", ">CHECKPOINTS", "METRICS"});
  for (const RunSummary& run : found) table.add(row_of(run));
  std::fputs(table.to_text(Terminal::of_stdout()).c_str(), stdout);
  return 0;
}

}  // namespace lockstep::cli
