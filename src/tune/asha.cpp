// Asynchronous successive halving: at each rung a trial is compared with those that reached the rung before it, and
// stopped unless it is among the best 1/reduction_factor.

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>

#include "tune/random_numbers.h"
#include "tune/scheduler_options.h"

namespace lockstep::tune {
namespace {

constexpr std::uint64_t kBracketSalt = 0x627261636b6574ULL;  // draws that no searcher makes from the same seed

/// The values of one rung. Keeps one quantile of them at hand, so a decision takes O(log n).
class Rung {
 public:
  Rung(double milestone, double fraction) : milestone_(milestone), fraction_(fraction) {}

  double milestone() const { return milestone_; }
  /// Whether a trial with this value goes on, and records it.
  bool pass(double value) {
    if (std::isnan(value)) value = std::numeric_limits<double>::infinity();
    const bool first = best_.empty();
    const bool good = first || (value < std::numeric_limits<double>::infinity() && value <= cutoff());
    add(value);
    return good;
  }

 private:
  /// The quantile by linear interpolation between its two neighbours.
  double cutoff() const {
    const double low = best_.top();
    if (rest_.empty() || !std::isfinite(low) || !std::isfinite(rest_.top())) return low;
    const double place = fraction_ * static_cast<double>(best_.size() + rest_.size() - 1);
    return low + (rest_.top() - low) * (place - std::floor(place));
  }
  void add(double value) {
    if (!best_.empty() && value < best_.top())
      best_.push(value);
    else
      rest_.push(value);
    const auto size = static_cast<double>(best_.size() + rest_.size());
    const auto wanted = static_cast<std::size_t>(std::floor(fraction_ * (size - 1))) + 1;
    while (best_.size() < wanted) {
      best_.push(rest_.top());
      rest_.pop();
    }
    while (best_.size() > wanted) {
      rest_.push(best_.top());
      best_.pop();
    }
  }

  double milestone_, fraction_;
  std::priority_queue<double> best_;                                             // those up to the quantile
  std::priority_queue<double, std::vector<double>, std::greater<double>> rest_;  // those above it
};

class AshaScheduler : public Scheduler {
 public:
  AshaScheduler(const Options& options, std::uint64_t seed) : seed_(seed) {
    max_t_ = options.number("max_t", 100);
    const double grace = options.number("grace_period", 1), factor = options.number("reduction_factor", 4);
    const std::int64_t brackets = options.integer("brackets", 1);
    stop_last_ = options.flag("stop_last_trials", true);
    options.require(max_t_ > 0, "max_t", "more than 0");
    options.require(grace > 0, "grace_period", "more than 0");
    options.require(grace <= max_t_, "grace_period", "at most max_t");
    options.require(factor > 1, "reduction_factor", "more than 1");
    options.require(brackets > 0 && brackets <= 100, "brackets", "from 1 to 100");
    for (std::int64_t at = 0; at < brackets; ++at) {
      std::vector<Rung> rungs;
      const double first = grace * std::pow(factor, at);
      for (double milestone = first; milestone <= max_t_ * (1 + 1e-9); milestone *= factor)
        rungs.emplace_back(milestone, 1 / factor);
      brackets_.push_back(std::move(rungs));
    }
    for (const auto& rungs : brackets_)  // those with more rungs get more trials
      weights_.push_back(std::exp(static_cast<double>(rungs.size()) - static_cast<double>(brackets_[0].size())));
  }

  Decision on_result(TrialNumber trial, double time, double value, bool) override {
    if (stop_last_ && time >= max_t_) return {Decision::Kind::stop, "it has reached max_t"};
    Place& place = place_of(trial);
    std::vector<Rung>& rungs = brackets_[place.bracket];
    std::size_t reached = place.passed;
    while (reached < rungs.size() && time >= rungs[reached].milestone()) ++reached;
    if (reached == place.passed) return {};
    // Rungs that a long step has skipped are not decided, because the value is not of their time.
    place.passed = static_cast<std::uint16_t>(reached);
    Rung& rung = rungs[reached - 1];
    if (rung.pass(value)) return {};
    return {Decision::Kind::stop, "it is not among the best at rung " + Value(rung.milestone()).dump()};
  }

 private:
  struct Place {
    bool known = false;
    std::uint8_t bracket = 0;
    std::uint16_t passed = 0;  // rungs
  };

  Place& place_of(TrialNumber trial) {
    const auto at = static_cast<std::size_t>(trial);
    if (at >= places_.size()) places_.resize(std::max(at + 1, places_.size() * 2));
    Place& place = places_[at];
    if (place.known) return place;
    place.known = true;
    if (brackets_.size() > 1) place.bracket = draw_bracket(trial);
    return place;
  }

  std::uint8_t draw_bracket(TrialNumber trial) const {
    double sum = 0;
    for (const double weight : weights_) sum += weight;
    double left = RandomNumbers(seed_ ^ kBracketSalt, static_cast<std::uint64_t>(trial)).uniform() * sum;
    for (std::size_t at = 0; at + 1 < weights_.size(); ++at)
      if ((left -= weights_[at]) < 0) return static_cast<std::uint8_t>(at);
    return static_cast<std::uint8_t>(weights_.size() - 1);
  }

  std::uint64_t seed_;
  double max_t_ = 0;
  bool stop_last_ = true;
  std::vector<std::vector<Rung>> brackets_;
  std::vector<double> weights_;
  std::vector<Place> places_;  // by trial
};

}  // namespace

std::unique_ptr<Scheduler> make_asha(const Value& description, std::uint64_t seed) {
  const Options options(description, "asha",
                        {"max_t", "grace_period", "reduction_factor", "brackets", "stop_last_trials"});
  return std::make_unique<AshaScheduler>(options, seed);
}

}  // namespace lockstep::tune
