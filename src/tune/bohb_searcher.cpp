#include <algorithm>
#include <cmath>
#include <map>

#include "tune/searchers.h"
#include "tune/tpe_model.h"

namespace lockstep::tune {
namespace {

/// TPE for trials that may be stopped early (Falkner et al., 2018). There is a model per budget 1, eta, eta^2, ...: it
/// has each trial's first value from that budget on. A point comes from the model of the highest budget that has
/// enough values.
class BohbSearcher : public PointSearcher {
 public:
  BohbSearcher(const SearcherSetup& setup, TpeSettings settings, double eta)
      : space_(setup.space), seed_(setup.seed), settings_(settings), eta_(eta) {}

  Asked ask(TrialNumber trial, const Point& fixed) override {
    RandomNumbers random(seed_, static_cast<std::uint64_t>(trial));
    TpeModel* chosen = &model(0);
    for (auto& [level, candidate] : models_) {
      if (candidate.size() >= settings_.startup) chosen = &candidate;
    }
    Asked asked{Asked::Kind::point, chosen->choose(fixed, random)};
    for (auto& [level, each] : models_) each.start(trial, asked.point);
    unfinished_[trial] = {asked.point, -1};
    return asked;
  }

  void observe(TrialNumber trial, double budget, double value) override {
    const auto found = unfinished_.find(trial);
    if (found == unfinished_.end() || !(budget >= 1)) return;
    // A little more, as the logarithm of a power may be just below the whole number.
    const int level = static_cast<int>(std::floor(std::log(budget) / std::log(eta_) + 1e-9));
    for (int n = found->second.level + 1; n <= level; ++n) finish(trial, n, value);
    found->second.level = std::max(found->second.level, level);
  }

  void tell(TrialNumber trial, const std::vector<double>& values) override {
    const auto found = unfinished_.find(trial);
    if (found == unfinished_.end()) return;
    // A trial that never reported, or failed: it is known to the first model at least.
    if (found->second.level < 0) finish(trial, 0, value_or_worst(values));
    for (auto& [level, each] : models_) each.forget(trial);
    unfinished_.erase(found);
  }

 private:
  struct Unfinished {
    Point point;
    int level = -1;  ///< the highest that has the trial's value
  };

  TpeModel& model(int level) { return models_.try_emplace(level, space_, settings_).first->second; }

  void finish(TrialNumber trial, int level, double value) {
    const bool is_new = !models_.contains(level);
    TpeModel& it = model(level);
    if (is_new) {  // in the order of the trials
      for (const auto& [other, state] : unfinished_) it.start(other, state.point);
    }
    it.finish(trial, std::isnan(value) ? value_or_worst({}) : value);
  }

  Space space_;
  std::uint64_t seed_;
  TpeSettings settings_;
  double eta_;
  std::map<int, TpeModel> models_;
  std::map<TrialNumber, Unfinished> unfinished_;
};

}  // namespace

std::unique_ptr<PointSearcher> make_bohb(SearcherOptions& options, const SearcherSetup& setup) {
  TpeSettings settings;
  const auto enough = static_cast<std::int64_t>(setup.space.dimensions().size()) + 2;
  settings.startup = options.integer("n_startup", std::max<std::int64_t>(enough, 10), 1);
  settings.candidates = options.integer("n_candidates", settings.candidates, 1, 100'000);
  return std::make_unique<BohbSearcher>(setup, settings, options.number("eta", 3, 1.1, 100));
}

}  // namespace lockstep::tune
