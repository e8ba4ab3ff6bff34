#include "tune/experiment_store.h"

#include <lockstep/error.h>
#include <pthread.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstring>

#include "base/json.h"
#include "base/text.h"
#include "sys/files.h"

namespace lockstep::tune {
namespace {

constexpr auto kLatest = std::chrono::milliseconds(50);  ///< after the first change of a batch
constexpr std::size_t kEnough = 20'000;                  ///< changes that are not waited with
constexpr std::size_t kMost = 100'000;                   ///< changes after which callers wait

constexpr std::array<const char*, 13> kEventWords = {"ask",    "wait",       "exhausted", "start", "none",
                                                     "report", "checkpoint", "end",       "fail",  "retry",
                                                     "pause",  "drop",       "reopen"};

constexpr const char* kSchema = R"(
  PRAGMA journal_mode = WAL;
  CREATE TABLE experiment (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
  CREATE TABLE trials (number INTEGER PRIMARY KEY, id TEXT, name TEXT, state TEXT, config TEXT, last_result TEXT,
                       iterations INTEGER, failures INTEGER, attempts INTEGER, error TEXT, checkpoint TEXT,
                       checkpoint_iteration INTEGER, started REAL, ended REAL);
  CREATE TABLE results (trial INTEGER, iteration INTEGER, time REAL, metrics TEXT, PRIMARY KEY (trial, iteration))
         WITHOUT ROWID;
  CREATE TABLE events (sequence INTEGER PRIMARY KEY, kind TEXT, trial INTEGER, iteration INTEGER, time REAL,
                       value REAL, more_values TEXT, has_checkpoint INTEGER, outcome TEXT);
  CREATE TABLE decisions (trial INTEGER, iteration INTEGER, decision TEXT, why TEXT);
  PRAGMA user_version = 1;
)";

constexpr const char* kTrialColumns =
    "SELECT number, id, name, state, config, last_result, iterations, failures, attempts, error, checkpoint, "
    "checkpoint_iteration, started, ended FROM trials ";

Event::Kind event_kind_of(std::string_view word) {
  for (std::size_t i = 0; i < kEventWords.size(); ++i)
    if (word == kEventWords[i]) return static_cast<Event::Kind>(i);
  throw StorageError("[tune] the database has an event of the unknown kind " + in_quotes(word) +
                     "; it was written by a newer version of Lockstep");
}

TrialRow trial_row_of(const Statement& row) {
  TrialRow trial;
  trial.number = row.integer(0);
  trial.id = row.text(1);
  trial.name = row.text(2);
  trial.state = row.text(3);
  trial.config = row.text(4);
  trial.last_result = row.text(5);
  trial.iterations = row.integer(6);
  trial.failures = static_cast<int>(row.integer(7));
  trial.attempts = static_cast<int>(row.integer(8));
  trial.error = row.text(9);
  trial.checkpoint = row.text(10);
  trial.checkpoint_iteration = row.integer(11);
  trial.started = row.real(12);
  trial.ended = row.real(13);
  return trial;
}

/// Makes the database under another name: closing it writes all of it into the one file, which is then renamed.
void make_file(const std::filesystem::path& file, const std::map<std::string, std::string>& settings) {
  const std::filesystem::path partial = file.native() + ".partial";
  for (const char* suffix : {"", "-wal", "-shm"}) sys::files().remove_tree(partial.native() + suffix);
  {
    Database database(partial, true);
    database.execute(kSchema);
    Statement insert(database, "INSERT INTO experiment VALUES (?, ?)");
    for (const auto& [key, value] : settings) insert.bind(1, key).bind(2, value).run();
  }
  sys::files().rename(partial, file);
  sys::files().sync_directory(file.parent_path());
}

}  // namespace

const char* word_of(Event::Kind kind) { return kEventWords[static_cast<std::size_t>(kind)]; }

/// The statements of the writing thread.
class ExperimentStore::Writer {
 public:
  explicit Writer(Database& database) : database_(database) {}

  void write(const Batch& batch) {
    begin_.run();
    try {
      for (const Event& event : batch.events) write(event);
      for (const auto& [number, trial] : batch.trials) write(trial);
      for (const Result& result : batch.results) write(result);
      for (const Decided& each : batch.decisions)
        decision_.bind(1, each.trial).bind(2, each.iteration).bind(3, each.decision).bind(4, each.why).run();
      commit_.run();
    } catch (...) {
      database_.execute("ROLLBACK");
      throw;
    }
  }

