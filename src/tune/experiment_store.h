#pragma once

#include <condition_variable>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "sys/directory_lock.h"
#include "tune/searcher.h"
#include "tune/sqlite.h"

namespace lockstep::tune {

/// What happened to an experiment, in the order it did. Repeating it gives the states of trials, of the searcher and of
/// the scheduler. docs/tuning_database.md describes each kind.
struct Event {
  enum class Kind { ask, wait, exhausted, start, none, report, checkpoint, end, fail, retry, pause, drop, reopen };
  Kind kind = Kind::ask;
  TrialNumber trial = -1;
  std::int64_t iteration = 0;
  double time = 0;
  std::vector<double> values = {};  ///< of a report: minimised, one per metric
  bool has_checkpoint = false;      ///< of a report: the trial had one then
  /// Of a report: empty (go on), "stop", "pause", or "reached": by the stop criteria. Of a start: "exploit": from the
  /// checkpoint of a donor, "forced": the scheduler chose none though nothing ran.
  std::string outcome = {};
};

/// A row of table trials; JSON as text.
struct TrialRow {
  TrialNumber number = 0;
  std::string id, name, state, config, last_result;
  std::int64_t iterations = 0;
  int failures = 0;
  int attempts = 0;
  std::string error, checkpoint;
  std::int64_t checkpoint_iteration = 0;
  double started = 0, ended = 0;
};

/// experiment.sqlite of one experiment; docs/tuning_database.md describes its tables. Changes are collected and written
/// by a thread, many in one transaction, within 0.1 s. For one thread at a time; an error of the writing thread is
/// thrown by the next call.
class ExperimentStore {
 public:
  /// `settings`: the rows of table experiment; the file appears with them, so it is never half made. Throws
  /// StorageError if the directory holds an experiment already, or one that another process writes to.
  static std::unique_ptr<ExperimentStore> create(const std::filesystem::path& directory,
                                                 const std::map<std::string, std::string>& settings);
  /// Throws StorageError if there is none, or, unless read-only, if something else writes to it.
  static std::unique_ptr<ExperimentStore> open(const std::filesystem::path& directory, bool read_only);
  ~ExperimentStore();

  /// Changes that are made durable together or not at all: those until this object is destroyed.
  class Change {
   public:
    explicit Change(ExperimentStore& store);
    ~Change();
    void add(Event event);
    void put(const TrialRow& row);
    void add_result(TrialNumber trial, std::int64_t iteration, double time, std::string metrics);
    /// Removes the results of a trial after its `iteration`-th.
    void cut_results(TrialNumber trial, std::int64_t iteration);
    void add_decision(TrialNumber trial, std::int64_t iteration, const char* decision, std::string why);

   private:
    ExperimentStore& store_;
    std::unique_lock<std::mutex> lock_;
  };
  /// Waits until all changes are durable.
  void sync();

  // Reading; makes changes durable first.
  std::map<std::string, std::string> settings();
  void for_each_event(const std::function<void(std::int64_t sequence, const Event& event)>& see);
  void for_each_trial(const std::function<void(const TrialRow& row)>& see);
  std::optional<TrialRow> trial(TrialNumber number);
  void for_each_result(TrialNumber trial, const std::function<void(std::string_view metrics)>& see);

  /// Removes or changes events before they are repeated; not while a Change exists.
  void remove_events(const std::vector<std::int64_t>& sequences);
  void set_kind(std::int64_t sequence, Event::Kind kind);

 private:
  struct Result {
    TrialNumber trial;
    std::int64_t iteration;
    double time;
    std::string metrics;  ///< empty: cut
  };
  struct Decided {
    TrialNumber trial;
    std::int64_t iteration;
    const char* decision;
    std::string why;
  };
  struct Batch {
    std::vector<Event> events;
    std::map<TrialNumber, TrialRow> trials;
    std::vector<Result> results;
    std::vector<Decided> decisions;
    std::size_t size = 0;

    void clear();  ///< keeps its memory
  };
  class Writer;

  ExperimentStore(const std::filesystem::path& directory, bool writable,
                  const std::map<std::string, std::string>* created);
  void write_loop();
  void note();  ///< one more change in batch_

  std::filesystem::path directory_;
  std::optional<sys::DirectoryLock> lock_;
  std::optional<Database> writing_;
  std::optional<Database> reading_;

  std::mutex mutex_;  ///< guards what follows
  std::condition_variable wake_;
  std::condition_variable written_;
  Batch batch_;
  Batch written_batch_;  ///< of the writing thread while busy_
  bool hurry_ = false;
  bool busy_ = false;
  bool closing_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

/// The word of a kind in the database.
const char* word_of(Event::Kind kind);

}  // namespace lockstep::tune
