#include <lockstep/error.h>

#include <cstdio>

#include "base/text.h"
#include "commands.h"
#include "run_summary.h"
#include "store/address.h"
#include "store/checkpoint_list.h"
#include "store/fetch.h"
#include "store/find_run.h"
#include "store/run_directory.h"
#include "store/verify.h"
#include "table.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

std::string iteration_of(const Value& metrics) {
  const auto found = metrics.find("training_iteration");
  return found != metrics.end() && found->is_number_integer() ? std::to_string(found->get<std::int64_t>()) : "-";
}

std::vector<Table::Cell> row_of(const store::ListedCheckpoint& checkpoint) {
  const std::string name = store::RunDirectory::checkpoint_name(checkpoint.seq);
  if (!checkpoint.manifest) return {{name}, {"broken: see `lockstep checkpoint verify`", Colour::red}};
  const store::Manifest& manifest = *checkpoint.manifest;
  return {{name},
          {time_text(manifest.created)},
          {std::to_string(manifest.attempt)},
          {iteration_of(manifest.metrics)},
          {std::to_string(manifest.files.size())},
          {human_size(static_cast<double>(manifest.size()))},
          {metrics_text(manifest.metrics)}};
}

/// Prints what verify_checkpoint found. Returns whether the checkpoint is intact.
bool report(const fs::path& checkpoint, const OutputStyle& style) {
  const auto problems = store::verify_checkpoint(checkpoint);
  const std::string name = printable(store::shown(checkpoint));
  if (problems.empty()) {
    const auto manifest = store::read_manifest(sys::files(), checkpoint);
    std::printf("%s: %s, %zu files, %s\n", name.c_str(), style.paint(Colour::green, "ok").c_str(),
                manifest.files.size(), human_size(static_cast<double>(manifest.size())).c_str());
    return true;
  }
  for (const auto& problem : problems)
    std::printf("%s: %s %s\n", name.c_str(), style.paint(Colour::red, printable(problem.file)).c_str(),
                printable(problem.what).c_str());
  return false;
}

/// A directory that is not a run is taken as a checkpoint.
fs::path find_run_or_checkpoint(const std::string& name) {
  if (store::is_address(name)) {
    const auto address = store::Address::parse(name);
    if (auto run = store::fetch_run(address)) return *run;
    if (auto checkpoint = store::fetch_checkpoint(address)) return *checkpoint;
    throw ConfigError("[checkpoint] there is no run or checkpoint at " + in_quotes(name));
  }
  if (auto run = store::find_run(name)) return *run;
  std::error_code ignored;
  for (fs::path& place : store::places_of_run(name))
    if (fs::is_directory(place, ignored)) return std::move(place);
  throw ConfigError("[checkpoint] there is no run or checkpoint " + in_quotes(name) +
                    "; give a directory, or a name below " + in_quotes(store::default_storage_path().native()));
}

}  // namespace

int list_checkpoints(const std::string& name) {
  const fs::path path = find_run(name, Needs::manifests);
  const auto checkpoints = store::list_checkpoints(store::RunDirectory(path));
  if (checkpoints.empty()) {
    std::printf("no checkpoints in %s\n", printable(store::is_address(name) ? name : path.native()).c_str());
    return 0;
  }
  Table table({"NAME", "CREATED", ">ATTEMPT", ">ITERATION", ">FILES", ">SIZE", "METRICS"});
  for (const auto& each : checkpoints) table.add(row_of(each));
  std::fputs(table.to_text(OutputStyle::of_stdout()).c_str(), stdout);
  return 0;
}

int verify_checkpoints(const std::string& name) {
  const fs::path path = find_run_or_checkpoint(name);
  const OutputStyle style = OutputStyle::of_stdout();
  if (!is_run(path)) return report(path, style) ? 0 : 1;

  const store::RunDirectory run(path);
  const auto seqs = run.checkpoints();
  if (seqs.empty()) std::printf("no checkpoints in %s\n", printable(store::shown(path)).c_str());
  bool whole = true;
  for (const int seq : seqs) {
    std::error_code ignored;
    // A running run may have removed it since.
    if (!fs::exists(run.checkpoint_path(seq), ignored)) continue;
    whole = report(run.checkpoint_path(seq), style) && whole;
  }
  return whole ? 0 : 1;
}

}  // namespace lockstep::cli
