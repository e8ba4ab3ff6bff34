#include "tune/stopper.h"

#include <lockstep/error.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tune/scheduler_options.h"

namespace lockstep::tune {
namespace {

/// A metric of a report: by its name, or by nested keys joined by "/". Nothing if it is no number.
std::optional<double> metric_of(const Value& result, const std::string& name) {
  const Value* at = &result;
  std::size_t from = 0;
  while (at->is_object()) {
    const std::string rest = name.substr(from);
    if (const auto whole = at->find(rest); whole != at->end()) {
      at = &*whole;
      break;
    }
    const auto slash = rest.find('/');
    const auto next = slash == std::string::npos ? at->end() : at->find(rest.substr(0, slash));
    if (next == at->end()) return std::nullopt;
    from += slash + 1;
    at = &*next;
  }
  if (at->is_boolean()) return at->get<bool>() ? 1.0 : 0.0;
  if (!at->is_number()) return std::nullopt;
  return at->get<double>();
}

/// The standard deviation of all values, not of a sample.
double deviation(const auto& values) {
  double mean = 0, squares = 0;
  for (const double value : values) mean += value / static_cast<double>(values.size());
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size()));
}

class ThresholdStopper : public Stopper {
 public:
  explicit ThresholdStopper(const Value& thresholds) {
    for (const auto& [name, value] : thresholds.items()) {
      if (!value.is_number() && !value.is_boolean())
        throw ConfigError("[tune] stop has " + value.dump() + " for '" + name +
                          "'; it must be the number at which a trial ends");
      thresholds_.emplace_back(name, value.is_boolean() ? (value.get<bool>() ? 1.0 : 0.0) : value.get<double>());
    }
  }
  bool on_result(TrialNumber, const Value& result) override {
    return std::ranges::any_of(thresholds_, [&](const auto& one) {
      const auto value = metric_of(result, one.first);
      return value && *value >= one.second;
    });
  }

 private:
  std::vector<std::pair<std::string, double>> thresholds_;
};

class MaxIterationStopper : public Stopper {
 public:
  explicit MaxIterationStopper(const Options& options) : max_(options.integer("max_iter", 0)) {
    options.require(max_ > 0, "max_iter", "1 or more");
  }
  bool on_result(TrialNumber trial, const Value&) override { return ++counts_[trial] >= max_; }

 private:
  std::int64_t max_;
  std::unordered_map<TrialNumber, std::int64_t> counts_;
};

class TrialPlateauStopper : public Stopper {
 public:
  explicit TrialPlateauStopper(const Options& options)
      : metric_(options.text("metric", "")),
        std_(options.number("std", 0.01)),
        num_results_(options.integer("num_results", 4)),
        grace_(options.integer("grace_period", 4)),
        mode_(options.text("mode", "")) {
    options.require(!metric_.empty(), "metric", "the name of a metric");
    options.require(num_results_ > 0, "num_results", "1 or more");
    if (!options.has("metric_threshold")) return;
    threshold_ = options.number("metric_threshold", 0);
    options.require(mode_ == "min" || mode_ == "max", "mode", "min or max, because there is a metric_threshold");
  }

  bool on_result(TrialNumber trial, const Value& result) override {
    const auto value = metric_of(result, metric_);
    if (!value) return false;
    History& history = histories_[trial];
    ++history.count;
    history.newest.push_back(*value);
    if (static_cast<std::int64_t>(history.newest.size()) > num_results_) history.newest.pop_front();
    if (history.count < grace_ || static_cast<std::int64_t>(history.newest.size()) < num_results_) return false;
    if (threshold_ && (mode_ == "min" ? *value > *threshold_ : *value < *threshold_)) return false;
    return deviation(history.newest) <= std_;
  }

 private:
  struct History {
    std::int64_t count = 0;
    std::deque<double> newest;
  };
  std::string metric_;
  double std_;
  std::int64_t num_results_, grace_;
  std::string mode_;
  std::optional<double> threshold_;
  std::unordered_map<TrialNumber, History> histories_;
};

