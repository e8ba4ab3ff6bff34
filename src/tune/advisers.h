#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "tune/experiment.h"
#include "tune/trial_book.h"

namespace lockstep::tune {

/// The searcher and the scheduler of an experiment, and all calls of them: those now, and those of earlier events.
class Advisers {
 public:
  explicit Advisers(const ExperimentSettings& settings);

  void use(std::shared_ptr<PointSearcher> searcher) { searcher_ = std::move(searcher); }
  void use(std::shared_ptr<Scheduler> scheduler) { scheduler_ = std::move(scheduler); }
  /// Throws ConfigError if the settings say "custom" and use() gave none.
  void check() const;

  /// How many trials the samples, the grid and points_to_evaluate make.
  std::int64_t total() const { return total_; }
  PointSearcher::Asked ask(TrialNumber trial) { return searcher_->ask(trial, fixed(trial)); }
  /// Tells the scheduler of a new trial; returns its configuration.
  Value add(TrialNumber trial, const Point& point);
  std::optional<TrialNumber> choose(const TrialBook& book);
  std::optional<Exploit> exploit(TrialNumber trial) { return scheduler_->take_exploit(trial); }
  /// `reached`: the trial ends in any case, so that the scheduler is not asked.
  Decision report(TrialNumber trial, double time, const std::vector<double>& values, bool has_checkpoint, bool reached);
  void checkpoint(TrialNumber trial) {
    if (!fifo_) scheduler_->on_checkpoint(trial);
  }
  void finish(TrialNumber trial, bool failed);
  std::vector<TrialNumber> take_dropped() { return scheduler_->take_dropped(); }
  const Scheduler& scheduler() const { return *scheduler_; }

  /// Repeats the calls of an event that happened when the trials were as in `book`.
  void repeat(const Event& event, const TrialBook& book);

 private:
  Point fixed(TrialNumber trial) const;

  Space space_;
  std::shared_ptr<PointSearcher> searcher_;
  std::shared_ptr<Scheduler> scheduler_;
  bool fifo_ = false;        ///< has no state
  bool has_metric_ = false;  ///< the settings name one
  std::vector<Point> points_;
  std::vector<TrialNumber> first_;  ///< the first trial of each of points_, and the first one after them
  std::int64_t total_ = 0;
  std::unordered_map<TrialNumber, std::vector<double>> last_;  ///< values of trials that have not ended
};

}  // namespace lockstep::tune
