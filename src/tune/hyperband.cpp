// Synchronous successive halving in brackets. The trials of a bracket pause at each rung until all have reached it;
// then the best 1/reduction_factor go on and the rest is dropped.

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "tune/scheduler_options.h"

namespace lockstep::tune {
namespace {

struct HyperbandBracket {
  std::vector<double> milestones;
  std::size_t rung = 0;                                 // all trials in it are on their way to this milestone
  std::int64_t capacity = 0;                            // of trials that may still join
  std::int64_t on_the_way = 0;                          // trials that have not reached the rung, and have not ended
  std::vector<std::pair<double, TrialNumber>> reached;  // the rung, and wait
  bool is_done() const { return capacity == 0 && on_the_way == 0 && reached.empty(); }
};

class HyperbandScheduler : public Scheduler {
 public:
  HyperbandScheduler(const Options& options, bool one_by_one) : one_by_one_(one_by_one) {
    max_t_ = options.number("max_t", 81);
    factor_ = options.number("reduction_factor", 3);
    stop_last_ = options.flag("stop_last_trials", true);
    options.require(max_t_ >= 1, "max_t", "1 or more");
    options.require(factor_ > 1, "reduction_factor", "more than 1");
    halvings_ = static_cast<int>(std::floor(std::log(max_t_) / std::log(factor_) + 1e-9));
  }

  void on_added(TrialNumber trial, const Value&) override {
    if (!trials_.try_emplace(trial).second) return;
    if (brackets_.empty() || brackets_.back().capacity == 0) open_bracket();
    HyperbandBracket& bracket = brackets_.back();
    --bracket.capacity;
    ++bracket.on_the_way;
    trials_[trial] = {.bracket = brackets_.size() - 1};
  }

  Decision on_result(TrialNumber trial, double time, double value, bool) override {
    const auto found = trials_.find(trial);
    if (found == trials_.end() || found->second.state != State::on_the_way) return late(found, time);
    HyperbandBracket& bracket = brackets_[found->second.bracket];
    if (time < bracket.milestones[bracket.rung]) return {};
    --bracket.on_the_way;
    if (bracket.rung + 1 == bracket.milestones.size()) {
      found->second.state = State::finished;
      return late(found, time);
    }
    found->second.state = State::waits;
    if (std::isnan(value)) value = std::numeric_limits<double>::infinity();
    bracket.reached.emplace_back(value, trial);
    const std::string rung = "rung " + Value(bracket.milestones[bracket.rung]).dump();
    halve_if_complete(bracket);
    if (found->second.state == State::on_the_way) return {};
    if (found->second.state == State::waits) return {Decision::Kind::pause, "it waits for the others at " + rung};
    found->second.state = State::stopped;
    std::erase(dropped_, trial);
    return {Decision::Kind::stop, "it is not among the best at " + rung};
  }

  void on_ended(TrialNumber trial, bool) override {
    const auto found = trials_.find(trial);
    if (found == trials_.end()) return;
    HyperbandBracket& bracket = brackets_[found->second.bracket];
    const State was = found->second.state;
    trials_.erase(found);
    std::erase(dropped_, trial);
    if (was == State::on_the_way) --bracket.on_the_way;
    if (was == State::waits) std::erase_if(bracket.reached, [&](const auto& one) { return one.second == trial; });
    halve_if_complete(bracket);
  }

  std::optional<TrialNumber> choose(const std::vector<TrialNumber>& fresh,
                                    const std::vector<TrialNumber>& paused) override {
    for (const auto* list : {&fresh, &paused})
      for (const TrialNumber trial : *list) drop_if_stopped(trial);
    if (const auto best = startable(fresh, paused)) return best;
    const auto listed = [&](const std::vector<TrialNumber>& list) {
      return std::ranges::count_if(list, [&](TrialNumber trial) { return is_live(trial); });
    };
    if (live() > listed(fresh) + listed(paused)) return std::nullopt;  // what runs will report
    // Nothing runs and no further trial comes: brackets that are not full begin as they are.
    for (HyperbandBracket& bracket : brackets_) {
      if (bracket.reached.empty()) continue;
      bracket.capacity = 0;
      halve_if_complete(bracket);
      if (const auto best = startable(fresh, paused)) return best;
    }
    return std::nullopt;
  }

  std::vector<TrialNumber> take_dropped() override { return std::exchange(dropped_, {}); }

