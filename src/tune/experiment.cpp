#include "tune/experiment.h"

#include <lockstep/error.h>

#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "base/ids.h"
#include "base/json.h"
#include "base/text.h"
#include "tune/advisers.h"
#include "tune/experiment_settings.h"
#include "tune/experiment_store.h"
#include "tune/ranking.h"
#include "tune/trial_book.h"
#include "tune/trial_results.h"

namespace lockstep::tune {
namespace {

using Kind = Event::Kind;

double wall_seconds() { return unix_seconds(wall_now()); }

/// An experiment with its database. Each public call first asks the advisers, then records what happened as one change.
class StoredExperiment final : public Experiment {
 public:
  StoredExperiment(std::unique_ptr<ExperimentStore> store, ExperimentSettings settings, std::string prefix)
      : store_(std::move(store)), settings_(std::move(settings)), prefix_(std::move(prefix)), advisers_(settings_) {
    const auto found = settings_.extra.find("trial_name_prefix");
    name_prefix_ = found != settings_.extra.end() && found->is_string() ? found->get<std::string>() : "trial";
  }
  ~StoredExperiment() override = default;

  void reopen(const Reopen& how);

  void use(std::shared_ptr<PointSearcher> searcher) override {
    check_unused();
    advisers_.use(std::move(searcher));
  }
  void use(std::shared_ptr<Scheduler> scheduler) override {
    check_unused();
    advisers_.use(std::move(scheduler));
  }

  std::optional<Start> next() override;
  void set_name(TrialNumber trial, const std::string& name) override;
  Decision on_report(TrialNumber trial, const Value& metrics, const std::string& checkpoint, bool last) override;
  void on_checkpoint(TrialNumber trial, const std::string& checkpoint, std::int64_t iteration) override;
  bool on_ended(TrialNumber trial, const std::string& error) override;
  bool is_done() const override;
  void stop() override { stopping_ = true; }
  void sync() override { store_->sync(); }

  const ExperimentSettings& settings() const override { return settings_; }
  std::int64_t size() const override { return book_.size(); }
  std::int64_t count(TrialState state) const override { return book_.count(state); }
  std::vector<TrialNumber> in_state(TrialState state) const override { return book_.in_state(state); }
  std::vector<TrialNumber> donors() const override {
    return ready_ ? advisers_.scheduler().donors() : std::vector<TrialNumber>();
  }
  std::vector<std::string> checkpoints() const override;
  Value replay_log() const override;
  Trial trial(TrialNumber number) const override;
  std::vector<Value> results(TrialNumber number) const override;
  std::optional<TrialNumber> best(const std::string& metric, const std::string& mode, const std::string& scope,
                                  bool finite) const override {
    return best_of_rows(*store_, metric, mode, scope, finite);
  }
  std::vector<TrialNumber> pareto_front(const std::vector<std::string>& metrics,
                                        const std::vector<std::string>& modes) const override {
    return front_of_rows(*store_, metrics, modes);
  }

 private:
  using Change = ExperimentStore::Change;
  struct Live {
    TrialRow row;
    Value config;
  };

  void check_unused() const {
    if (ready_) throw ConfigError("[tune] give the searcher and the scheduler before the first trial is started");
  }
  void get_ready();
  bool over_budget() const {
    return settings_.time_budget && Seconds(now() - opened_).count() > *settings_.time_budget;
  }
  Live& running(TrialNumber trial);
  void record(Change& change, Event event);
  void put(Change& change, Live& live);
  bool ask_one();
  Start start(TrialNumber trial, bool forced);
  std::vector<double> values_of(const Value& metrics) const;
  bool has_reached(const Value& metrics) const;
  void finish(Change& change, TrialNumber trial, Kind kind, const std::string& error);
  bool end_dropped();
  void end_interrupted();

