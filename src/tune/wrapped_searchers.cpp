#include <cmath>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "tune/searchers.h"

namespace lockstep::tune {
namespace {

std::unique_ptr<PointSearcher> make_inner(SearcherOptions& options, const SearcherSetup& setup) {
  return make_searcher(options.searcher(), setup.space, setup.seed, setup.objectives, setup.own);
}

/// Lets at most so many trials be unfinished. With `batch`, the inner searcher hears of results only when all of a
/// batch are there, and the next batch begins then.
class LimitedSearcher : public PointSearcher {
 public:
  LimitedSearcher(std::unique_ptr<PointSearcher> inner, std::size_t most, bool batch)
      : inner_(std::move(inner)), most_(most), batch_(batch) {}

  Asked ask(TrialNumber trial, const Point& fixed) override {
    if (unfinished_.size() + results_.size() >= most_) return {Asked::Kind::wait, {}};
    Asked asked = inner_->ask(trial, fixed);
    if (asked.kind == Asked::Kind::point) unfinished_.insert(trial);
    return asked;
  }

  void tell(TrialNumber trial, const std::vector<double>& values) override {
    if (unfinished_.erase(trial) == 0) return;
    if (!batch_) return inner_->tell(trial, values);
    results_.emplace(trial, values);
    if (!unfinished_.empty()) return;
    for (const auto& [told, result] : results_) inner_->tell(told, result);
    results_.clear();
  }

  void observe(TrialNumber trial, double budget, double value) override { inner_->observe(trial, budget, value); }

 private:
  std::unique_ptr<PointSearcher> inner_;
  std::size_t most_;
  bool batch_;
  std::unordered_set<TrialNumber> unfinished_;
  std::map<TrialNumber, std::vector<double>> results_;
};

/// Gives each point to several trials in succession; the inner searcher hears of the mean of those that succeed.
class RepeatedSearcher : public PointSearcher {
 public:
  RepeatedSearcher(std::unique_ptr<PointSearcher> inner, int times) : inner_(std::move(inner)), times_(times) {}

  Asked ask(TrialNumber trial, const Point& fixed) override {
    if (left_ > 0 && fits(fixed)) {
      --left_;
      group_of_[trial] = current_;
      return {Asked::Kind::point, point_};
    }
    Asked asked = inner_->ask(trial, fixed);
    if (asked.kind != Asked::Kind::point) return asked;
    if (left_ > 0) finish_if_complete(current_, groups_[current_].missing -= left_);
    current_ = trial;
    point_ = asked.point;
    left_ = times_ - 1;
    groups_[trial] = {times_, 0, {}};
    group_of_[trial] = trial;
    return asked;
  }

  void tell(TrialNumber trial, const std::vector<double>& values) override {
    const auto found = group_of_.extract(trial);
    if (!found) return;
    Group& group = groups_[found.mapped()];
    if (!values.empty()) {
      group.sums.resize(values.size(), 0);
      for (std::size_t n = 0; n < values.size(); ++n) group.sums[n] += values[n];
      ++group.successes;
    }
    finish_if_complete(found.mapped(), --group.missing);
  }

 private:
  struct Group {
    int missing = 0, successes = 0;
    std::vector<double> sums;
  };

  /// Whether the current point has the values that the experiment wants: the grid's may have changed.
  bool fits(const Point& fixed) const {
    for (std::size_t d = 0; d < fixed.size(); ++d) {
      if (!std::isnan(fixed[d]) && fixed[d] != point_[d]) return false;
    }
    return true;
  }

  void finish_if_complete(TrialNumber group, int missing) {
    if (missing > 0) return;
    auto found = groups_.extract(group);
    std::vector<double>& values = found.mapped().sums;
    for (double& value : values) value /= found.mapped().successes;
    inner_->tell(group, values);
  }

  std::unique_ptr<PointSearcher> inner_;
  int times_;
  TrialNumber current_ = -1;
  Point point_;
  int left_ = 0;  ///< trials that still get the current point
  std::unordered_map<TrialNumber, TrialNumber> group_of_;
  std::unordered_map<TrialNumber, Group> groups_;
};

/// One that somebody else holds, too.
class SharedSearcher : public PointSearcher {
 public:
  explicit SharedSearcher(std::shared_ptr<PointSearcher> inner) : inner_(std::move(inner)) {}

  Asked ask(TrialNumber trial, const Point& fixed) override { return inner_->ask(trial, fixed); }
  void tell(TrialNumber trial, const std::vector<double>& values) override { inner_->tell(trial, values); }
  void observe(TrialNumber trial, double budget, double value) override { inner_->observe(trial, budget, value); }

 private:
  std::shared_ptr<PointSearcher> inner_;
};

}  // namespace

std::unique_ptr<PointSearcher> make_own(SearcherOptions&, const SearcherSetup& setup) {
  return std::make_unique<SharedSearcher>(setup.own);
}

std::unique_ptr<PointSearcher> make_limit(SearcherOptions& options, const SearcherSetup& setup) {
  const auto most = static_cast<std::size_t>(options.integer("max_concurrent", 0, 1));
  const bool batch = options.flag("batch", false);
  return std::make_unique<LimitedSearcher>(make_inner(options, setup), most, batch);
}

std::unique_ptr<PointSearcher> make_repeat(SearcherOptions& options, const SearcherSetup& setup) {
  const auto times = static_cast<int>(options.integer("repeat", 0, 1, 1'000'000));
  return std::make_unique<RepeatedSearcher>(make_inner(options, setup), times);
}

}  // namespace lockstep::tune
