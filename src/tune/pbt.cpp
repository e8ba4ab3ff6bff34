// Population based training: at intervals, trials of the worst quantile continue from the checkpoint of one of the
// best, with a changed configuration.

#include <lockstep/error.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "tune/mutations.h"
#include "tune/scheduler_options.h"

namespace lockstep::tune {
namespace {

constexpr std::uint64_t kCompleteSalt = 0x6d757461746531ULL;  // draws that no searcher makes from the same seed
constexpr std::uint64_t kExploreSalt = 0x6d757461746532ULL;

Mutations::Settings mutation_settings(const Options& options) {
  Mutations::Settings settings;
  settings.resample_probability = options.number("resample_probability", settings.resample_probability);
  options.require(settings.resample_probability >= 0 && settings.resample_probability <= 1, "resample_probability",
                  "from 0 to 1");
  if (!options.has("perturbation_factors")) return settings;
  const Value& factors = options.value("perturbation_factors");
  options.require(factors.is_array() && !factors.empty(), "perturbation_factors", "a list of numbers");
  settings.factors.clear();
  for (const Value& factor : factors) {
    options.require(factor.is_number() && factor.get<double>() > 0, "perturbation_factors",
                    "a list of numbers more than 0");
    settings.factors.push_back(factor.get<double>());
  }
  return settings;
}

struct PbtTrial {
  Value config;
  double time = 0;               // of the newest report
  double last_perturbation = 0;  // time
  std::optional<double> score;   // at its last interval; none after it took over a checkpoint
  bool has_checkpoint = false;
  bool waits = false;  // for the others (synch)
  std::int64_t starts = 0;
  std::optional<TrialNumber> donor;  // of the exploit that is to be taken
};

class PbtScheduler : public Scheduler {
 public:
  PbtScheduler(const Options& options, std::uint64_t seed)
      : mutations_(options.value("hyperparam_mutations"), mutation_settings(options)), seed_(seed) {
    interval_ = options.number("perturbation_interval", 60);
    burn_in_ = options.number("burn_in_period", 0);
    quantile_ = options.number("quantile_fraction", 0.25);
    synch_ = options.flag("synch", false);
    options.require(interval_ > 0, "perturbation_interval", "more than 0");
    options.require(burn_in_ >= 0, "burn_in_period", "0 or more");
    options.require(quantile_ >= 0 && quantile_ <= 0.5, "quantile_fraction", "from 0 to 0.5");
    next_synch_ = std::max(interval_, burn_in_);
  }

  Value complete_config(TrialNumber trial, Value config) const override {
    RandomNumbers random(seed_ ^ kCompleteSalt, static_cast<std::uint64_t>(trial));
    return mutations_.completed(std::move(config), random);
  }
  void on_added(TrialNumber trial, const Value& config) override {
    trials_[trial].config = complete_config(trial, config);
  }

  Decision on_result(TrialNumber number, double time, double value, bool has_checkpoint) override {
    const auto found = trials_.find(number);
    if (found == trials_.end()) return {};
    PbtTrial& trial = found->second;
    trial.time = time;
    trial.has_checkpoint = has_checkpoint;
    const bool due = synch_ ? time >= next_synch_ : time >= burn_in_ && time - trial.last_perturbation >= interval_;
    if (!due) return {};
    trial.score = std::isnan(value) ? std::numeric_limits<double>::infinity() : value;
    if (synch_) {
      trial.waits = true;
      return {Decision::Kind::pause, "it waits for the others at " + Value(next_synch_).dump()};
    }
    trial.last_perturbation = time;
    const auto [best, worst] = quantiles();
    if (std::ranges::find(worst, number) != worst.end() && exploit(number, best))
      return {Decision::Kind::pause, "it takes over from trial " + std::to_string(*trial.donor)};
    if (others_wait_ && has_checkpoint) return {Decision::Kind::pause, "it lets the other trials catch up"};
    return {};
  }

