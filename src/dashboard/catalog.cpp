#include "dashboard/catalog.h"

#include <lockstep/error.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "base/utf8.h"
#include "dashboard/experiments.h"

namespace lockstep::dashboard {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLargestRecord = std::uint64_t{16} << 20;
constexpr std::uint32_t kWatched = IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_MODIFY | IN_DELETE_SELF |
                                   IN_MOVE_SELF | IN_ONLYDIR | IN_EXCL_UNLINK;

std::string below(const std::string& directory, const std::string& name) {
  return directory == "." ? name : directory + "/" + name;
}

/// Directories that hold no runs.
bool is_inner(const std::string& name) {
  return name.starts_with('.') || name.starts_with("checkpoint_") || name == "logs";
}

bool is_database(const std::string& name) { return name == "experiment.sqlite" || name == "experiment.sqlite-wal"; }

/// An id is shown, and sent back by the page: it must survive JSON and URLs.
bool has_usable_name(const std::string& name) { return valid_utf8(name) == name; }

}  // namespace

Catalog::Catalog(sys::BeneathFiles& files) : files_(files), inotify_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
  const std::scoped_lock lock(mutex_);
  scan(".", 0, nullptr);
}

fs::path Catalog::full(const std::string& id) const { return id == "." ? files_.root() : files_.root() / id; }

fs::path Catalog::path_of(const std::string& id) const {
  const std::scoped_lock lock(mutex_);
  const auto found = places_.find(id);
  if (found == places_.end() || (!found->second.is_run && !found->second.is_experiment))
    throw ConfigError("[dashboard] there is no run or experiment " + in_quotes(id));
  return full(id);
}

void Catalog::scan(const std::string& directory, int depth, std::vector<Change>* changes) {
  if (places_.size() >= kMostPlaces) {
    if (!std::exchange(warned_, true))
      log_warning("[dashboard] only the first " + std::to_string(kMostPlaces) +
                  " directories are shown; give a directory further down");
    return;
  }
  Place place = places_[directory];
  place.watched = watch(directory, directory, "");  // before it is listed, so that nothing is missed
  std::vector<std::string> inner;
  try {
    for (const auto& item : files_.list(full(directory))) {
      if (item.kind == sys::FileKind::file) {
        place.is_run |= item.name == "run.json";
        place.is_experiment |= item.name == "experiment.sqlite";
      } else if (item.kind == sys::FileKind::directory && !is_inner(item.name) && has_usable_name(item.name)) {
        inner.push_back(item.name);
      }
    }
  } catch (const StorageError& error) {
    log_debug(error.what());
  }
  place.run_json.clear();
  place.experiment_json.clear();
  if (changes != nullptr && (place.is_run || place.is_experiment)) changes->push_back({directory, "run.json", true});
  const bool is_leaf = place.is_run && !place.is_experiment;
  places_[directory] = std::move(place);
  if (is_leaf || depth >= kDeepest) return;
  for (const std::string& name : inner) scan(below(directory, name), depth + 1, changes);
}

bool Catalog::watch(const std::string& directory, const std::string& place, const std::string& prefix) {
  if (!inotify_) return false;
  try {
    const sys::Descriptor opened = files_.open_directory(full(directory));
    const std::string name = "/proc/self/fd/" + std::to_string(opened.get());
    const int made = ::inotify_add_watch(inotify_.get(), name.c_str(), kWatched);
    if (made >= 0) {
      watches_[made] = {directory, place, prefix};
      if (!prefix.empty()) followed_[place] = made;
      return true;
    }
    if (errno == ENOSPC && !std::exchange(warned_, true))
      log_warning(
          "[dashboard] the system gives no further inotify watches, so some runs are not shown live; raise "
          "fs.inotify.max_user_watches");
  } catch (const StorageError& error) {
    log_debug(error.what());
  }
  return false;
}

void Catalog::forget(const std::string& directory, std::vector<Change>& changes) {
  for (auto at = places_.lower_bound(directory); at != places_.end() && at->first.starts_with(directory);) {
    const bool is_inside = at->first == directory || at->first[directory.size()] == '/';
    if (!is_inside) {
      ++at;
      continue;
    }
    if (at->second.is_run || at->second.is_experiment) changes.push_back({at->first, "", true});
    at = places_.erase(at);
  }
}

std::vector<Change> Catalog::take() {
  const std::scoped_lock lock(mutex_);
  std::vector<Change> changes;
  alignas(inotify_event) std::array<char, 64 << 10> buffer;
  while (true) {
    const ssize_t count = ::read(inotify_.get(), buffer.data(), buffer.size());
    if (count <= 0) break;
    for (const char* at = buffer.data(); at < buffer.data() + count;) {
      inotify_event event{};
      std::memcpy(&event, at, sizeof event);
      const std::string name = event.len > 0 ? std::string(at + sizeof event) : "";
      at += sizeof event + event.len;
      if ((event.mask & IN_Q_OVERFLOW) != 0) {  // something was missed: look at everything again
        places_.clear();
        scan(".", 0, &changes);
        continue;
      }
      const auto found = watches_.find(event.wd);
      if (found == watches_.end()) continue;
      const Watch watch = found->second;
      if ((event.mask & IN_IGNORED) != 0) {
        watches_.erase(found);
        if (!watch.prefix.empty()) followed_.erase(watch.place);
        continue;
      }
      note(watch, name, event.mask, changes);
    }
  }
  return changes;
}