class ExperimentPlateauStopper : public Stopper {
 public:
  explicit ExperimentPlateauStopper(const Options& options)
      : metric_(options.text("metric", "")),
        std_(options.number("std", 0.001)),
        top_(options.integer("top", 10)),
        patience_(options.integer("patience", 0)) {
    const std::string mode = options.text("mode", "min");
    options.require(!metric_.empty(), "metric", "the name of a metric");
    options.require(std_ >= 0, "std", "0 or more");
    options.require(top_ > 1, "top", "2 or more");
    options.require(patience_ >= 0, "patience", "0 or more");
    options.require(mode == "min" || mode == "max", "mode", "min or max");
    sign_ = mode == "min" ? 1 : -1;
  }

  bool on_result(TrialNumber, const Value& result) override {
    const auto value = metric_of(result, metric_);
    if (value) {
      best_.insert(std::ranges::upper_bound(best_, sign_ * *value), sign_ * *value);
      if (static_cast<std::int64_t>(best_.size()) > top_) best_.pop_back();
    }
    const bool flat = static_cast<std::int64_t>(best_.size()) == top_ && deviation(best_) <= std_;
    flat_reports_ = flat ? flat_reports_ + 1 : 0;
    return flat_reports_ > patience_;
  }
  bool stop_all(double) override { return flat_reports_ > patience_; }

 private:
  std::string metric_;
  double std_, sign_ = 1;
  std::int64_t top_, patience_, flat_reports_ = 0;
  std::vector<double> best_;  // smallest first, after the sign
};

class TimeoutStopper : public Stopper {
 public:
  explicit TimeoutStopper(const Options& options) : timeout_(options.number("timeout", -1)) {
    options.require(timeout_ >= 0, "timeout", "a number of seconds");
  }
  bool on_result(TrialNumber, const Value&) override { return false; }
  bool stop_all(double elapsed) override { return elapsed >= timeout_; }

 private:
  double timeout_;
};

class CombinedStopper : public Stopper {
 public:
  explicit CombinedStopper(const Options& options) {
    options.require(options.value("stoppers").is_array(), "stoppers", "a list of stoppers");
    for (const Value& description : options.value("stoppers")) stoppers_.push_back(make_stopper(description));
  }
  bool on_result(TrialNumber trial, const Value& result) override {
    bool any = false;  // all of them must see the report
    for (const auto& stopper : stoppers_) any = stopper->on_result(trial, result) || any;
    return any;
  }
  bool stop_all(double elapsed) override {
    return std::ranges::any_of(stoppers_, [&](const auto& stopper) { return stopper->stop_all(elapsed); });
  }

 private:
  std::vector<std::unique_ptr<Stopper>> stoppers_;
};

template <class Kind>
std::unique_ptr<Stopper> stopper_of(const Value& description, const std::string& kind, std::vector<std::string> known) {
  return std::make_unique<Kind>(Options(description, kind, std::move(known)));
}

}  // namespace

std::unique_ptr<Stopper> make_stopper(const Value& description) {
  if (!description.is_object())
    throw ConfigError(
        "[tune] stop is " + description.dump() +
        R"(; it must be a dict, such as {"training_iteration": 10} or {"kind": "timeout", "timeout": 60})");
  const auto found = description.find("kind");
  if (found == description.end() || !found->is_string()) return std::make_unique<ThresholdStopper>(description);
  const auto kind = found->get<std::string>();
  if (kind == "max_iteration") return stopper_of<MaxIterationStopper>(description, kind, {"max_iter"});
  if (kind == "trial_plateau")
    return stopper_of<TrialPlateauStopper>(
        description, kind, {"metric", "std", "num_results", "grace_period", "metric_threshold", "mode"});
  if (kind == "experiment_plateau")
    return stopper_of<ExperimentPlateauStopper>(description, kind, {"metric", "std", "top", "mode", "patience"});
  if (kind == "timeout") return stopper_of<TimeoutStopper>(description, kind, {"timeout"});
  if (kind == "combined") return stopper_of<CombinedStopper>(description, kind, {"stoppers"});
  throw ConfigError("[tune] no stopper is of kind '" + kind +
                    "'; the kinds are max_iteration, trial_plateau, experiment_plateau, timeout, combined");
}

}  // namespace lockstep::tune
