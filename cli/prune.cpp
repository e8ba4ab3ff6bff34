#include <lockstep/error.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <set>

#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "commands.h"
#include "quantities.h"
#include "run_summary.h"
#include "store/find_run.h"
#include "store/function_file.h"
#include "store/remove_run.h"
#include "store/tree.h"
#include "table.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

struct Candidate {
  RunSummary run;
  double age = 0;  ///< seconds since its last update
  double size = 0;
  bool may_go = false;  ///< it belongs to this user and does not run
  bool deleted = false;
};

double size_of(const fs::path& run) {
  double size = 0;
  try {
    for (const auto& file : store::list_tree(sys::files(), run, store::Links::keep))
      size += static_cast<double>(file.size);
  } catch (const StorageError&) {
    // It is being written or cannot be read: use the size that was counted so far.
  }
  return size;
}

Candidate look_at(const fs::path& path, double now) {
  Candidate found{.run = read_run(path)};
  struct stat status {};
  const bool is_directory = ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  found.may_go = is_directory && status.st_uid == ::geteuid() && found.run.state != "running";
  const store::RunRecord& record = found.run.record();
  double last = std::max({record.created, record.updated, record.finished});
  if (last == 0 && ::stat((path / "run.json").c_str(), &status) == 0) last = static_cast<double>(status.st_mtime);
  found.age = std::max(0.0, now - last);
  found.size = size_of(path);
  return found;
}

void check_that_it_may_go(const Candidate& named) {
  const std::string name = in_quotes(named.run.path.native());
  if (named.run.state == "running") throw ConfigError("[prune] " + name + " is running; `lockstep stop` ends it");
  if (!named.may_go)
    throw ConfigError("[prune] " + name + " is a link or belongs to another user, so it is not deleted");
}

/// The runs that all criteria select, oldest first. Runs with a broken run.json are selected only if they are named, or
/// by their state.
std::vector<Candidate> choose(std::vector<Candidate> runs, const PruneOptions& options, bool named) {
  std::erase_if(runs, [&](const Candidate& each) {
    const auto& states = options.states;
    if (states.empty()) return !named && each.run.state == "unreadable";
    return std::find(states.begin(), states.end(), each.run.state) == states.end();
  });
  std::sort(runs.begin(), runs.end(), [](const Candidate& a, const Candidate& b) {
    return a.age != b.age ? a.age > b.age : a.run.record().created < b.run.record().created;
  });
  double left = 0;
  for (const Candidate& each : runs) left += each.size;
  std::vector<Candidate> chosen;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::size_t newer_and_this = runs.size() - i;
    if (!runs[i].may_go || (options.older_than && runs[i].age < *options.older_than) ||
        (options.keep && newer_and_this <= *options.keep) || (options.max_size && left <= *options.max_size))
      continue;
    left -= runs[i].size;
    chosen.push_back(runs[i]);
  }
  return chosen;
}

std::string sum_of(const std::vector<Candidate>& runs) {
  double size = 0;
  for (const Candidate& each : runs) size += each.size;
  return std::to_string(runs.size()) + (runs.size() == 1 ? " run, " : " runs, ") + human_size(size);
}

void show(const std::vector<Candidate>& runs) {
  Table table({"NAME", "STATE", ">AGE", ">SIZE"});
  for (const Candidate& each : runs)
    table.add({{name_of(each.run.path)}, {each.run.state}, {age_text(each.age)}, {human_size(each.size)}});
  std::fputs(table.to_text(OutputStyle::of_stdout()).c_str(), stdout);
}

void print_json(const std::vector<Candidate>& runs, const std::vector<std::string>& paths) {
  Value list = Value::array();
  for (std::size_t i = 0; i < runs.size(); ++i)
    list.push_back({{"name", name_of(runs[i].run.path)},
                    {"path", paths[i]},
                    {"state", runs[i].run.state},
                    {"age", runs[i].age},
                    {"size", static_cast<std::int64_t>(runs[i].size)},
                    {"deleted", runs[i].deleted}});
  std::fputs(to_pretty_json(list).c_str(), stdout);
}