  void on_checkpoint(TrialNumber number) override {
    if (const auto found = trials_.find(number); found != trials_.end()) found->second.has_checkpoint = true;
  }
  void on_ended(TrialNumber trial, bool) override { trials_.erase(trial); }

  void more_to_come(bool more) override { more_ = more; }
  std::optional<TrialNumber> choose(const std::vector<TrialNumber>& fresh,
                                    const std::vector<TrialNumber>& paused) override {
    auto chosen = least_advanced(fresh, paused);
    const std::size_t listed = fresh.size() + paused.size();
    if (!chosen && listed > 0 && trials_.size() <= listed) {  // no one runs: all have come
      perturb_all();
      chosen = least_advanced(fresh, paused);
    }
    if (chosen) ++trials_.at(*chosen).starts;
    others_wait_ = more_ || listed > (chosen ? 1U : 0U);
    return chosen;
  }

  std::optional<Exploit> take_exploit(TrialNumber trial) override {
    const auto found = trials_.find(trial);
    if (found == trials_.end() || !found->second.donor) return std::nullopt;
    Exploit taken{.donor = *found->second.donor, .config = found->second.config};
    found->second.donor.reset();
    return taken;
  }

  std::vector<TrialNumber> donors() const override {
    std::set<TrialNumber> all;
    for (const auto& [number, trial] : trials_)
      if (trial.donor) all.insert(*trial.donor);
    return {all.begin(), all.end()};
  }

  Value replay_log() const override { return log_; }

 private:
  struct Quantiles {
    std::vector<TrialNumber> best, worst;
  };

  Quantiles quantiles() const {
    std::vector<std::pair<double, TrialNumber>> ranked;
    for (const auto& [number, trial] : trials_)
      if (trial.score) ranked.emplace_back(*trial.score, number);
    if (ranked.size() <= 1) return {};
    std::ranges::sort(ranked);
    auto count = static_cast<std::size_t>(std::ceil(static_cast<double>(ranked.size()) * quantile_ - 1e-9));
    count = std::min(count, ranked.size() / 2);
    Quantiles both;
    for (std::size_t at = 0; at < count; ++at) {
      both.best.push_back(ranked[at].second);
      both.worst.push_back(ranked[ranked.size() - 1 - at].second);
    }
    return both;
  }

  /// Whether there is a donor. A trial that is a donor itself keeps its checkpoint until that is taken.
  bool exploit(TrialNumber number, const std::vector<TrialNumber>& best) {
    if (std::ranges::any_of(trials_, [&](const auto& one) { return one.second.donor == number; })) return false;
    std::vector<TrialNumber> able;
    for (const TrialNumber other : best)
      if (other != number && trials_.at(other).has_checkpoint) able.push_back(other);
    if (able.empty()) return false;

    RandomNumbers random((seed_ ^ kExploreSalt) + log_.size(), static_cast<std::uint64_t>(number));
    const TrialNumber donor = able[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(able.size())))];
    PbtTrial& trial = trials_.at(number);
    const PbtTrial& from = trials_.at(donor);
    Value config = mutations_.explored(from.config, random);
    log_.push_back({{"trial", number},
                    {"donor", donor},
                    {"time", trial.time},
                    {"donor_time", from.time},
                    {"old_config", from.config},
                    {"new_config", config}});
    trial.config = std::move(config);
    trial.time = from.time;
    trial.last_perturbation = from.last_perturbation;
    trial.score.reset();
    trial.donor = donor;
    return true;
  }

  void perturb_all() {
    const Quantiles both = quantiles();
    for (const TrialNumber number : both.worst) exploit(number, both.best);
    double newest = 0;
    for (auto& [number, trial] : trials_) {
      trial.waits = false;
      trial.last_perturbation = trial.time;
      newest = std::max(newest, trial.time);
    }
    while (next_synch_ <= newest) next_synch_ += interval_;
  }