 private:
  void write(const Event& event) {
    event_.bind(1, word_of(event.kind)).bind(2, event.trial).bind(3, event.iteration).bind(4, event.time);
    std::string more;
    event_.bind(5, event.values.empty() ? NAN : event.values[0]);
    if (event.values.size() > 1)
      more = to_json(Value(std::vector<double>(event.values.begin() + 1, event.values.end())));
    event_.bind_or_null(6, more).bind(7, std::int64_t{event.has_checkpoint}).bind_or_null(8, event.outcome).run();
  }
  void write(const TrialRow& trial) {
    trial_.bind(1, trial.number).bind(2, trial.id).bind(3, trial.name).bind(4, trial.state).bind(5, trial.config);
    trial_.bind_or_null(6, trial.last_result).bind(7, trial.iterations).bind(8, std::int64_t{trial.failures});
    trial_.bind(9, std::int64_t{trial.attempts}).bind_or_null(10, trial.error).bind_or_null(11, trial.checkpoint);
    trial_.bind(12, trial.checkpoint_iteration).bind(13, trial.started > 0 ? trial.started : NAN);
    trial_.bind(14, trial.ended > 0 ? trial.ended : NAN).run();
  }
  void write(const Result& result) {
    if (result.metrics.empty())
      cut_.bind(1, result.trial).bind(2, result.iteration).run();
    else
      result_.bind(1, result.trial).bind(2, result.iteration).bind(3, result.time).bind(4, result.metrics).run();
  }

  Database& database_;
  Statement begin_{database_, "BEGIN IMMEDIATE"};
  Statement commit_{database_, "COMMIT"};
  Statement event_{database_, "INSERT INTO events VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)"};
  Statement trial_{database_, "INSERT OR REPLACE INTO trials VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"};
  Statement result_{database_, "INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?)"};
  Statement cut_{database_, "DELETE FROM results WHERE trial = ? AND iteration > ?"};
  Statement decision_{database_, "INSERT INTO decisions VALUES (?, ?, ?, ?)"};
};

ExperimentStore::ExperimentStore(const std::filesystem::path& directory, bool writable,
                                 const std::map<std::string, std::string>* created)
    : directory_(directory) {
  const std::filesystem::path file = directory / "experiment.sqlite";
  if (writable) {
    lock_ = sys::DirectoryLock::take(directory);
    if (!lock_)
      throw StorageError("[tune] the experiment in " + in_quotes(directory.string()) +
                         " is being written to by another process, or by another object of this one; end it first, or "
                         "open the experiment for reading only");
    if (created != nullptr && sys::files().info(file).kind != sys::FileKind::none)
      throw StorageError("[tune] " + in_quotes(directory.string()) +
                         " holds an experiment already; choose another name, or restore it");
    if (created != nullptr) make_file(file, *created);
    writing_.emplace(file, true);
    writing_->execute("PRAGMA synchronous = FULL; PRAGMA cache_size = -65536; PRAGMA wal_autocheckpoint = 16384;");
  }
  reading_.emplace(file, false);
  Statement version(*reading_, "PRAGMA user_version");
  version.step();
  if (version.integer(0) != 1)
    throw StorageError("[tune] " + in_quotes(file.string()) + " has format " + std::to_string(version.integer(0)) +
                       ", this version of Lockstep reads format 1");
  if (!writable) return;
  // Signals are for the user's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { write_loop(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

std::unique_ptr<ExperimentStore> ExperimentStore::create(const std::filesystem::path& directory,
                                                         const std::map<std::string, std::string>& settings) {
  sys::files().make_directories(directory);
  return std::unique_ptr<ExperimentStore>(new ExperimentStore(directory, true, &settings));
}

std::unique_ptr<ExperimentStore> ExperimentStore::open(const std::filesystem::path& directory, bool read_only) {
  if (sys::files().info(directory / "experiment.sqlite").kind != sys::FileKind::file)
    throw StorageError("[tune] there is no experiment in " + in_quotes(directory.string()) +
                       ": it has no experiment.sqlite");
  return std::unique_ptr<ExperimentStore>(new ExperimentStore(directory, !read_only, nullptr));
}

ExperimentStore::~ExperimentStore() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void ExperimentStore::write_loop() {
  Writer writer(*writing_);
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return batch_.size > 0 || closing_; });
    if (batch_.size == 0) return;
    wake_.wait_for(lock, kLatest, [&] { return batch_.size >= kEnough || hurry_ || closing_; });
    std::swap(batch_, written_batch_);
    hurry_ = false;
    busy_ = true;
    lock.unlock();
    std::exception_ptr failed;
    try {
      writer.write(written_batch_);
      written_batch_.clear();
    } catch (...) {
      failed = std::current_exception();
    }
    lock.lock();
    busy_ = false;
    if (failed && !error_) error_ = failed;
    written_.notify_all();
    if (error_) return;
  }
}

void ExperimentStore::Batch::clear() {
  events.clear();
  trials.clear();
  results.clear();
  decisions.clear();
  size = 0;
}

void ExperimentStore::note() {
  if (++batch_.size == 1 || batch_.size == kEnough) wake_.notify_one();
}