 private:
  enum class State { on_the_way, waits, stopped, dropped, finished };
  struct Known {
    std::size_t bracket = 0;
    State state = State::on_the_way;
  };

  bool is_live(TrialNumber trial) const {
    const auto found = trials_.find(trial);
    return found != trials_.end() && found->second.state != State::dropped;
  }
  std::ptrdiff_t live() const {
    return std::ranges::count_if(trials_, [](const auto& one) { return one.second.state != State::dropped; });
  }
  /// A trial that failed while it was being stopped is offered as one to try again.
  void drop_if_stopped(TrialNumber trial) {
    const auto found = trials_.find(trial);
    if (found == trials_.end() || found->second.state != State::stopped) return;
    found->second.state = State::dropped;
    dropped_.push_back(trial);
  }

  /// Of a trial that has no rung before it.
  Decision late(const std::map<TrialNumber, Known>::iterator& found, double time) const {
    if (found == trials_.end()) return {};
    switch (found->second.state) {
      case State::finished:
        if (stop_last_ && time >= max_t_) return {Decision::Kind::stop, "it has reached max_t"};
        return {};
      case State::waits:
        return {Decision::Kind::pause, "it waits for the others at its rung"};
      case State::stopped:
      case State::dropped:
        return {Decision::Kind::stop, "it is not among the best at its rung"};
      case State::on_the_way:
        break;
    }
    return {};
  }

  /// Brackets with the most trials and the earliest first rung come first; after the last kind, the first one again.
  void open_bracket() {
    const int halvings = halvings_ - static_cast<int>(brackets_.size() % static_cast<std::size_t>(halvings_ + 1));
    HyperbandBracket bracket;
    for (int left = halvings; left >= 0; --left) bracket.milestones.push_back(max_t_ / std::pow(factor_, left));
    const double share = static_cast<double>(halvings_ + 1) / (halvings + 1);
    bracket.capacity = static_cast<std::int64_t>(std::ceil(share * std::pow(factor_, halvings) - 1e-9));
    brackets_.push_back(std::move(bracket));
  }

  void halve_if_complete(HyperbandBracket& bracket) {
    if (bracket.capacity > 0 || bracket.on_the_way > 0 || bracket.reached.empty()) return;
    std::ranges::sort(bracket.reached);
    const auto size = static_cast<double>(bracket.reached.size());
    const auto good = std::max<std::size_t>(1, static_cast<std::size_t>(size / factor_ + 1e-9));
    for (std::size_t at = 0; at < bracket.reached.size(); ++at) {
      const TrialNumber trial = bracket.reached[at].second;
      trials_[trial].state = at < good ? State::on_the_way : State::dropped;
      if (at >= good) dropped_.push_back(trial);
    }
    bracket.on_the_way = static_cast<std::int64_t>(good);
    bracket.reached.clear();
    ++bracket.rung;
  }

  /// The trial to start: of the oldest bracket that has one; those with more rungs behind them first.
  std::optional<TrialNumber> startable(const std::vector<TrialNumber>& fresh, const std::vector<TrialNumber>& paused) {
    while (first_open_ < brackets_.size() && brackets_[first_open_].is_done()) ++first_open_;
    std::optional<std::pair<std::size_t, TrialNumber>> best;
    for (const auto* list : {&paused, &fresh})
      for (const TrialNumber trial : *list) {
        const auto found = trials_.find(trial);
        if (found == trials_.end()) continue;
        const auto& [bracket, state] = found->second;
        if (state != State::on_the_way && state != State::finished) continue;
        if (one_by_one_ && state == State::on_the_way && bracket > first_open_) continue;
        if (!best || bracket < best->first) best = {bracket, trial};
      }
    if (!best) return std::nullopt;
    return best->second;
  }

  bool one_by_one_;
  double max_t_ = 0, factor_ = 0;
  bool stop_last_ = true;
  int halvings_ = 0;  // of the largest kind of bracket
  std::vector<HyperbandBracket> brackets_;
  std::size_t first_open_ = 0;
  std::map<TrialNumber, Known> trials_;  // those that have not ended
  std::vector<TrialNumber> dropped_;
};

}  // namespace

std::unique_ptr<Scheduler> make_hyperband(const Value& description, bool one_by_one) {
  const Options options(description, one_by_one ? "hyperband_bohb" : "hyperband",
                        {"max_t", "reduction_factor", "stop_last_trials"});
  return std::make_unique<HyperbandScheduler>(options, one_by_one);
}

}  // namespace lockstep::tune
