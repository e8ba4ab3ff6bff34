#include <lockstep/error.h>

#include <cstdio>
#include <numeric>

#include "base/text.h"
#include "commands.h"
#include "run_summary.h"
#include "store/find_run.h"
#include "store/run_directory.h"
#include "store/verify.h"
#include "table.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

double size_of(const store::Manifest& manifest) {
  return std::accumulate(manifest.files.begin(), manifest.files.end(), 0.0,
                         [](double sum, const store::FileEntry& file) { return sum + static_cast<double>(file.size); });
}

std::string iteration_of(const Value& metrics) {
  const auto found = metrics.find("training_iteration");
  return found != metrics.end() && found->is_number_integer() ? std::to_string(found->get<std::int64_t>()) : "-";
}

std::vector<Table::Cell> row_of(const store::RunDirectory& run, int seq) {
  const std::string name = store::RunDirectory::checkpoint_name(seq);
  try {
    const store::Manifest manifest = run.checkpoint(seq).manifest;
    return {{name},
            {time_text(manifest.created)},
            {std::to_string(manifest.attempt)},
            {iteration_of(manifest.metrics)},
            {std::to_string(manifest.files.size())},
            {human_size(size_of(manifest))},
            {metrics_text(manifest.metrics)}};
  } catch (const StorageError&) {
    return {{name}, {"broken: see `lockstep checkpoint verify`", Colour::red}};
  }
}

/// Prints what verify_checkpoint found; whether the checkpoint is whole.
bool report(const fs::path& checkpoint, const Terminal& terminal) {
  const auto problems = store::verify_checkpoint(checkpoint);
  const std::string name = printable(checkpoint.native());
  if (problems.empty()) {
    const auto manifest = store::read_manifest(sys::files(), checkpoint);
    std::printf("%s: %s, %zu files, %s\n", name.c_str(), terminal.paint(Colour::green, "ok").c_str(),
                manifest.files.size(), human_size(size_of(manifest)).c_str());
    return true;
  }
  for (const auto& problem : problems)
    std::printf("%s: %s %s\n", name.c_str(), terminal.paint(Colour::red, printable(problem.file)).c_str(),
                printable(problem.what).c_str());
  return false;
}

/// A directory that is no run is taken for a checkpoint.
fs::path find_run_or_checkpoint(const std::string& name) {
  if (auto run = store::find_run(name)) return *run;
  std::error_code ignored;
  for (fs::path& place : store::places_of_run(name))
    if (fs::is_directory(place, ignored)) return std::move(place);
  throw ConfigError("[checkpoint] there is no run or checkpoint " + in_quotes(name) +
                    "; give a directory, or a name below " + in_quotes(store::default_storage_path().native()));
}

}  // namespace

int list_checkpoints(const std::string& name) {
  const fs::path path = find_run(name);
  const store::RunDirectory run(path);
  const auto seqs = run.checkpoints();
  if (seqs.empty()) {
    std::printf("no checkpoints in %s\n", printable(path.native()).c_str());
    return 0;
  }
  Table table({"NAME", "CREATED", ">ATTEMPT", ">ITERATION", ">FILES", ">SIZE", "METRICS"});
  for (const int seq : seqs) table.add(row_of(run, seq));
  std::fputs(table.to_text(Terminal::of_stdout()).c_str(), stdout);
  return 0;
}

int verify_checkpoints(const std::string& name) {
  const fs::path path = find_run_or_checkpoint(name);
  const Terminal terminal = Terminal::of_stdout();
  if (!is_run(path)) return report(path, terminal) ? 0 : 1;

  const store::RunDirectory run(path);
  const auto seqs = run.checkpoints();
  if (seqs.empty()) std::printf("no checkpoints in %s\n", printable(path.native()).c_str());
  bool whole = true;
  for (const int seq : seqs) {
    std::error_code ignored;
    // A run that goes on may have removed it since.
    if (!fs::exists(run.checkpoint_path(seq), ignored)) continue;
    whole = report(run.checkpoint_path(seq), terminal) && whole;
  }
  return whole ? 0 : 1;
}

}  // namespace lockstep::cli