  std::unique_ptr<ExperimentStore> store_;
  ExperimentSettings settings_;
  std::string prefix_;
  std::string name_prefix_;
  Advisers advisers_;
  TrialBook book_;
  std::unordered_map<TrialNumber, Live> live_;  ///< trials that have not ended
  Instant opened_ = now();
  bool ready_ = false;    ///< earlier events are repeated
  bool nothing_ = false;  ///< next() found nothing, and nothing happened since
  bool stopping_ = false;
};

void StoredExperiment::reopen(const Reopen& how) {
  // Reports after the newest checkpoint of a trial that was killed did not happen: it will make them again.
  struct Report {
    std::int64_t sequence, iteration;
  };
  std::unordered_map<TrialNumber, std::vector<Report>> since;  // the events of reports since its checkpoint
  std::unordered_map<TrialNumber, std::int64_t> failed;        // the event of its end
  store_->for_each_event([&](std::int64_t sequence, const Event& event) {
    if (event.kind == Kind::start) since[event.trial].clear();
    if (event.kind == Kind::checkpoint)  // perhaps of an earlier report
      std::erase_if(since[event.trial], [&](const Report& each) { return each.iteration <= event.iteration; });
    if (event.kind == Kind::report) since[event.trial].push_back({sequence, event.iteration});
    if (event.kind == Kind::end || event.kind == Kind::pause || event.kind == Kind::retry || event.kind == Kind::drop)
      since.erase(event.trial);
    if (event.kind == Kind::fail) {
      since.erase(event.trial);
      failed[event.trial] = sequence;
    }
    book_.apply(event);
  });
  if (how.read_only) return;
  const bool again = how.resume_errored || how.restart_errored;
  std::vector<std::int64_t> unmade;
  for (const auto& [trial, reports] : since)
    if (book_.at(trial).state == TrialState::running)
      for (const Report& each : reports) unmade.push_back(each.sequence);
  if (!unmade.empty()) store_->remove_events(unmade);
  const bool errors = again && book_.count(TrialState::error) > 0;
  if (errors)
    for (const auto& [trial, sequence] : failed) store_->set_kind(sequence, Kind::retry);
  if (errors || !unmade.empty()) {
    book_ = {};
    store_->for_each_event([&](std::int64_t, const Event& event) { book_.apply(event); });
  }
  const std::vector<TrialNumber> interrupted = book_.in_state(TrialState::running);
  for (const TrialState state : {TrialState::pending, TrialState::paused, TrialState::running})
    for (const TrialNumber number : book_.in_state(state)) {
      const auto row = store_->trial(number);
      if (!row) throw StorageError("[tune] trial " + std::to_string(number) + " is missing in table trials");
      live_[number] = {*row, parse_json(row->config, "trials.config")};
    }
  for (const TrialNumber number : interrupted) {
    Live& live = live_.at(number);
    live.row.last_result.clear();
    std::int64_t seen = 0;
    store_->for_each_result(number, [&](std::string_view json) {
      if (++seen <= book_.at(number).iterations) live.row.last_result = json;
    });
  }
  Change change(*store_);
  record(change, {.kind = Kind::reopen});
  for (const TrialNumber number : interrupted) {
    change.cut_results(number, book_.at(number).iterations);
    put(change, live_.at(number));
  }
  if (errors)
    for (const auto& [number, sequence] : failed) {
      Live& live = live_.at(number);
      live.row.error.clear();
      if (how.restart_errored) live.row.checkpoint.clear();
      put(change, live);
    }
}

void StoredExperiment::get_ready() {
  if (std::exchange(ready_, true)) return;
  advisers_.check();
  if (book_.size() == 0) return;
  TrialBook book;
  store_->for_each_event([&](std::int64_t, const Event& event) {
    advisers_.repeat(event, book);
    book.apply(event);
  });
  end_interrupted();
}

/// Ends the trials whose last report was decided to be the last, and has a checkpoint, but whose end was not recorded.
/// They have done their part: a further report would change what the others are compared with.
void StoredExperiment::end_interrupted() {
  for (const TrialNumber trial : book_.in_state(TrialState::running)) on_ended(trial, "");
}

void StoredExperiment::record(Change& change, Event event) {
  book_.apply(event);
  change.add(std::move(event));
}

void StoredExperiment::put(Change& change, Live& live) {
  const TrialBook::Entry& entry = book_.at(live.row.number);
  live.row.state = word_of(entry.state);
  live.row.iterations = entry.iterations;
  live.row.failures = entry.failures;
  live.row.attempts = entry.attempts;
  live.row.checkpoint_iteration = entry.checkpoint_iteration;
  change.put(live.row);
}

StoredExperiment::Live& StoredExperiment::running(TrialNumber trial) {
  if (book_.at(trial).state != TrialState::running)
    throw ConfigError("[tune] trial " + std::to_string(trial) + " is not running, it is " +
                      word_of(book_.at(trial).state));
  get_ready();
  nothing_ = false;
  return live_.at(trial);
}

/// Makes a new trial. Returns false if there is none now.
bool StoredExperiment::ask_one() {
  const TrialNumber number = book_.size();
  if (number >= advisers_.total() || book_.exhausted() || book_.waits()) return false;
  const PointSearcher::Asked asked = advisers_.ask(number);
  if (asked.kind != PointSearcher::Asked::Kind::point) {
    Change change(*store_);
    record(change,
           {.kind = asked.kind == PointSearcher::Asked::Kind::wait ? Kind::wait : Kind::exhausted, .trial = number});
    return false;
  }
  Live live;
  live.config = advisers_.add(number, asked.point);
  char digits[24];
  std::snprintf(digits, sizeof digits, "_%05lld", static_cast<long long>(number));
  live.row.number = number;
  live.row.id = prefix_ + digits;
  live.row.name = name_prefix_ + "_" + live.row.id;
  live.row.config = to_json(live.config);
  Change change(*store_);
  record(change, {.kind = Kind::ask, .trial = number});
  put(change, live_[number] = std::move(live));
  return true;
}

std::optional<Start> StoredExperiment::next() {
  get_ready();
  if (stopping_ || nothing_ || over_budget()) return std::nullopt;
  do {
    if (book_.fresh().empty()) ask_one();
    if (book_.fresh().empty() && book_.paused().empty()) break;
    if (const auto chosen = advisers_.choose(book_)) {
      if (!book_.fresh().contains(*chosen) && !book_.paused().contains(*chosen))
        throw ConfigError("[tune] the scheduler chose trial " + std::to_string(*chosen) +
                          ", which is neither new nor paused");
      return start(*chosen, false);
    }
    {
      Change change(*store_);
      record(change, {.kind = Kind::none});
    }
  } while (end_dropped());
  if (book_.count(TrialState::running) == 0) {
    if (!book_.fresh().empty()) return start(*book_.fresh().begin(), true);
    if (!book_.paused().empty()) return start(*book_.paused().begin(), true);
  }
  nothing_ = true;
  return std::nullopt;
}

Start StoredExperiment::start(TrialNumber trial, bool forced) {
  Live& live = live_.at(trial);
  const TrialBook::Entry& entry = book_.at(trial);
  Event event{.kind = Kind::start, .trial = trial};
  if (forced) event.outcome = "forced";
  const std::int64_t before = entry.iterations;
  event.iteration = live.row.checkpoint.empty() ? 0 : entry.checkpoint_iteration;
  if (entry.state == TrialState::paused) {
    if (auto exploit = advisers_.exploit(trial)) {
      if (exploit->donor != trial) {
        live.row.checkpoint = this->trial(exploit->donor).checkpoint;
        event.iteration = before;
      }
      event.outcome = "exploit";
      live.config = std::move(exploit->config);
      live.row.config = to_json(live.config);
    }
  }
  if (live.row.started == 0) live.row.started = wall_seconds();
  Start start{.trial = trial,
              .config = live.config,
              .checkpoint = live.row.checkpoint,
              .attempt = entry.attempts,
              .iterations = event.iteration,
              .id = live.row.id,
              .name = live.row.name};
  {
    Change change(*store_);
    if (event.iteration < before) change.cut_results(trial, event.iteration);
    record(change, std::move(event));
    put(change, live);
  }
  end_dropped();
  return start;
}

void StoredExperiment::set_name(TrialNumber trial, const std::string& name) {
  if (const auto problem = run_name_problem(name); !problem.empty())
    throw ConfigError("[tune] the name " + in_quotes(name) + " of a trial " + std::string(problem));
  Live& live = running(trial);
  live.row.name = name;
  Change change(*store_);
  put(change, live);
}

std::vector<double> StoredExperiment::values_of(const Value& metrics) const {
  std::vector<double> values;
  for (std::size_t i = 0; i < settings_.metrics.size(); ++i) {
    const auto value = number_at(metrics, settings_.metrics[i]);
    if (!value) {
      std::vector<std::string> keys;
      list_keys(metrics, "", keys);
      throw ConfigError("[tune] a trial's report has no number " + in_quotes(settings_.metrics[i]) + "; it has " +
                        (keys.empty() ? "nothing" : joined(keys, ", ")) + "; report it, or name another metric");
    }
    const double minimised = settings_.modes[i] == "max" ? -*value : *value;
    values.push_back(std::isnan(minimised) ? std::numeric_limits<double>::infinity() : minimised);
  }
  return values;
}

bool StoredExperiment::has_reached(const Value& metrics) const {
  if (const auto done = metrics.find("done"); done != metrics.end() && *done == true) return true;
  for (const auto& [key, limit] : settings_.stop.items())
    if (const auto value = number_at(metrics, key); value && *value >= *number_of(limit)) return true;
  return false;
}

Decision StoredExperiment::on_report(TrialNumber trial, const Value& metrics, const std::string& checkpoint,
                                     bool last) {
  Live& live = running(trial);
  Event event{.kind = Kind::report, .trial = trial};
  event.values = values_of(metrics);
  event.iteration = book_.at(trial).iterations + 1;
  event.time = number_at(metrics, settings_.time_attribute).value_or(static_cast<double>(event.iteration));
  event.has_checkpoint = book_.at(trial).has_checkpoint || !checkpoint.empty();
  Decision decision;
  const bool reached = last || has_reached(metrics) || over_budget();
  if (reached) event.outcome = "reached";
  decision = advisers_.report(trial, event.time, event.values, event.has_checkpoint, reached);
  if (reached)
    decision = {Decision::Kind::stop, last            ? "its caller ended it"
                                      : over_budget() ? "the time is used up"
                                                      : "it reached a limit of stop, or said that it is done"};
  if (!reached && decision.kind == Decision::Kind::stop) event.outcome = "stop";
  if (decision.kind == Decision::Kind::pause) event.outcome = "pause";
  std::string json = to_json(metrics);
  live.row.last_result = json;
  {
    Change change(*store_);
    const std::int64_t iteration = event.iteration;
    record(change, std::move(event));
    if (!checkpoint.empty()) {
      live.row.checkpoint = checkpoint;
      record(change, {.kind = Kind::checkpoint, .trial = trial, .iteration = iteration});
    }
    change.add_result(trial, iteration, wall_seconds(), std::move(json));
    if (decision.kind != Decision::Kind::go_on)
      change.add_decision(trial, iteration, decision.kind == Decision::Kind::stop ? "stop" : "pause", decision.why);
    put(change, live);
  }
  end_dropped();
  return decision;
}

void StoredExperiment::on_checkpoint(TrialNumber trial, const std::string& checkpoint, std::int64_t iteration) {
  Live& live = running(trial);
  advisers_.checkpoint(trial);
  live.row.checkpoint = checkpoint;
  Change change(*store_);
  record(change, {.kind = Kind::checkpoint, .trial = trial, .iteration = iteration});
  put(change, live);
}

void StoredExperiment::finish(Change& change, TrialNumber trial, Kind kind, const std::string& error) {
  record(change, {.kind = kind, .trial = trial});
  const auto found = live_.find(trial);
  found->second.row.error = error;
  found->second.row.ended = wall_seconds();
  put(change, found->second);
  live_.erase(found);
}

/// Ends the paused trials that the scheduler gave up. Returns whether there were any.
bool StoredExperiment::end_dropped() {
  const std::vector<TrialNumber> dropped = advisers_.take_dropped();
  for (const TrialNumber trial : dropped) {
    const TrialState state = book_.at(trial).state;
    if (state != TrialState::paused && state != TrialState::pending) {
      Change change(*store_);
      if (state == TrialState::running) record(change, {.kind = Kind::drop, .trial = trial});
      continue;
    }
    advisers_.finish(trial, false);
    Change change(*store_);
    finish(change, trial, Kind::drop, "");
  }
  if (!dropped.empty()) end_dropped();
  return !dropped.empty();
}

bool StoredExperiment::on_ended(TrialNumber trial, const std::string& error) {
  Live& live = running(trial);
  const TrialBook::Entry entry = book_.at(trial);
  // A trial that was told to stop has done its part, however its process ended.
  const bool failed = !error.empty() && !entry.stopping;
  if (failed && !settings_.fail_fast && (settings_.max_failures < 0 || entry.failures < settings_.max_failures)) {
    Change change(*store_);
    live.row.error = error;
    record(change, {.kind = Kind::retry, .trial = trial});
    put(change, live);
    return !stopping_;
  }
  if (!failed && entry.pausing && !entry.dropped) {
    Change change(*store_);
    record(change, {.kind = Kind::pause, .trial = trial});
    put(change, live);
    return !stopping_;
  }
  advisers_.finish(trial, failed);
  {
    Change change(*store_);
    finish(change, trial, failed ? Kind::fail : Kind::end, failed ? error : "");
  }
  end_dropped();
  if (failed && settings_.fail_fast) stopping_ = true;
  return false;
}

bool StoredExperiment::is_done() const {
  if (book_.count(TrialState::running) > 0) return false;
  if (stopping_ || over_budget()) return true;
  return book_.fresh().empty() && book_.paused().empty() &&
         (book_.size() >= advisers_.total() || book_.exhausted() || book_.waits());
}

std::vector<std::string> StoredExperiment::checkpoints() const {
  std::vector<std::string> paths;
  for (const auto& [number, live] : live_)
    if (!live.row.checkpoint.empty()) paths.push_back(live.row.checkpoint);
  return paths;
}

Value StoredExperiment::replay_log() const {
  const_cast<StoredExperiment*>(this)->get_ready();
  return advisers_.scheduler().replay_log();
}

Trial StoredExperiment::trial(TrialNumber number) const {
  book_.at(number);
  if (const auto found = live_.find(number); found != live_.end()) return trial_of(found->second.row);
  const auto row = store_->trial(number);
  if (!row) throw StorageError("[tune] trial " + std::to_string(number) + " is missing in table trials");
  return trial_of(*row);
}

std::vector<Value> StoredExperiment::results(TrialNumber number) const {
  book_.at(number);
  std::vector<Value> results;
  store_->for_each_result(number,
                          [&](std::string_view json) { results.push_back(parse_json(json, "results.metrics")); });
  return results;
}

}  // namespace

std::unique_ptr<Experiment> Experiment::create(const std::filesystem::path& directory, ExperimentSettings settings) {
  validate(settings);
  const Advisers checked(settings);
  const std::string prefix = random_hex(5);
  auto rows = to_rows(settings);
  rows["trial_prefix"] = to_json(prefix);
  rows["created"] = to_json(wall_seconds());
  return std::make_unique<StoredExperiment>(ExperimentStore::create(directory, rows), std::move(settings), prefix);
}

std::unique_ptr<Experiment> Experiment::open(const std::filesystem::path& directory, Reopen how) {
  auto store = ExperimentStore::open(directory, how.read_only);
  const auto rows = store->settings();
  ExperimentSettings settings = settings_of(rows);
  const std::string prefix = parse_json(rows.at("trial_prefix"), "trial_prefix").get<std::string>();
  auto experiment = std::make_unique<StoredExperiment>(std::move(store), std::move(settings), prefix);
  experiment->reopen(how);
  return experiment;
}

}  // namespace lockstep::tune