void ExperimentStore::sync() {
  if (!thread_.joinable()) return;
  std::unique_lock lock(mutex_);
  hurry_ = true;
  wake_.notify_one();
  written_.wait(lock, [&] { return error_ || (batch_.size == 0 && !busy_); });
  hurry_ = false;
  if (error_) std::rethrow_exception(error_);
}

ExperimentStore::Change::Change(ExperimentStore& store) : store_(store), lock_(store.mutex_) {
  if (!store.thread_.joinable())
    throw ConfigError("[tune] the experiment in " + in_quotes(store.directory_.string()) +
                      " was opened for reading only");
  store.written_.wait(lock_, [&] { return store.error_ || store.batch_.size < kMost; });
  if (store.error_) std::rethrow_exception(store.error_);
}

ExperimentStore::Change::~Change() = default;

void ExperimentStore::Change::add(Event event) {
  store_.batch_.events.push_back(std::move(event));
  store_.note();
}

void ExperimentStore::Change::put(const TrialRow& row) {
  store_.batch_.trials.insert_or_assign(store_.batch_.trials.end(), row.number, row);
  store_.note();
}

void ExperimentStore::Change::add_result(TrialNumber trial, std::int64_t iteration, double time, std::string metrics) {
  store_.batch_.results.push_back({trial, iteration, time, std::move(metrics)});
  store_.note();
}

void ExperimentStore::Change::cut_results(TrialNumber trial, std::int64_t iteration) {
  store_.batch_.results.push_back({trial, iteration, 0, {}});
  store_.note();
}

void ExperimentStore::Change::add_decision(TrialNumber trial, std::int64_t iteration, const char* decision,
                                           std::string why) {
  store_.batch_.decisions.push_back({trial, iteration, decision, std::move(why)});
  store_.note();
}

std::map<std::string, std::string> ExperimentStore::settings() {
  sync();
  std::map<std::string, std::string> settings;
  Statement rows(*reading_, "SELECT key, value FROM experiment");
  while (rows.step()) settings.emplace(rows.text(0), rows.text(1));
  return settings;
}

void ExperimentStore::for_each_event(const std::function<void(std::int64_t, const Event&)>& see) {
  sync();
  Statement rows(
      *reading_,
      "SELECT sequence, kind, trial, iteration, time, value, more_values, has_checkpoint, outcome FROM events "
      "ORDER BY sequence");
  Event event;
  while (rows.step()) {
    event.kind = event_kind_of(rows.text(1));
    event.trial = rows.integer(2);
    event.iteration = rows.integer(3);
    event.values.clear();
    event.outcome.clear();
    if (event.kind == Event::Kind::report) {
      event.time = rows.real(4);
      if (!rows.is_null(5)) event.values.push_back(rows.real(5));
      if (!rows.is_null(6))
        for (const Value& value : parse_json(rows.text(6), "events.more_values"))
          event.values.push_back(number_of(value).value_or(INFINITY));
      event.has_checkpoint = rows.integer(7) != 0;
    }
    if (!rows.is_null(8)) event.outcome = rows.text(8);
    see(rows.integer(0), event);
  }
}

void ExperimentStore::for_each_trial(const std::function<void(const TrialRow&)>& see) {
  sync();
  Statement rows(*reading_, (std::string(kTrialColumns) + "ORDER BY number").c_str());
  while (rows.step()) see(trial_row_of(rows));
}

std::optional<TrialRow> ExperimentStore::trial(TrialNumber number) {
  sync();
  Statement rows(*reading_, (std::string(kTrialColumns) + "WHERE number = ?").c_str());
  rows.bind(1, number);
  return rows.step() ? std::optional(trial_row_of(rows)) : std::nullopt;
}

void ExperimentStore::for_each_result(TrialNumber trial, const std::function<void(std::string_view)>& see) {
  sync();
  Statement rows(*reading_, "SELECT metrics FROM results WHERE trial = ? ORDER BY iteration");
  rows.bind(1, trial);
  while (rows.step()) see(rows.text(0));
}

void ExperimentStore::remove_events(const std::vector<std::int64_t>& sequences) {
  sync();
  const std::lock_guard lock(mutex_);
  writing_->execute("BEGIN IMMEDIATE");
  Statement remove(*writing_, "DELETE FROM events WHERE sequence = ?");
  for (const std::int64_t sequence : sequences) remove.bind(1, sequence).run();
  writing_->execute("COMMIT");
}

void ExperimentStore::set_kind(std::int64_t sequence, Event::Kind kind) {
  sync();
  const std::lock_guard lock(mutex_);
  Statement update(*writing_, "UPDATE events SET kind = ? WHERE sequence = ?");
  update.bind(1, word_of(kind)).bind(2, sequence).run();
}

}  // namespace lockstep::tune