void Catalog::note(const Watch& watch, const std::string& name, std::uint32_t mask, std::vector<Change>& changes) {
  if (name.empty() || !has_usable_name(name)) return;
  const auto found = places_.find(watch.place);
  if (!watch.prefix.empty()) {
    changes.push_back({watch.place, watch.prefix + name, false});
    return;
  }
  if (found == places_.end()) return;
  Place& place = found->second;
  const bool is_gone = (mask & (IN_DELETE | IN_MOVED_FROM)) != 0;
  if ((mask & IN_ISDIR) != 0) {
    const std::string inner = below(watch.directory, name);
    const auto depth = static_cast<int>(std::count(inner.begin(), inner.end(), '/')) + 1;
    if (is_gone)
      forget(inner, changes);
    else if (!is_inner(name) && (!place.is_run || place.is_experiment) && depth <= kDeepest)
      scan(inner, depth, &changes);
    if (place.is_run) {
      place.run_json.clear();  // a checkpoint was committed or removed
      if (!name.ends_with(".partial")) changes.push_back({watch.place, name, name.starts_with("checkpoint_")});
    }
    return;
  }
  if (name == "run.json") {
    place.is_run = !is_gone;
    place.run_json.clear();
    changes.push_back({watch.place, name, true});
  } else if (is_database(name)) {
    place.is_experiment = place.is_experiment || (name == "experiment.sqlite" && !is_gone);
    if (is_gone && name == "experiment.sqlite") place.is_experiment = false;
    place.experiment_json.clear();
    changes.push_back({watch.place, name, true});
  } else if (place.is_run && !name.ends_with(".partial")) {
    changes.push_back({watch.place, name, false});
  }
}

std::vector<Change> Catalog::look() {
  const std::scoped_lock lock(mutex_);
  std::vector<Change> changes;
  for (auto& [id, place] : places_) {
    if (!place.running) continue;
    const auto driver = store::driver_state(full(id), place.running->record);
    if (driver == place.running->driver) continue;
    place.running.reset();
    place.run_json.clear();
    changes.push_back({id, "run.json", true});
  }
  return changes;
}

void Catalog::follow(const std::vector<std::string>& places) {
  const std::scoped_lock lock(mutex_);
  const std::set<std::string> wanted(places.begin(), places.end());
  std::vector<int> dropped;
  for (const auto& [place, number] : followed_)
    if (!wanted.contains(place)) dropped.push_back(number);
  for (const int number : dropped) ::inotify_rm_watch(inotify_.get(), number);  // IN_IGNORED removes the rest
  for (const std::string& place : wanted) {
    const auto found = places_.find(place);
    if (found != places_.end() && found->second.is_run && !followed_.contains(place))
      watch(below(place, "logs"), place, "logs/");
  }
}

void Catalog::read(const std::string& id, Place& place) {
  if (place.is_run && place.run_json.empty()) {
    place.running.reset();
    try {
      const fs::path path = full(id);
      if (files_.info(path / "run.json").size > kLargestRecord) throw StorageError("its run.json is too large to read");
      store::RunView view = store::RunView::read(path, store::OddFields::ignore, files_);
      place.state = view.state();
      place.run_json = listed_run(id, view, files_);
      if (view.record.state == "running") place.running = std::move(view);
    } catch (const std::exception& error) {
      place.state = "unreadable";
      place.run_json = unreadable_run(id, error.what());
    }
  }
  if (place.is_experiment && place.experiment_json.empty())
    place.experiment_json = listed_experiment(id, full(id), files_);
}

std::string Catalog::list_json(const std::vector<std::string>& ids) {
  const std::scoped_lock lock(mutex_);
  std::string runs, experiments;
  const auto add = [&](const std::string& id, Place& place) {
    if (!place.watched) {
      place.run_json.clear();
      place.experiment_json.clear();
    }
    read(id, place);
    if (place.is_run) runs += (runs.empty() ? "" : ",\n") + place.run_json;
    if (place.is_experiment) experiments += (experiments.empty() ? "" : ",\n") + place.experiment_json;
  };
  if (ids.empty())
    for (auto& [id, place] : places_) add(id, place);
  for (const std::string& id : ids)
    if (const auto found = places_.find(id); found != places_.end()) add(id, found->second);
  std::string out = "{\"root\": ";
  append_json_string(out, files_.root().native());
  return out + ", \"runs\": [" + runs + "],\n\"experiments\": [" + experiments + "]}\n";
}

}  // namespace lockstep::dashboard
