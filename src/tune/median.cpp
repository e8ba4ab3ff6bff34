// The median stopping rule: a trial ends if its best value is worse than the median of the others' means over the same
// time.

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "tune/scheduler_options.h"

namespace lockstep::tune {
namespace {

/// The reports of one trial after the grace period.
struct MedianHistory {
  std::vector<double> times;
  std::vector<double> sums;  // of the values up to here
  double newest = 0;         // time
  double best = std::numeric_limits<double>::infinity();
  double last_pause = 0;

  /// Of the values up to `time`; NaN if there are none.
  double mean(double time) const {
    const auto count = static_cast<std::size_t>(std::ranges::upper_bound(times, time) - times.begin());
    return count == 0 ? std::nan("") : sums[count - 1] / static_cast<double>(count);
  }
};

class MedianScheduler : public Scheduler {
 public:
  explicit MedianScheduler(const Options& options) {
    grace_ = options.number("grace_period", 60);
    min_samples_ = options.integer("min_samples_required", 3);
    min_slice_ = options.number("min_time_slice", 0);
    hard_stop_ = options.flag("hard_stop", true);
    options.require(grace_ >= 0, "grace_period", "0 or more");
    options.require(min_samples_ >= 1, "min_samples_required", "1 or more");
    options.require(min_slice_ >= 0, "min_time_slice", "0 or more");
  }

  Decision on_result(TrialNumber trial, double time, double value, bool has_checkpoint) override {
    if (judged_.contains(trial)) return {};  // it was paused for good reason, and now runs because nothing else does
    if (std::isnan(value)) value = std::numeric_limits<double>::infinity();
    MedianHistory& history = histories_[trial];
    record(history, time, value);
    if (time < grace_) return {};

    std::vector<double> means;
    for (const auto& [other, its] : histories_) {
      if (other == trial || its.newest < time) continue;
      const double mean = its.mean(time);
      if (!std::isnan(mean)) means.push_back(mean);
    }
    if (static_cast<std::int64_t>(means.size()) < min_samples_) return give_way(history, time, has_checkpoint);
    if (history.best <= median(means)) return {};
    if (hard_stop_) return {Decision::Kind::stop, "its best value is worse than the median of the other trials"};
    judged_.insert(trial);
    return {Decision::Kind::pause, "its best value is worse than the median of the other trials"};
  }

  void more_to_come(bool more) override { more_ = more; }
  std::optional<TrialNumber> choose(const std::vector<TrialNumber>& fresh,
                                    const std::vector<TrialNumber>& paused) override {
    // Trials that only gave way come before those that are worse than the median.
    auto chosen = Scheduler::choose(fresh, paused);
    if (fresh.empty())
      for (const TrialNumber trial : paused)
        if (!judged_.contains(trial)) {
          chosen = trial;
          break;
        }
    others_wait_ = more_ || fresh.size() + paused.size() > 1;
    return chosen;
  }

 private:
  void record(MedianHistory& history, double time, double value) const {
    history.best = std::min(history.best, value);
    if (time < history.newest) {  // it began again from an older checkpoint
      const auto keep = std::ranges::lower_bound(history.times, time) - history.times.begin();
      history.times.resize(static_cast<std::size_t>(keep));
      history.sums.resize(static_cast<std::size_t>(keep));
    }
    history.newest = time;
    if (time < grace_) return;
    history.times.push_back(time);
    history.sums.push_back((history.sums.empty() ? 0 : history.sums.back()) + value);
  }

  /// While there is too little to compare with, trials take turns, if that is wanted and loses nothing.
  Decision give_way(MedianHistory& history, double time, bool has_checkpoint) const {
    if (min_slice_ == 0 || !has_checkpoint || !others_wait_ || time - history.last_pause <= min_slice_) return {};
    history.last_pause = time;
    return {Decision::Kind::pause, "it lets the other trials catch up"};
  }

  static double median(std::vector<double>& values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::ranges::nth_element(values, middle);
    if (values.size() % 2 == 1) return *middle;
    const double below = *std::max_element(values.begin(), middle);
    return below == *middle ? below : below + (*middle - below) / 2;
  }

  double grace_ = 0, min_slice_ = 0;
  std::int64_t min_samples_ = 0;
  bool hard_stop_ = true, others_wait_ = false, more_ = false;
  std::map<TrialNumber, MedianHistory> histories_;  // of ended trials too
  std::set<TrialNumber> judged_;
};

}  // namespace

std::unique_ptr<Scheduler> make_median(const Value& description) {
  const Options options(description, "median", {"grace_period", "min_samples_required", "min_time_slice", "hard_stop"});
  return std::make_unique<MedianScheduler>(options);
}

}  // namespace lockstep::tune
