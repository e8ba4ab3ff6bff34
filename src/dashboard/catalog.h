#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dashboard/feed.h"
#include "store/run_view.h"
#include "sys/beneath_files.h"
#include "sys/descriptor.h"

namespace lockstep::dashboard {

/// What there is below the root: runs and experiments, at most kDeepest directories down. The id of one is its path
/// below the root ("search-1/trial_0"; "." if the root itself is one). The tree is read once; then inotify says what
/// changed. If the system gives no further watches, the directories without one are read at each request.
///
/// Any thread may call.
class Catalog final : public Feed {
 public:
  static constexpr int kDeepest = 6;
  static constexpr std::size_t kMostPlaces = 50'000;

  explicit Catalog(sys::BeneathFiles& files);

  /// The path of a run or experiment. Throws ConfigError if the catalog has no such id.
  std::filesystem::path path_of(const std::string& id) const;
  /// {"root", "runs": [...], "experiments": [...]}; of all, or of those `ids` that still exist.
  std::string list_json(const std::vector<std::string>& ids);

  int descriptor() const override { return inotify_.get(); }
  std::vector<Change> take() override;
  std::vector<Change> look() override;
  void follow(const std::vector<std::string>& places) override;

 private:
  struct Place {
    bool is_run = false, is_experiment = false;
    bool watched = false;
    std::string run_json, experiment_json;  ///< as the list shows them; empty: to be read
    std::string state;                      ///< of the run, when it was read
    std::optional<store::RunView> running;  ///< if it ran then
  };
  struct Watch {
    std::string directory;  ///< below the root
    std::string place, prefix;
  };

  void scan(const std::string& directory, int depth, std::vector<Change>* changes);
  bool watch(const std::string& directory, const std::string& place, const std::string& prefix);
  void forget(const std::string& directory, std::vector<Change>& changes);
  void note(const Watch& watch, const std::string& name, std::uint32_t mask, std::vector<Change>& changes);
  void read(const std::string& id, Place& place);
  std::filesystem::path full(const std::string& id) const;

  sys::BeneathFiles& files_;
  sys::Descriptor inotify_;
  mutable std::mutex mutex_;  ///< guards what follows
  std::map<std::string, Place> places_;
  std::map<int, Watch> watches_;
  std::map<std::string, int> followed_;  ///< logs directories: watch by place
  bool warned_ = false;
};

/// One run as the list shows it, a JSON object. Reads its checkpoints' manifests if the run compares them by a score.
std::string listed_run(const std::string& id, const store::RunView& view, sys::Files& files);
/// The same of a run whose run.json cannot be read.
std::string unreadable_run(const std::string& id, const std::string& why);

}  // namespace lockstep::dashboard