  /// Of equal ones, the one that was started least: a trial that takes over again and again must not keep its donor
  /// from moving on. With synch, trials that take over come first: their donors have not moved on then.
  std::optional<TrialNumber> least_advanced(const std::vector<TrialNumber>& fresh,
                                            const std::vector<TrialNumber>& paused) const {
    std::optional<std::tuple<bool, double, std::int64_t, TrialNumber>> best;
    for (const auto* list : {&fresh, &paused})
      for (const TrialNumber number : *list) {
        const auto found = trials_.find(number);
        if (found == trials_.end() || found->second.waits) continue;
        const PbtTrial& trial = found->second;
        const std::tuple candidate{!synch_ || !trial.donor, trial.time, trial.starts, number};
        if (!best || candidate < *best) best = candidate;
      }
    if (!best) return std::nullopt;
    return std::get<3>(*best);
  }

  Mutations mutations_;
  std::uint64_t seed_;
  double interval_ = 0, burn_in_ = 0, quantile_ = 0, next_synch_ = 0;
  bool synch_ = false, others_wait_ = false, more_ = false;
  std::map<TrialNumber, PbtTrial> trials_;  // those that have not ended
  Value log_ = Value::array();
};

/// Gives every trial the configurations of a policy, each at its time.
class PbtReplayScheduler : public Scheduler {
 public:
  explicit PbtReplayScheduler(const Options& options) : policy_(options.value("policy")) {
    options.require(policy_.is_array(), "policy", "a list of [time, config]");
    for (const Value& change : policy_)
      options.require(change.is_array() && change.size() == 2 && change[0].is_number() && change[1].is_object(),
                      "policy", "a list of [time, config]");
  }

  void on_added(TrialNumber trial, const Value& config) override { trials_[trial].config = config; }

  Decision on_result(TrialNumber number, double time, double, bool has_checkpoint) override {
    const auto found = trials_.find(number);
    if (found == trials_.end()) return {};
    Replayed& trial = found->second;
    if (trial.changes == policy_.size() || time < policy_[trial.changes][0].get<double>()) return {};
    if (!has_checkpoint) return {};  // it would begin anew; a later report may come with one
    const Value& config = policy_[trial.changes++][1];
    log_.push_back({{"trial", number},
                    {"donor", number},
                    {"time", time},
                    {"donor_time", time},
                    {"old_config", std::exchange(trial.config, config)},
                    {"new_config", config}});
    trial.due = true;
    return {Decision::Kind::pause, "its configuration changes"};
  }

  void on_ended(TrialNumber trial, bool) override { trials_.erase(trial); }

  std::optional<Exploit> take_exploit(TrialNumber trial) override {
    const auto found = trials_.find(trial);
    if (found == trials_.end() || !std::exchange(found->second.due, false)) return std::nullopt;
    return Exploit{.donor = trial, .config = found->second.config};
  }

  std::vector<TrialNumber> donors() const override {
    std::vector<TrialNumber> all;
    for (const auto& [number, trial] : trials_)
      if (trial.due) all.push_back(number);
    return all;
  }

  Value replay_log() const override { return log_; }

 private:
  struct Replayed {
    Value config;
    std::size_t changes = 0;  // of the policy, made so far
    bool due = false;         // the last one is to be taken
  };

  Value policy_;
  std::map<TrialNumber, Replayed> trials_;
  Value log_ = Value::array();
};

}  // namespace

std::unique_ptr<Scheduler> make_pbt(const Value& description, std::uint64_t seed) {
  const Options options(description, "pbt",
                        {"perturbation_interval", "burn_in_period", "hyperparam_mutations", "quantile_fraction",
                         "resample_probability", "perturbation_factors", "synch"});
  return std::make_unique<PbtScheduler>(options, seed);
}

std::unique_ptr<Scheduler> make_pbt_replay(const Value& description) {
  const Options options(description, "pbt_replay", {"policy"});
  return std::make_unique<PbtReplayScheduler>(options);
}

}  // namespace lockstep::tune