/// The user's answer; nothing at the end of the input.
std::optional<bool> ask(const std::string& question) {
  std::printf("%s [y/N] ", question.c_str());
  std::fflush(stdout);
  std::string answer;
  if (!std::getline(std::cin, answer)) {
    std::printf("\n");
    return std::nullopt;
  }
  return answer == "y" || answer == "Y" || answer == "yes" || answer == "Yes";
}

/// Deletes the runs, and what earlier calls left in `storage` if that is not empty. Marks the runs that are gone, and
/// returns the exit code.
int remove_all(std::vector<Candidate>& runs, const fs::path& storage) {
  if (!runs.empty() && !storage.empty()) store::remove_leftovers(storage);
  int code = 0;
  const auto complain = [&](const std::string& what) {
    std::fprintf(stderr, "lockstep: [prune] %s\n", printable(what).c_str());
    code = 1;
  };
  for (Candidate& each : runs) {
    const std::string name = in_quotes(each.run.path.native());
    try {
      switch (store::remove_run(each.run.path)) {
        case store::Removal::done:
          each.deleted = true;
          break;
        case store::Removal::in_use:
          complain(name + " is in use now and was not deleted");
          break;
        case store::Removal::no_run:
          complain(name + " is no longer a run of yours and was not deleted");
          break;
      }
    } catch (const StorageError& error) {
      complain(std::string(error.what()) + "; " + name + " was deleted only in part");
    }
  }
  std::set<fs::path> storage_paths;
  for (const Candidate& each : runs)
    if (each.deleted) storage_paths.insert(each.run.path.parent_path());
  for (const fs::path& storage_path : storage_paths) {
    try {
      store::remove_unused_functions(storage_path);
    } catch (const StorageError& error) {
      complain(error.what());
    }
  }
  return code;
}

/// Shows the runs, asks, deletes, and says what was deleted.
int prune_for_people(std::vector<Candidate> chosen, const PruneOptions& options, const fs::path& storage) {
  show(chosen);
  if (options.dry_run) {
    std::printf("%s would be deleted\n", sum_of(chosen).c_str());
    return 0;
  }
  if (!options.yes) {
    const auto answer = ask("Delete " + sum_of(chosen) + "?");
    if (!answer) throw ConfigError("[prune] nobody answered, so nothing was deleted; --yes deletes without asking");
    if (!*answer) {
      std::printf("nothing was deleted\n");
      return 1;
    }
  }
  const int code = remove_all(chosen, storage);
  std::erase_if(chosen, [](const Candidate& each) { return !each.deleted; });
  std::printf("deleted %s\n", sum_of(chosen).c_str());
  return code;
}

int prune_for_programs(std::vector<Candidate> chosen, const PruneOptions& options, const fs::path& storage) {
  std::vector<std::string> paths;  // while they exist
  std::error_code ignored;
  for (const Candidate& each : chosen) paths.push_back(fs::weakly_canonical(each.run.path, ignored).native());
  const int code = options.dry_run ? 0 : remove_all(chosen, storage);
  print_json(chosen, paths);
  return code;
}

}  // namespace

int prune(const PruneOptions& options) {
  const auto named = store::find_run(options.path);
  const bool has_criterion = options.older_than || options.keep || options.max_size || !options.states.empty();
  if (!named && !has_criterion)
    throw UsageError("[prune] say what to delete: --older-than, --keep, --max-size, --state, or a run's name");
  if (options.json && !options.yes && !options.dry_run)
    throw UsageError("[prune] --json does not ask: add --yes to delete, or --dry-run");
  const fs::path place = named ? *named : storage_of(options.path);
  const double now = unix_seconds(wall_now());
  std::vector<Candidate> runs;
  for (const fs::path& path : named ? std::vector{place} : runs_in(options.path)) runs.push_back(look_at(path, now));
  if (named) check_that_it_may_go(runs[0]);
  std::vector<Candidate> chosen = choose(std::move(runs), options, named.has_value());
  const fs::path storage = named ? fs::path() : place;
  if (options.json) return prune_for_programs(std::move(chosen), options, storage);
  if (chosen.empty()) {
    std::printf("nothing to delete in %s\n", printable(place.native()).c_str());
    return 0;
  }
  return prune_for_people(std::move(chosen), options, storage);
}

}  // namespace lockstep::cli
